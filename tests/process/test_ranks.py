"""Several processes of one engine: a scheduler that looks up and reserves, ranks that read and bring their parts."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import anyio
import pytest

from kvledger import AsyncCache, Cache
from kvledger.errors import CallerError, GenerationError, LeaseLost
from kvledger.kinds import Kind
from kvledger.testing import Daemon
from kvledger.wire.replies import Committed, Waiting
from support.ranks import RankProcess, content, fill, ranks_layout

RANKS = range(4)
PROMPT = list(range(100))
END = 64


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """Give one daemon to all tests of this module; its arenas are small, so that places are used again soon."""
    with Daemon(memory="16MiB", settings={"arena_bytes": "1MiB"}) as running:
        yield running


@pytest.fixture(scope="module")
def anyio_back_end() -> None:
    """Have anyio load its back end, which it does once, by an import that would count as blocking in a loop."""
    anyio.run(anyio.sleep, 0)


@pytest.fixture
def scheduler(daemon: Daemon) -> Iterator[Cache]:
    """Give the scheduler's cache."""
    with Cache.open(daemon.socket, name="scheduler", staging_bytes=1 << 20, timeout=60) as cache:
        yield cache


@contextlib.contextmanager
def worker(daemon: Daemon, scheduler: Cache) -> Iterator[Cache]:
    """Give a cache of the same engine, as another process would open it."""
    with Cache.open(daemon.socket, engine=scheduler.engine, name="worker", staging_bytes=1 << 20) as cache:
        cache.register(ranks_layout())
        yield cache


def fresh(number: int) -> list[int]:
    """A prompt of a test's own."""
    return [token + 1000 * number for token in PROMPT]


def until_no_unit(cache: Cache) -> None:
    """Wait until the daemon has no reservation any more."""
    end = time.monotonic() + 60
    while cache.status().counters["units"]:
        assert time.monotonic() < end, "a reservation stays"
        time.sleep(0.01)


def stored(cache: Cache, layout, prompt: list[int]) -> None:
    """Store a boundary from one process."""
    with cache.reserve(layout, prompt, boundary=END) as unit:
        for slot in unit.objects:
            unit.put(slot, content(slot.group, slot.shard, slot.first_token, slot.length))


def test_f01_a_rank_that_is_killed_costs_its_unit_and_nothing_else(daemon, scheduler):
    """One of four ranks dies while it puts: nothing is stored, all are told; the same again with a new one succeeds."""
    layout = scheduler.register(ranks_layout())
    ranks = [RankProcess(daemon.socket, scheduler.engine, rank) for rank in RANKS]
    try:
        tickets = scheduler.reserve(layout, PROMPT, boundary=END).tickets()
        assert list(tickets) == list(RANKS)
        for rank, process in enumerate(ranks):
            process.tell("stall" if rank == 2 else "write", tickets[rank])
        assert [process.answer()[0] for process in ranks] == ["Waiting", "Waiting", "Stalled", "Waiting"]
        ranks[2].kill()
        until_no_unit(scheduler)
        assert not scheduler.acquire(layout, PROMPT)
        with pytest.raises(GenerationError, match="rank 2 ended before its commit: "):
            scheduler.join(tickets[2])

        ranks[2] = RankProcess(daemon.socket, scheduler.engine, 2)
        again = scheduler.reserve(layout, PROMPT, boundary=END).tickets()
        for rank, process in enumerate(ranks):
            process.tell("write", again[rank])
        said = [process.answer() for process in ranks]
        assert sorted(word for word, _ in said) == ["Committed", "Waiting", "Waiting", "Waiting"]
        with scheduler.acquire(layout, PROMPT) as hit:
            assert hit.tokens == END
            for process in ranks:
                process.tell("read", hit.export())
            assert [process.answer() for process in ranks] == [("Read", count) for _, count in said]
        ranks[0].tell("write", tickets[0])
        assert ranks[0].answer()[0] == "GenerationError"
    finally:
        for process in ranks:
            process.close()


