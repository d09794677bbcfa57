"""What a hostile or broken client may say to the real daemon in names, numbers and order.

Each answer is a typed error or a plain miss; the connection and everybody else go on, and nothing stored is harmed.
"""

from __future__ import annotations

import os
import re
import time
from contextlib import suppress
from itertools import combinations

import pytest
from msgspec.structs import replace

from kvledger import Cache, Kind
from kvledger.errors import CallerError, CapacityError, LeaseLost, LimitError
from kvledger.testing import Daemon
from kvledger.wire import requests
from support.daemon_log import logged
from support.shell import Client
from support.tiny import check, content, prompt, store, tiny_layout

TOKENS = 50
HALF = "model \ud800"
"""Half of a character outside the basic plane: text in Python, and nothing that has bytes."""


@pytest.fixture(scope="module")
def daemon():
    """Give one daemon to all tests of this module."""
    with Daemon(memory="64MiB", settings={"arena_bytes": "1MiB"}) as running:
        yield running


@pytest.fixture
def cache(daemon):
    """Give an open cache, and see afterwards that it still works and that no decision failed."""
    with Cache.open(daemon.socket, staging_bytes=1 << 17) as opened:
        yield opened
        layout = opened.register(tiny_layout())
        store(opened, layout, 999)
        assert check(opened, layout, 999) == TOKENS
        counters = opened.status().counters
        assert (counters["decision_faults"], counters["leases"], counters["units"]) == (0, 0, 0)


SALTS = {
    "empty": "",
    "129 characters": "s" * 129,
    "128 characters": "s" * 128,
    "NUL": "\0",
    "NUL behind": "a\0",
    "slash": "a/b",
    "parent": "../a",
    "at": "a@b",
    "Latin a": "a",
    "Cyrillic a": "\u0430",
    "composed": "\u00e9",
    "decomposed": "e\u0301",
    "full width": "\uff41",
    "no UTF-8": b"\xff\xfe",
    "the same as text": "\u00ff\u00fe",
}


def save(cache, layout, number, seed, extra):
    """Store a prompt under extra keys, with bytes that tell the seed."""
    with cache.reserve(layout, prompt(number), boundary=TOKENS, extra=extra) as unit:
        for slot in unit.objects:
            unit.put(slot, content(seed, slot.group, slot.first_token, slot.length))


@pytest.mark.hostile("ID03")
def test_odd_salts_are_values_like_any_other(cache):
    """Whatever a salt consists of, its prompt is found under it alone: nothing is normalised, cut or joined."""
    layout = cache.register(tiny_layout())
    for seed, salt in enumerate(SALTS.values()):
        save(cache, layout, 1, seed, {"salt": salt})
    for seed, salt in enumerate(SALTS.values()):
        with cache.acquire(layout, [*prompt(1), 7], extra={"salt": salt}) as hit:
            assert hit.tokens == TOKENS
            for handle in hit:
                assert bytes(handle.buffer) == content(seed, handle.group, handle.first_token, handle.length)
    assert not cache.acquire(layout, [*prompt(1), 7])


