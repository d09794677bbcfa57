"""Field cases about races, against the real daemon: many clients at once, full memory, damaged records.

Every client thread has a connection and an engine of its own, as separate processes would; what it reads is compared
byte by byte with what anybody can work out from the prompt's number. An order that has to be forced stands in
`test_cases_orders.py` instead.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import anyio
import pytest

from kvledger import AsyncCache, Cache, Kind
from kvledger.errors import CapacityError, CommitRefusedError, KVLedgerError, NotFoundError
from kvledger.testing import Daemon
from kvledger.waiting import DeadlineError
from kvledger_storage import events
from kvledger_storage.log import RealLogIO, read_events
from support.promises import WrongHitError
from support.tiny import check, content, prompt, store, tiny_layout

TOKENS = 50
SETTINGS = {"arena_bytes": "1MiB", "disk_segment_bytes": "256KiB", "read_seconds": 5}
KINDS = (Kind.COMPRESSED_KV, Kind.UNCOMPRESSED_TAIL)
REFUSED = (CapacityError, CommitRefusedError, NotFoundError)
"""What a race may end in for who writes: no room, or what the unit stands on is gone."""
SHARED = range(8)
"""Prompts that everybody of a crowd wants; those of one client alone have numbers from 1,000 on."""
FILLERS = range(5_000, 5_300)


@pytest.fixture(scope="module", autouse=True)
def anyio_back_end():
    """Have anyio load its back end, which it does once, at its first use, by an import that would count as blocking."""
    anyio.run(anyio.sleep, 0)


@pytest.fixture(scope="module")
def full():
    """Give a daemon whose memory is full of prompts that nobody wants, so that whoever stores evicts."""
    with Daemon(memory="8MiB", settings=SETTINGS) as running, Cache.open(running.socket) as cache:
        layout = cache.register(tiny_layout())
        for number in FILLERS:
            store(cache, layout, number)
        assert reuse(cache, layout, FILLERS.start) == 0, "the memory is not full yet"
        yield running


@pytest.fixture(scope="module")
def roomy():
    """Give a daemon whose memory nobody here fills, and whose damage is found by those who read."""
    with Daemon(memory="128MiB", settings=SETTINGS | {"scrub_seconds": 0}) as running:
        yield running


def crowd(daemon, jobs):
    """Run each job in a thread with a cache of its own, all from one moment on; raise what the first of them raised."""
    gate = threading.Barrier(len(jobs))

    def run(number, job):
        with Cache.open(daemon.socket, staging_bytes=1 << 17, timeout=60) as cache:
            layout = cache.register(tiny_layout())
            gate.wait(60)
            return job(cache, layout, random.Random(number))

    with ThreadPoolExecutor(len(jobs)) as pool:
        return [done.result() for done in [pool.submit(run, *numbered) for numbered in enumerate(jobs)]]


def reuse(cache, layout, number):
    """Return the tokens of a prompt that can be reused; wrong bytes are told from every other failure."""
    try:
        return check(cache, layout, number)
    except AssertionError as error:
        raise WrongHitError(str(error)) from error


def drop(cache, layout, number, *, disk=False):
    """Drop a prompt's copies in memory, those that nobody leased."""
    for kind in KINDS:
        cache.evict(layout, prompt(number), boundary=TOKENS, kind=kind, disk=disk)


def unharmed(daemon, cache):
    """Nothing is held any more, and no decision failed."""
    assert settled(cache)["decision_faults"] == 0
    assert daemon.running


def covered(hit, group):
    """Return the tokens that a group's handles cover; they follow each other without gap or overlap."""
    ends = [(handle.first_token, handle.first_token + handle.tokens) for handle in hit[group]]
    assert [end for _, end in ends[:-1]] == [first for first, _ in ends[1:]]
    return ends[-1][1] if ends else 0