def test_a_hit_is_read_where_it_was_not_looked_up(daemon, scheduler):
    """Another process of the engine reads all handles of a hit, or those of one rank, without a look-up of its own."""
    layout, prompt = scheduler.register(ranks_layout()), fresh(1)
    stored(scheduler, layout, prompt)
    with worker(daemon, scheduler) as other, scheduler.acquire(layout, prompt) as hit:
        with other.attach(hit.export()) as attached:
            assert (attached.tokens, attached.exactness, attached.hash_tokens) == (END, hit.exactness, hit.hash_tokens)
            names = [(h.group, h.shard, h.first_token) for h in attached]
            assert names == [(h.group, h.shard, h.first_token) for h in hit]
            assert sorted(n for rank in RANKS for n in names_of(attached, rank)) == sorted(names)
            assert {group for group, shard, _ in names_of(attached, 3)} == {"full.1", "gdn.1"}
            assert {shard for _, shard, _ in names_of(attached, 3)} == {1}
            assert all(bytes(h.buffer) == content(h.group, h.shard, h.first_token, h.length) for h in attached)
        assert repr(attached) == "<AttachedHit attached, 64 of 100 tokens, exact>"
        with pytest.raises(LeaseLost, match="released"):
            _ = next(iter(attached)).buffer


def names_of(hit, rank):
    """Group, shard and first token of what a rank holds of a hit."""
    return [(h.group, h.shard, h.first_token) for h in hit.of_rank(rank)]


def test_a_miss_is_handed_on_as_one(daemon, scheduler):
    """What was no hit for the scheduler is none for a worker, and has no handles."""
    layout = scheduler.register(ranks_layout())
    with worker(daemon, scheduler) as other, scheduler.acquire(layout, fresh(2)) as miss:
        attached = other.attach(miss.export())
        assert not attached
        assert list(attached) == []


def test_bytes_that_were_taken_back_are_noticed_where_they_were_read(daemon, scheduler):
    """An owner that releases too early costs its workers a miss: generations are compared after the copy."""
    layout, prompt = scheduler.register(ranks_layout()), fresh(3)
    stored(scheduler, layout, prompt)
    with worker(daemon, scheduler) as other:
        with scheduler.acquire(layout, prompt) as hit:
            attached = other.attach(hit.export())
        copies = [bytes(handle.buffer) for handle in attached]
        attached.check()
        for kind in (Kind.SWA_WINDOW, Kind.UNCOMPRESSED_TAIL, Kind.COMPRESSED_KV):
            scheduler.evict(layout, prompt, kind=kind, boundary=END)
        for number in range(10, 40):
            stored(scheduler, layout, fresh(number))
        assert copies
        with pytest.raises(LeaseLost, match="were taken back"):
            attached.check()


def test_a_part_commits_when_its_block_is_left(daemon, scheduler):
    """Parts wait for each other in the daemon and not in the caller; an exception in one ends the unit for all."""
    layout, prompt = scheduler.register(ranks_layout()), fresh(4)
    with worker(daemon, scheduler) as other:
        for broken in (True, False):
            with scheduler.reserve(layout, prompt, boundary=END) as unit:
                tickets = unit.tickets()
            assert repr(unit) == "<Unit handed out, 22 objects, 0 present>"
            parts = [(scheduler if rank < 2 else other).join(ticket) for rank, ticket in tickets.items()]
            for rank, part in enumerate(parts[:3]):
                with part:
                    fill(part, len(part.objects))
                assert part.committed == Waiting(3 - rank)
            with contextlib.suppress(ZeroDivisionError), parts[3]:
                fill(parts[3], len(parts[3].objects) - broken)
                assert 1 // (not broken)
            with scheduler.acquire(layout, prompt) as hit:
                assert bool(hit) is not broken
        assert isinstance(parts[3].committed, Committed)
        assert (parts[3].committed.stored, repr(parts[3])) == (22, "<UnitShard committed, 5 objects, 0 present>")