WRONG_WORDS = {
    "salt": lambda cache, layout: cache.acquire(layout, prompt(1), extra={"salt": HALF}),
    "source": lambda cache, layout: cache.acquire(layout, prompt(1), extra={HALF: "x"}),
    "group": lambda cache, layout: cache.evict(layout, prompt(1), kind=Kind.COMPRESSED_KV, group=HALF),
    "long group": lambda cache, layout: cache.evict(layout, prompt(1), kind=Kind.COMPRESSED_KV, group="g" * 65),
    "model": lambda cache, layout: cache.register(replace(layout.layout, model=HALF)),
    "revision": lambda cache, layout: cache.register(replace(layout.layout, revision=HALF)),
    "abi": lambda cache, layout: cache.register(tiny_abi(layout=HALF)),
    "4 KiB model": lambda cache, layout: cache.register(replace(layout.layout, model="m" * 4096)),
    "more hashes than a frame": lambda cache, layout: cache.acquire(layout, range(16 * 33_000)),
    "negative leave": lambda cache, layout: cache.acquire(layout, prompt(1), leave=-1),
    "leave of 70 bits": lambda cache, layout: cache.acquire(layout, prompt(1), leave=2**70),
    "leave as text": lambda cache, layout: cache.acquire(layout, prompt(1), leave="1"),
    "leave of another type": lambda cache, layout: cache.acquire(layout, prompt(1), leave=object()),
    "alignment 0": lambda cache, layout: cache.acquire(layout, prompt(1), align=0),
    "minimum beyond all": lambda cache, layout: cache.acquire(layout, prompt(1), minimum=2**41),
    "negative wait": lambda cache, layout: cache.acquire(layout, prompt(1), wait=-1),
    "wait that is no number": lambda cache, layout: cache.acquire(layout, prompt(1), wait=float("nan")),
    "restore that waits for no number": lambda cache, layout: cache.restore(layout, prompt(1), wait=float("nan")),
    "wait as text": lambda cache, layout: cache.restore(layout, prompt(1), wait="1"),
    "boundary before": lambda cache, layout: cache.reserve(layout, prompt(1), boundary=-1),
    "boundary behind": lambda cache, layout: cache.reserve(layout, prompt(1), boundary=10**9),
    "block before": lambda cache, layout: cache.evict(layout, prompt(1), kind=Kind.COMPRESSED_KV, block=-3),
    "block behind": lambda cache, layout: cache.evict(layout, prompt(1), kind=Kind.COMPRESSED_KV, block=2**40),
}


def tiny_abi(**fields):
    """The tiny layout with one field of a kernel ABI changed."""
    what = tiny_layout()
    return replace(what, abi=what.abi | {"full": replace(what.abi["full"], **fields)})


@pytest.mark.hostile("ID05", "LO11")
@pytest.mark.parametrize("wrong", WRONG_WORDS)
def test_odd_arguments_are_refused_by_field(cache, wrong):
    """An argument that can not be sent, or that no bound takes, is the caller's error and costs no connection."""
    layout = cache.register(tiny_layout())
    before = cache.incarnation, cache.status().counters["engines"]
    with pytest.raises(CallerError) as refused:
        WRONG_WORDS[wrong](cache, layout)
    assert refused.value.field
    assert refused.value.remedy
    assert (cache.incarnation, cache.status().counters["engines"]) == before
    assert "0 in flight" in repr(cache)


@pytest.mark.parametrize("wrong", [{"name": HALF}, {"name": "n" * 200}, {"timeout": float("nan")}, {"timeout": -1}])
def test_odd_arguments_open_no_cache(daemon, wrong):
    """A cache with a name or a timeout that can not be is refused, and no engine stays behind."""
    with Cache.open(daemon.socket) as other:
        with pytest.raises(CallerError):
            Cache.open(daemon.socket, **wrong)
        end = time.monotonic() + 60
        while other.status().counters["engines"] != 1:
            assert time.monotonic() < end


def test_a_socket_path_that_is_no_path_is_refused():
    """Half a character in the path of the socket is the caller's error."""
    with pytest.raises(CallerError) as refused:
        Cache.open(HALF)
    assert refused.value.field == "socket_path"


MODELS = ["../../x", "/etc/passwd", "a\0b", "m" * 256, "CON", "-rf", "a\nb", "\u202e\u0430", "%s%n", "{0}"]


