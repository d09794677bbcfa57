"""Bytes that are not what was agreed on: too few, too many, of another kind, changed on their way, read too late."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading

import pytest
import xxhash
from msgspec.structs import replace

from kvledger.arena_header import ArenaHeader
from kvledger.errors import LeaseLost
from kvledger.kinds import Kind
from kvledger.layout import GroupSpec
from kvledger.memfd import create_sealed
from kvledger.wire import replies, requests
from support.raw_engine import BLOCKS, OBJECT_BYTES, OBJECTS, RING, RING_BYTES, Engine
from support.shell import Client
from support.tiny import check, prompt, store, tiny_layout

TAIL = OBJECTS - 1
WHOLE = xxhash.xxh3_128_digest(RING_BYTES[:OBJECT_BYTES])
PRINTS = {
    "of other bytes": bytes(16 * OBJECTS),
    "one of them wrong": WHOLE * BLOCKS + bytes(16),
    "too few": WHOLE * (OBJECTS - 1),
    "too many": WHOLE * (OBJECTS + 1),
    "no whole number": WHOLE * OBJECTS + b"x",
}


async def is_stored(client):
    """Tell whether the client's own prompt can be resumed."""
    found = await client.ask(client.lookup())
    if found.lease:
        await client.ask(requests.Release(found.lease))
    return found.usable_tokens > 0


@pytest.mark.hostile("BY01")
@pytest.mark.asyncio
async def test_a_commit_with_wrong_fingerprints_publishes_nothing(daemon, neighbour):
    """Fingerprints of other bytes, or of another count, are refused by field; the right ones still commit the unit."""
    with await Engine.enter(daemon, neighbour.layout.layout) as client:
        unit = await client.reserve()
        assert await client.ask(client.put(unit)) == replies.Done()
        for what, prints in PRINTS.items():
            refused = await client.ask(requests.Commit(unit, prints))
            assert (refused.code in {"caller", "commit_refused"}, refused.field) == (True, "fingerprints"), what
            assert not await is_stored(client), what
        assert (await client.ask(requests.Commit(unit, WHOLE * OBJECTS))).stored == OBJECTS
        assert await is_stored(client)


def ranges(client):
    """Return what may be wrong with a range, each with the word that its refusal has to name."""
    return {
        "BY01 another kind": (replace(client.range_of(0), kind=Kind.UNCOMPRESSED_TAIL), "kind"),
        "BY01 a kind that it never is": (replace(client.range_of(TAIL), kind=Kind.DISK_PREFIX), "kind"),
        "BY01 a place inside the object": (client.range_of(0, offset=4096, length=4096), "offset"),
        "BY01 an odd place": (client.range_of(0, offset=1, length=8), "offset"),
        "BY04 one byte more": (client.range_of(0, length=OBJECT_BYTES + 1), "length"),
        "BY04 2 GiB": (client.range_of(0, length=2**31), "length"),
        "BY04 an object that is not in the unit": (client.range_of(OBJECTS), "index"),
        "BY04 the last object that can be named": (client.range_of(2**31), "index"),
    }


@pytest.mark.hostile("BY01", "BY04")
@pytest.mark.asyncio
async def test_ranges_that_do_not_fit_are_refused(daemon, neighbour):
    """Another kind or place, more bytes than reserved, an object that is not there: refused by field, unit unharmed."""
    with await Engine.enter(daemon, neighbour.layout.layout) as client:
        unit = await client.reserve()
        for what, (item, field) in ranges(client).items():
            refused = await client.ask(requests.Put(unit, [item]))
            assert refused.field == f"ranges[0].{field}", what
            behind = await client.ask(requests.Put(unit, [client.range_of(1), replace(item, ring_offset=8192)]))
            assert behind.field == f"ranges[1].{field}", what
        assert await client.ask(client.put(unit)) == replies.Done()
        assert isinstance(await client.ask(requests.Commit(unit)), replies.Committed)


@pytest.mark.hostile("BY04")
@pytest.mark.asyncio
@pytest.mark.parametrize("ring_offset", [RING, RING - OBJECT_BYTES + 1, 2**63 - 1])
async def test_bytes_behind_the_ring_end_the_reservation(daemon, neighbour, ring_offset):
    """A range that leaves the ring is refused, its unit is given up, and nothing of it is ever found."""
    with await Engine.enter(daemon, neighbour.layout.layout) as client:
        unit = await client.reserve()
        refused = await client.ask(requests.Put(unit, [client.range_of(0, ring_offset=ring_offset)]))
        assert isinstance(refused, replies.Failed)
        assert (await client.ask(requests.Commit(unit))).code == "generation"
        assert not await is_stored(client)