@pytest.mark.parametrize("held", [1, 4])
def test_v21_p35_a_hit_that_was_leased_is_there_when_it_is_read(full, held):
    """In full memory nothing goes between look-up and load: a hit is read whole after any pressure, or was a miss."""

    def read_held(cache, layout, chance):
        found = 0
        for _ in range(12):
            hits = [cache.acquire(layout, [*prompt(n), 7]) for n in chance.sample(SHARED, held)]
            for number in chance.sample(range(2000, 3000), 3):
                with suppress(*REFUSED):
                    store(cache, layout, number)
            for hit in hits:
                with hit:
                    assert covered(hit, "full") == hit.tokens
                    read_whole(hit)
                    found += bool(hit)
        return found

    def write(cache, layout, chance):
        stored = 0
        for number in [*SHARED] * 6:
            with suppress(*REFUSED):
                store(cache, layout, chance.choice([number, 1000 + number]))
                stored += 1
        return stored

    counts = crowd(full, [read_held] * 4 + [write] * 2)
    assert min(sum(counts[:4]), sum(counts[4:])) > 0
    with Cache.open(full.socket) as cache:
        unharmed(full, cache)


def read_whole(hit):
    """Compare all bytes of a hit on one of the shared prompts, whichever it is."""
    for handle in hit:
        data = bytes(handle.buffer)
        number = int(data.split(maxsplit=2)[1])
        if data != content(number, handle.group, handle.first_token, handle.length):
            raise WrongHitError(f"{handle!r} holds {data[:40]!r}")


@pytest.mark.parametrize("readers", [16, pytest.param(64, marks=pytest.mark.slow)])
def test_p32_many_readers_beside_eviction_and_offload_read_their_own_bytes(full, readers):
    """Readers of shared prompts while these are evicted, written to disk and restored see their bytes or miss."""

    def look(cache, layout, chance):
        return sum(reuse(cache, layout, chance.choice(SHARED)) > 0 for _ in range(20))

    def stir(cache, layout, chance):
        for number in [*SHARED] * 5:
            with suppress(*REFUSED):
                store(cache, layout, number)
                cache.offload(layout, prompt(number), boundary=TOKENS, drop_memory=chance.random() < 0.5)
                drop(cache, layout, chance.choice(SHARED), disk=chance.random() < 0.2)

    counts = crowd(full, [look] * readers + [stir] * 2)
    assert sum(count for count in counts if count) > 0
    with Cache.open(full.socket) as cache:
        unharmed(full, cache)


@pytest.mark.parametrize("writers", [6])
def test_l30_a_resident_prompt_hits_every_time_beside_writers(roomy, writers):
    """However many write other prompts at once, what is resident is never measured as a miss."""
    with Cache.open(roomy.socket) as cache:
        store(cache, cache.register(tiny_layout()), 500)
    done = threading.Event()

    def write(cache, layout, chance):
        numbers = chance.sample(range(10_000, 1 << 20), 20)
        for number in numbers:
            store(cache, layout, number)
        assert [reuse(cache, layout, number) for number in numbers] == [TOKENS] * len(numbers)
        done.set()

    def look(cache, layout, chance):
        found = []
        while not done.is_set() or len(found) < 20:
            found.append(reuse(cache, layout, 500))
        return found

    found = crowd(roomy, [write] * writers + [look])[-1]
    assert set(found) == {TOKENS}


@pytest.mark.parametrize("where", ["memory", "disk"])
def test_l31_pressure_between_look_up_and_load_is_served_or_refused(full, where):
    """What was found, in memory or on disk, is loaded with its bytes though others fill the memory meanwhile."""

    def load(cache, layout, chance):
        number = 4000 + chance.randrange(1 << 20)
        answers = []
        for _ in range(6):
            with suppress(*REFUSED):
                store(cache, layout, number)
                if where == "disk":
                    cache.offload(layout, prompt(number), boundary=TOKENS, drop_memory=True)
            hit = cache.acquire(layout, [*prompt(number), 7])
            answers.append((hit.tokens, bool(hit.why)))
            with hit:
                read_whole(hit)
        return answers

    def flood(cache, layout, chance):
        for number in chance.sample(range(100_000, 1 << 20), 60):
            with suppress(*REFUSED):
                store(cache, layout, number)

    counts = crowd(full, [load] * 3 + [flood] * 3)
    answers = [answer for found in counts[:3] for answer in found]
    assert (TOKENS, True) in answers
    assert all(tokens or why for tokens, why in answers)
    with Cache.open(full.socket) as cache:
        unharmed(full, cache)