def test_who_hands_out_may_give_up(daemon, scheduler):
    """Of a unit that was handed out its owner can do nothing but abort it, and the ranks are told."""
    layout = scheduler.register(ranks_layout())
    unit = scheduler.reserve(layout, fresh(5), boundary=END)
    tickets = unit.tickets()
    for act in (unit.commit, unit.tickets, lambda: unit.put(unit.objects[0], b"")):
        with pytest.raises(CallerError, match="handed out"):
            act()
    with worker(daemon, scheduler) as other:
        part = other.join(tickets[1])
        unit.abort()
        with pytest.raises(GenerationError, match="given up by its owner"):
            part.commit()


def test_where_everything_is_there_no_ticket_is_given(scheduler):
    """A unit that brings nothing stays with its owner, who commits it."""
    layout, prompt = scheduler.register(ranks_layout()), fresh(6)
    stored(scheduler, layout, prompt)
    with scheduler.reserve(layout, prompt, boundary=END) as unit:
        assert unit.tickets() == {}
    assert repr(unit) == "<Unit committed, 22 objects, 22 present>"


@pytest.mark.usefixtures("anyio_back_end")
@pytest.mark.asyncio
async def test_the_same_with_await(daemon):
    """Asynchronous caches hand out, join, export and attach as the others do."""
    async with (
        await AsyncCache.open(daemon.socket, staging_bytes=1 << 20) as one,
        await AsyncCache.open(daemon.socket, engine=one.engine, staging_bytes=1 << 20) as two,
    ):
        layout, prompt = await one.register(ranks_layout()), fresh(9)
        await two.register(ranks_layout())
        async with await one.reserve(layout, prompt, boundary=END) as unit:
            tickets = unit.tickets()
        for rank, ticket in tickets.items():
            async with await (one if rank < 2 else two).join(ticket) as part:
                for slot in part.objects:
                    await part.put(slot, content(slot.group, slot.shard, slot.first_token, slot.length))
        assert isinstance(part.committed, Committed)
        async with await one.acquire(layout, prompt) as hit:
            with await two.attach(hit.export()) as attached:
                right = [bytes(h.buffer) == content(h.group, h.shard, h.first_token, h.length) for h in attached]
        assert right == [True] * len(unit.objects)


def test_what_is_passed_belongs_to_one_engine_and_one_run(daemon, scheduler):
    """Another engine, a restarted daemon, an unknown layout and foreign bytes are told apart."""
    layout, prompt = scheduler.register(ranks_layout()), fresh(7)
    stored(scheduler, layout, prompt)
    with scheduler.acquire(layout, prompt) as hit:
        passed = hit.export()
    unit = scheduler.reserve(layout, fresh(8), boundary=END)
    ticket = unit.tickets()[0]
    with Cache.open(daemon.socket) as stranger:
        for take, data in ((stranger.attach, passed), (stranger.join, ticket)):
            with pytest.raises(CallerError, match="belongs to another engine"):
                take(data)
    with Cache.open(daemon.socket, engine=scheduler.engine) as bare:
        for take, data in ((bare.attach, passed), (bare.join, ticket)):
            with pytest.raises(CallerError, match="not registered here"):
                take(data)
    for take, data in ((scheduler.attach, ticket), (scheduler.join, passed), (scheduler.join, os.urandom(99))):
        with pytest.raises(CallerError, match="these bytes are no"):
            take(data)
    with pytest.raises(LeaseLost, match="released"):
        hit.export()
    unit.abort()
    daemon.kill()
    scheduler.status()
    for take, data in ((scheduler.attach, passed), (scheduler.join, ticket)):
        with pytest.raises(LeaseLost, match="is of incarnation 1, the daemon is in 2"):
            take(data)