@pytest.mark.hostile("BY01", "BY02")
@pytest.mark.asyncio
async def test_a_group_that_is_missing_is_named(daemon, neighbour):
    """A commit without the state, without a block, or with half an object is refused and says what lacks."""
    with await Engine.enter(daemon, neighbour.layout.layout) as client:
        for brought, lacks in (((0, 1, 2), "tail"), ((0, 1, TAIL), "full"), ((), "4 of 4")):
            unit = await client.reserve()
            if brought:
                assert await client.ask(client.put(unit, brought)) == replies.Done()
            half = requests.Put(unit, [client.range_of(TAIL if TAIL not in brought else 2, length=4096)])
            assert await client.ask(half) == replies.Done()
            refused = await client.ask(requests.Commit(unit))
            assert refused.code == "commit_refused"
            assert lacks in refused.message
            assert await client.ask(requests.Abort(unit)) == replies.Done()
            assert not await is_stored(client)


@pytest.mark.hostile("BY03")
@pytest.mark.asyncio
async def test_a_group_that_comes_twice_is_refused(daemon, neighbour):
    """An object handed in twice, in one request or in two, is refused, and what came first is what is stored."""
    with await Engine.enter(daemon, neighbour.layout.layout) as client:
        unit = await client.reserve()
        twice = await client.ask(requests.Put(unit, [client.range_of(0), client.range_of(0, ring_offset=8192)]))
        assert twice.field == "ranges[1].offset"
        assert await client.ask(client.put(unit)) == replies.Done()
        again = await client.ask(requests.Put(unit, [client.range_of(TAIL, ring_offset=8192)]))
        assert again.field == "ranges[0].offset"
        assert (await client.ask(requests.Commit(unit, WHOLE * OBJECTS))).stored == OBJECTS


LAYOUTS = {
    "a group twice": lambda what: replace(what, groups=what.groups[:1] * 2),
    "a group without ABI": lambda what: replace(what, abi={}),
    "no layers": lambda what: with_group(what, layers=()),
    "a layer twice": lambda what: with_group(what, layers=(0, 0)),
    "an owner that is no layer": lambda what: with_group(what, owner_layers=(9,)),
    "an odd alignment": lambda what: with_group(what, alignment=96),
    "an alignment beyond a page": lambda what: with_group(what, alignment=8192),
    "pages off their alignment": lambda what: with_group(what, alignment=576),
    "pages smaller than their rows": lambda what: with_group(what, page_bytes=4095),
    "a kind that the daemon makes": lambda what: with_group(what, kind=Kind.DISK_PREFIX),
}


def with_group(layout, **fields):
    """Return a layout with fields of its first group changed."""
    first = {name: getattr(layout.groups[0], name) for name in GroupSpec.__struct_fields__}
    return replace(layout, groups=(GroupSpec(**first | fields), *layout.groups[1:]))


@pytest.mark.hostile("BY01", "BY03")
@pytest.mark.asyncio
async def test_layouts_that_contradict_themselves_are_refused_by_the_daemon(daemon):
    """A client that checks nothing is checked: wrong layers, alignment, sizes and kinds get no number."""
    with await Client.connect(daemon.socket) as client:
        await client.hello()
        for what, change in LAYOUTS.items():
            refused = await client.ask(requests.Register(change(tiny_layout())))
            assert isinstance(refused, replies.Failed), what
            assert refused.field, what


@pytest.mark.hostile("BY01")
@pytest.mark.asyncio
async def test_bytes_of_another_layout_are_no_hit(daemon, neighbour):
    """What was stored under one layout is no hit under another alignment, number of layers or weights of equal size."""
    others = [
        with_group(tiny_layout(), alignment=1024),
        with_group(tiny_layout(), layers=(2, 3)),
        with_group(tiny_layout(), layers=(0, 1, 2), owner_layers=(0, 1)),
        tiny_layout(weights="w2"),
    ]
    with await Engine.enter(daemon, tiny_layout()) as client:
        await client.store()
        assert await is_stored(client)
        for other in others:
            number = (await client.ask(requests.Register(other))).layout
            found = await client.ask(replace(client.lookup(), layout=number))
            assert (found.lease, found.usable_tokens) == (0, 0)
        unknown = await client.ask(requests.Reserve(number + 1000, client.end))
        assert (unknown.code, unknown.field) == ("not_found", "layout")