@pytest.mark.hostile("ID05")
def test_odd_model_names_name_no_file(daemon):
    """Models named like paths, options and formats are stored, written, and found again; files are named by numbers."""
    layouts = [replace(tiny_layout(), model=model) for model in MODELS]
    outside = daemon.data_dir / MODELS[0]
    before = outside.exists()
    with Cache.open(daemon.socket, staging_bytes=1 << 17) as cache:
        for number, what in enumerate(layouts):
            layout = cache.register(what)
            store(cache, layout, number)
            cache.offload(layout, prompt(number), boundary=TOKENS, drop_memory=True)
        daemon.kill()
        daemon.wait_ready()
        for number, what in enumerate(layouts):
            assert check(cache, cache.register(what), number) == TOKENS
        names = [path.name for path in daemon.data_dir.rglob("*")]
        assert [name for name in names if not re.fullmatch(r"[a-z0-9.-]+", name)] == []
        assert outside.exists() == before


def test_layouts_of_one_name_are_told_apart(cache):
    """Ten layouts under one name, which differ in one word each, store one prompt each and find their own bytes."""
    layouts = [cache.register(replace(tiny_layout("one"), revision=f"r{n}")) for n in range(10)]
    for seed, layout in enumerate(layouts):
        save(cache, layout, 5, seed, None)
    for seed, layout in enumerate(layouts):
        with cache.acquire(layout, [*prompt(5), 7]) as hit:
            assert {bytes(h.buffer) == content(seed, h.group, h.first_token, h.length) for h in hit} == {True}