def damage(daemon, number, group):
    """Flip one byte of a prompt's first record of a group, wherever on disk it lies."""
    first = 0 if group == "full" else TOKENS
    wanted = content(number, group, first, 64)
    (path,) = (p for p in (daemon.data_dir / "data").glob("*.seg") if wanted in p.read_bytes())
    data = bytearray(path.read_bytes())
    data[data.index(wanted) + 9] ^= 4
    path.write_bytes(data)


def told_damaged(daemon):
    """Return every copy that the log says was found damaged by a restore, as often as it says so."""
    found, names = [], {}
    for logged in read_events(RealLogIO(), daemon.log_dir):
        event = events.decode(logged.event).event
        if isinstance(event, events.RestoreStarted):
            names[event.job] = event.objects
        elif isinstance(event, events.RestoreFinished):
            pairs = zip(names[event.job], event.errors, strict=True)
            found += [name for name, error in pairs if error.startswith("damaged")]
    return found


@pytest.mark.parametrize("group", ["full", "tail"])
def test_p31_v41_l19_a_load_that_fails_is_a_success_for_nobody(roomy, group):
    """A record is damaged and many ask for it at once: nobody gets its bytes, all go on, and it is told just once."""
    number = 600 if group == "full" else 601
    with Cache.open(roomy.socket) as cache:
        layout = cache.register(tiny_layout())
        store(cache, layout, number)
        cache.offload(layout, prompt(number), boundary=TOKENS, drop_memory=True)
        damage(roomy, number, group)
        told = len(told_damaged(roomy))

        def ask(mine, registered, _chance):
            hit = mine.acquire(registered, [*prompt(number), 7])
            with hit:
                read_whole(hit)
                return hit.tokens, hit.why

        answers = crowd(roomy, [ask] * 8)
        assert {tokens for tokens, _ in answers} == {0}
        assert all("damaged" in why or "not the committed ones" in why for _, why in answers)
        unharmed(roomy, cache)
        store(cache, layout, number)
        assert reuse(cache, layout, number) == TOKENS
        assert len(told_damaged(roomy)) == told + 1


def test_f05_writers_of_one_prompt_are_all_told_the_truth(roomy):
    """Eight commit one prompt at the same moment: each object is stored once, and every reply adds up."""
    number = 700

    def write(cache, layout, chance):
        with cache.reserve(layout, prompt(number), boundary=TOKENS) as unit:
            brought = [slot for slot in unit.objects if not slot.present]
            for slot in brought:
                unit.put(slot, content(number, slot.group, slot.first_token, slot.length))
            committed = unit.commit()
        assert committed.stored + committed.duplicates == len(brought)
        assert committed.differing == 0
        assert reuse(cache, layout, number) == TOKENS
        return committed.stored

    stored = crowd(roomy, [write] * 8)
    with Cache.open(roomy.socket) as cache:
        layout = cache.register(tiny_layout())
        assert sum(stored) == len(cache.describe(layout, prompt(number), boundary=TOKENS).objects)