@pytest.mark.hostile("BY05")
@pytest.mark.asyncio
async def test_a_ring_that_is_written_after_the_commit_changes_nothing(daemon, neighbour):
    """What the writer does to its ring afterwards reaches no reader: bytes and fingerprints are those committed."""
    with await Engine.enter(daemon, neighbour.layout.layout) as client:
        await client.store()
        os.pwrite(client.ring, b"\xff" * RING, 0)
        assert await stored_bytes(client) == [RING_BYTES[:OBJECT_BYTES]] * OBJECTS


async def stored_bytes(client):
    """Return the bytes of all objects of the client's own prompt, read through the arenas it was given."""
    found = await client.ask(client.lookup())
    prints = (await client.ask(requests.Fingerprints(found.lease))).fingerprints
    arenas = client.take_arenas()
    objects = [
        bytes_of(arenas[run.arena], run, number)
        for run in found.rows + found.offers[0].runs
        for number in range(run.count)
    ]
    assert prints == b"".join(map(xxhash.xxh3_128_digest, objects))
    assert await client.ask(requests.Release(found.lease)) == replies.Done()
    return objects


def bytes_of(arena, run, number):
    """Return the bytes of one object of a run."""
    header = ArenaHeader.unpack(os.pread(arena, 4096, 0), os.fstat(arena).st_size)
    return os.pread(arena, run.length, header.data_offset + run.offset + number * run.stride)


RACE = 4 << 20


@pytest.mark.hostile("BY07")
@pytest.mark.asyncio
async def test_bytes_that_change_under_the_copy_are_known_as_they_were_stored(daemon):
    """While a thread overwrites the ring without pause, each fingerprint is that of the bytes which readers find."""
    layout = with_group(tiny_layout("racing"), page_bytes=RACE // 2, row_bytes=RACE // 32)
    with await Engine.enter(daemon, layout) as client, overwritten_ring() as fd:
        assert await client.send_ring(fd, RACE) == replies.Done()
        for _ in range(500):
            objects = await store_racing(client)
            if any(len(set(found)) > 1 for found in objects[:BLOCKS]):
                return
    pytest.fail("no copy of five hundred was caught half-way")


async def store_racing(client):
    """Store the client's prompt from its ring, return what readers find of it, and drop it again."""
    unit = await client.reserve()
    for index in range(BLOCKS):
        assert await client.ask(requests.Put(unit, [client.range_of(index, length=RACE)])) == replies.Done()
    assert await client.ask(client.put(unit, [TAIL])) == replies.Done()
    assert isinstance(await client.ask(requests.Commit(unit)), replies.Committed)
    objects = await stored_bytes(client)
    for kind in (Kind.UNCOMPRESSED_TAIL, Kind.COMPRESSED_KV):
        await client.ask(requests.Evict(kind, client.layout, client.end))
    return objects


@contextlib.contextmanager
def overwritten_ring():
    """Give a ring that a thread fills with one value after the other, without pause."""
    fd = create_sealed("ring", RACE)
    over = threading.Event()
    with mmap.mmap(fd, RACE) as ring:
        writer = threading.Thread(target=overwrite, args=(ring, RACE, over))
        writer.start()
        try:
            yield fd
        finally:
            over.set()
            writer.join()
            os.close(fd)


def overwrite(ring, size, over):
    """Fill a ring with one value after the other until told to stop."""
    patterns = [bytes([value]) * size for value in range(4)]
    while not over.is_set():
        for pattern in patterns:
            ring[:] = pattern


@pytest.mark.hostile("BY06")
def test_a_handle_lends_nothing_after_its_release(daemon, neighbour):
    """A handle that outlives its hit lends no bytes, also when what it named was evicted and stored anew."""
    cache, layout = neighbour.cache, neighbour.layout
    store(cache, layout, 9000)
    hit = cache.acquire(layout, [*prompt(9000), 7])
    handles = list(hit)
    hit.release()
    for kind in (Kind.UNCOMPRESSED_TAIL, Kind.COMPRESSED_KV):
        cache.evict(layout, prompt(9000), boundary=50, kind=kind)
    store(cache, layout, 9001)
    for handle in handles:
        with pytest.raises(LeaseLost):
            handle.buffer  # noqa: B018  taking it is what is tried
    assert check(cache, layout, 9001) == 50