@pytest.mark.hostile("LO07")
@pytest.mark.parametrize("clients", [16, pytest.param(64, marks=pytest.mark.slow)])
def test_clients_that_reserve_to_the_cap_at_once(clients):
    """Whoever reserves everything at the same time gets room or a refusal; all of it is free when they have gone."""
    with Daemon(memory="8MiB", settings={"arena_bytes": "1MiB"}) as daemon, Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        others = [Cache.open(daemon.socket, staging_bytes=1 << 16) for _ in range(clients)]
        mine = [other.register(tiny_layout()) for other in others]
        answers = [
            reserved(other, registered, prompt(1000 * client + number))
            for number in range(256 // clients)
            for client, (other, registered) in enumerate(zip(others, mine, strict=True))
        ]
        refused = [answer for answer in answers if isinstance(answer, CapacityError)]
        counters = cache.status().counters
        assert counters["units"] == len(answers) - len(refused) > 0
        assert {bool(error.remedy) for error in refused} == {True}
        assert sum(counters[f"live_bytes.{kind.name}"] for kind in Kind) <= 8 << 20
        for other in others:
            other.close()
        end = time.monotonic() + 60
        while not storable(cache, layout):
            assert time.monotonic() < end
        assert check(cache, layout, 1) == TOKENS


def reserved(cache, layout, tokens):
    """Return a reservation or its refusal."""
    try:
        return cache.reserve(layout, tokens, boundary=TOKENS)
    except CapacityError as error:
        return error


def storable(cache, layout):
    """Tell whether there is room again."""
    with suppress(CapacityError):
        store(cache, layout, 1)
        return True
    return False


@pytest.mark.hostile("LO10")
@pytest.mark.slow
def test_a_storm_of_leases_ends_at_the_cap(daemon, cache):
    """An engine that takes leases without end is refused by its limit, and others lease and store beside it."""
    layout = cache.register(tiny_layout())
    store(cache, layout, 7)
    with Cache.open(daemon.socket) as storm:
        registered = storm.register(tiny_layout())
        hits = [storm.acquire(registered, [*prompt(7), 7]) for _ in range(4096)]
        with pytest.raises(LimitError) as refused:
            storm.acquire(registered, [*prompt(7), 7])
        assert refused.value.field == "max_leases"
        assert check(cache, layout, 7) == TOKENS
        store(cache, layout, 8)
        for hit in hits:
            hit.release()
        assert check(storm, registered, 8) == TOKENS


@pytest.mark.hostile("BY06")
def test_what_was_released_lends_nothing(cache):
    """A handle that outlives its hit lends no bytes, and says why."""
    layout = cache.register(tiny_layout())
    store(cache, layout, 9)
    hit = cache.acquire(layout, [*prompt(9), 7])
    handles = list(hit)
    hit.release()
    hit.release()
    for handle in handles:
        with pytest.raises(LeaseLost):
            handle.buffer  # noqa: B018  taking it is what is tried


def test_no_layout_is_registered_that_contradicts_itself(cache):
    """Of all pairs of wrong fields none gets past registration, and each refusal names a field."""
    what = tiny_layout()
    wrongs = {
        "no groups": {"groups": ()},
        "block of 0": {"block_tokens": 0},
        "block no multiple": {"block_tokens": 17},
        "no ABI": {"abi": {}},
        "a group twice": {"groups": (what.groups[0], what.groups[0])},
        "no weights": {"weights_digest": ""},
        "unknown preset": {"preset": "no-such-model"},
    }
    for one, other in combinations(wrongs, 2):
        for fields in (wrongs[one], wrongs[one] | wrongs[other]):
            with pytest.raises(CallerError) as refused:
                cache.register(replace(what, **fields))
            assert refused.value.field


AT = requests.Boundary(os.urandom(32))
ORDERS = {
    "commit after abort": (requests.Abort, requests.Commit),
    "abort after abort": (requests.Abort, requests.Abort),
    "put after abort": (requests.Abort, lambda unit: requests.Put(unit, [requests.PutRange(1, 0, 0, 0, 16)])),
}


@pytest.mark.asyncio
@pytest.mark.parametrize("order", ORDERS)
async def test_receipts_are_good_once_on_the_wire(daemon, order):
    """What names a reservation that has ended is refused by generation, on its own and on another connection."""
    first, second = ORDERS[order]
    with await Client.connect(daemon.socket) as client, await Client.connect(daemon.socket) as other:
        await client.hello()
        await other.hello()
        number = (await client.ask(requests.Register(tiny_layout()))).layout
        unit = (await client.ask(requests.Reserve(number, AT, boundary=False))).unit
        stolen = await other.ask(second(unit))
        assert (stolen.code, stolen.field) == ("generation", "unit")
        await client.ask(first(unit))
        late = await client.ask(second(unit))
        assert (late.code, late.field) == ("generation", "unit")
        unknown = await other.ask(second(unit + 700))
        assert unknown.message.replace(str(unit + 700), "#") == stolen.message.replace(str(unit), "#")
        assert (await other.ask(second(unit))).message == stolen.message


@pytest.mark.asyncio
@pytest.mark.parametrize("incarnation", [0, 1, 2**63 - 1])
async def test_an_incarnation_that_is_over_is_no_claim(daemon, incarnation):
    """A client that names any incarnation in its hello is let in, and told the one that runs."""
    with await Client.connect(daemon.socket) as client:
        welcome = await client.hello(incarnation=incarnation)
        assert welcome.incarnation == daemon.wait_ready().incarnation
        lost = await client.ask(requests.Release(1))
        assert (lost.code, lost.field) == ("lease_lost", "lease")


@pytest.mark.asyncio
async def test_l25_p24_a_receipt_that_nobody_holds_is_told_with_who_returned_it(daemon):
    """A receipt that is not held is a typed error, and the daemon's log names it with the engine that returned it."""
    with await Client.connect(daemon.socket) as client:
        await client.hello(name="twice")
        number = (await client.ask(requests.Register(tiny_layout()))).layout
        unit = (await client.ask(requests.Reserve(number, AT, boundary=False))).unit
        await client.ask(requests.Abort(unit))
        for request in (requests.Abort(unit), requests.Release(unit + 7)):
            assert (await client.ask(request)).code in {"generation", "lease_lost"}
    lines = logged(daemon.output, "receipt refused")
    assert lines, daemon.output.read_text()[-3000:]
    told = [(line["code"], line["actor"].partition(":")[0]) for line in lines if str(unit) in line["why"]]
    assert told == [("generation", "engine")]
    assert [line["code"] for line in lines if str(unit + 7) in line["why"]] == ["lease_lost"]