def test_v45_reservations_and_commits_end_whole_whoever_dies(roomy):
    """Connections that end in the middle of anything leave others' prompts whole and nothing of their own."""
    end = threading.Event()

    def die(cache, layout, chance):
        for number in range(3):
            with Cache.open(roomy.socket, staging_bytes=1 << 17) as mine:
                registered = mine.register(tiny_layout())
                unit = mine.reserve(registered, prompt(800 + chance.randrange(3)), boundary=TOKENS)
                for slot in unit.objects[: chance.randrange(len(unit.objects))]:
                    if not slot.present:
                        unit.put(slot, b"\xee" * slot.length)
                mine.acquire(registered, [*prompt(500 + number), 7]).release()
        end.set()

    def live(cache, layout, chance):
        while not end.is_set():
            with suppress(KVLedgerError):
                store(cache, layout, 800 + chance.randrange(3))
            reuse(cache, layout, 800 + chance.randrange(3))

    crowd(roomy, [die] * 3 + [live] * 2)
    with Cache.open(roomy.socket) as cache:
        layout = cache.register(tiny_layout())
        for number in range(800, 803):
            store(cache, layout, number)
            assert reuse(cache, layout, number) == TOKENS
        unharmed(roomy, cache)


def some_work(cache, layout, chance, number):
    """Return the calls of one client that wants a prompt, in one of three ways."""

    def write():
        with cache.reserve(layout, prompt(number), boundary=TOKENS) as unit:
            for slot in unit.objects:
                if not slot.present:
                    unit.put(slot, content(number, slot.group, slot.first_token, slot.length))

    calls = (
        write,
        lambda: reuse(cache, layout, number),
        lambda: cache.offload(layout, prompt(number), boundary=TOKENS),
    )
    return chance.choice(calls)


def settled(cache):
    """Wait until nothing is held any more; what was given up late is given back by calls that follow."""
    end = time.monotonic() + 60
    while any((counters := cache.status().counters)[name] for name in ("leases", "units")):
        assert time.monotonic() < end, counters
        time.sleep(0.01)
    return counters


def test_l22_v45_callers_whose_time_is_over_leave_nothing(roomy):
    """Calls that end by their deadline anywhere on their way hold no lease and no slot, while their engine lives."""

    def give_up(cache, layout, chance):
        over = 0
        for _ in range(150):
            cache._link.timeout = chance.choice((2e-4, 4e-4, 1e-3, 60))  # a cache has one timeout for all its calls
            try:
                some_work(cache, layout, chance, 900 + chance.randrange(12))()
            except DeadlineError:
                over += 1
            except REFUSED:
                pass
        cache._link.timeout = 60
        settled(cache)
        return over

    assert sum(crowd(roomy, [give_up] * 3)) > 10


@pytest.mark.asyncio
async def test_l22_v45_tasks_that_are_cancelled_leave_nothing(roomy):
    """Tasks that are cancelled anywhere on their way hold no lease and no slot, and their cache goes on."""
    chance = random.Random(22)
    async with await AsyncCache.open(roomy.socket, staging_bytes=1 << 17) as cache:
        layout = await cache.register(tiny_layout())
        for _ in range(15):
            tasks = [asyncio.create_task(_task(cache, layout, 950 + chance.randrange(12), n % 2)) for n in range(20)]
            await asyncio.sleep(chance.random() * 0.02)
            for task in chance.sample(tasks, 12):
                task.cancel()
            ends = await asyncio.gather(*tasks, return_exceptions=True)
            wrong = [end for end in ends if isinstance(end, Exception) and not isinstance(end, REFUSED)]
            assert wrong == []
        for _ in range(5000):
            counters = (await cache.status()).counters
            if not counters["leases"] and not counters["units"]:
                break
            await asyncio.sleep(0.01)
        assert (counters["leases"], counters["units"]) == (0, 0)


async def _task(cache, layout, number, writes):
    if writes:
        async with await cache.reserve(layout, prompt(number), boundary=TOKENS) as unit:
            for slot in unit.objects:
                if not slot.present:
                    await unit.put(slot, content(number, slot.group, slot.first_token, slot.length))
    else:
        async with await cache.acquire(layout, [*prompt(number), 7]) as hit:
            read_whole(hit)
