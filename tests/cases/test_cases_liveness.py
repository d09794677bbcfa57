"""Field cases about who is alive: engines that die or fall silent, workers that hang, memory that must not grow."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from kvledger import Cache, Kind
from kvledger.errors import CapacityError, KVLedgerError, LeaseLost
from kvledger.testing import Daemon
from kvledger_storage import events
from kvledger_storage.log import RealLogIO, read_events
from support.log_sums import settled
from support.soak.measures import own_bytes
from support.tiny import check, content, prompt, store, tiny_layout

TOKENS = 50
SETTINGS = {"arena_bytes": "1MiB", "disk_segment_bytes": "256KiB", "silence_seconds": 3}
PROMPTS = 300
DEAD_SECONDS = 60.0
"""Within this time of its death nothing of an engine is left; the kernel tells the daemon, so it takes a moment."""
LEAST_SILENCE = 1.5
"""Seconds for which an engine is left alone at least: time is told from one look for silent ones to the next."""


@pytest.fixture(scope="module")
def daemon():
    """Give one small daemon to all tests of this module."""
    with Daemon(memory="8MiB", settings=SETTINGS) as running:
        yield running


@pytest.fixture
def cache(daemon):
    """Give an open cache."""
    with Cache.open(daemon.socket, staging_bytes=1 << 17) as opened:
        yield opened


def logged(daemon, kind):
    """Return the events of one type in the daemon's log, in order."""
    found = (events.decode(entry.event).event for entry in read_events(RealLogIO(), daemon.log_dir))
    return [event for event in found if isinstance(event, kind)]


def lease_all(cache, layout, numbers):
    """Lease every one of the prompts that is there; return the hits."""
    hits = [cache.acquire(layout, [*prompt(number), 7]) for number in numbers]
    return [hit for hit in hits if hit]


@pytest.mark.hostile("LO04", "OR08")
def test_f02_v21_l03_only_a_silent_reader_loses_its_bytes_and_knows_it(daemon, cache):
    """Full of leases, the daemon takes those of an engine that fell silent, and never those of one that is slow."""
    layout = cache.register(tiny_layout())
    store(cache, layout, 1)
    with (
        Cache.open(daemon.socket, name="silent") as silent,
        Cache.open(daemon.socket, name="slow") as slow,
        slow.acquire(slow.register(tiny_layout()), [*prompt(1), 7]) as kept,
    ):
        mine = silent.register(tiny_layout())
        views = [handle.buffer for handle in kept]
        hits, refused, heard = fill_with_leases(cache, layout, silent, mine, slow)
        assert refused.remedy
        while not stores(cache, layout, 9999):
            slow.status()
            time.sleep(0.05)
            assert time.monotonic() - heard < 60
        assert time.monotonic() - heard >= LEAST_SILENCE
        kept.check()
        assert b"".join(map(bytes, views)) == whole(1, kept)
        with pytest.raises(LeaseLost):
            hits[0].renew()
        assert any(lost(hit) for hit in hits)
        for hit in hits:
            hit.release()
        assert check(cache, layout, 9999) == TOKENS
        kept.check()
    assert "revoked: silent" in {event.reason for event in logged(daemon, events.LeaseEnded)}


def fill_with_leases(cache, layout, holder, registered, other):
    """Store prompts, and let `holder` lease each, until nothing fits; return its hits, the refusal, when it spoke."""
    hits = []
    for number in range(100, 1000):
        heard = time.monotonic()
        holder.status()
        other.status()
        try:
            store(cache, layout, number)
        except CapacityError as error:
            for hit in hits:
                assert [bytes(h.buffer) for h in hit]
            return hits, error, heard
        hits += lease_all(holder, registered, [number])
    raise AssertionError("the memory never filled")


def stores(cache, layout, number):
    """Tell whether there is room for one more prompt."""
    try:
        store(cache, layout, number)
    except CapacityError:
        return False
    return True


def whole(number, hit):
    """Return the bytes that all handles of a hit should hold, in their order."""
    return b"".join(content(number, h.group, h.first_token, h.length) for h in hit)


def lost(hit):
    """Tell whether a hit knows that bytes of it were taken back."""
    try:
        hit.check()
    except LeaseLost:
        return True
    return False


@pytest.mark.hostile("TI02")
@pytest.mark.slow
def test_f02_l23_a_daemon_that_was_stopped_takes_nothing(daemon, cache):
    """Stopped for longer than an engine may be silent, the daemon goes on without calling anybody silent for it."""
    layout = cache.register(tiny_layout())
    with Cache.open(daemon.socket, timeout=60) as holder:
        hits, *_ = fill_with_leases(cache, layout, holder, holder.register(tiny_layout()), holder)
        os.kill(daemon.pid, signal.SIGSTOP)
        time.sleep(SETTINGS["silence_seconds"] + 3)
        os.kill(daemon.pid, signal.SIGCONT)
        assert not stores(cache, layout, 9998)
        time.sleep(1.1)
        holder.status()
        assert not stores(cache, layout, 9998)
        for hit in hits:
            hit.check()
            hit.release()
        holder.status()
        assert stores(cache, layout, 9998)


STEPS = ("hello", "register", "ring", "acquire", "reserve", "put")
HOLDERS = """
import os, signal, sys
sys.path.insert(0, "tests")
from kvledger import Cache
from support.tiny import prompt, tiny_layout

def live(step):
    cache = Cache.open(sys.argv[1], staging_bytes=1 << 17, name=step)
    if step == "hello":
        return cache
    layout = cache.register(tiny_layout())
    if step == "register":
        return cache
    if step == "acquire":
        return cache, cache.acquire(layout, [*prompt(2), 7])
    unit = cache.reserve(layout, prompt(40_000), boundary=50)
    if step == "ring":
        unit.abort()
    if step == "put":
        unit.put(unit.objects[0], b"x" * unit.objects[0].length)
    return cache, unit

children = []
for step in sys.argv[2:]:
    child = os.fork()
    if child == 0:
        held = live(step)
        os.write(1, b"holding\\n")
        signal.pause()
    children.append(child)
sys.stdin.read(1)
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
os.write(1, b"killed\\n")
sys.stdin.read(1)
"""


@contextmanager
def holders(daemon, steps):
    """Run engines that got as far as each of the steps; give a function that kills them all."""
    command = [sys.executable, "-c", HOLDERS, str(daemon.socket), *steps]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    parent = subprocess.Popen(command, text=True, start_new_session=True, **pipes)
    assert [parent.stdout.readline() for _ in steps] == ["holding\n"] * len(steps)

    def kill():
        parent.stdin.write("k")
        parent.stdin.flush()
        assert parent.stdout.readline() == "killed\n"

    try:
        yield kill
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.communicate()


def test_l27_l22_v45_whatever_an_engine_had_reached_ends_with_it(daemon, cache):
    """Killed right after any step, an engine leaves no registration, ring, lease or slot, and the log says it ended."""
    layout = cache.register(tiny_layout())
    store(cache, layout, 2)
    before = settled(cache).counters
    ended = len(logged(daemon, events.EngineLeft))
    with holders(daemon, STEPS) as kill:
        held = cache.status().counters
        assert held["engines"] - before["engines"] == len(STEPS)
        assert (held["leases"], held["units"]) == (1, 2)
        assert held["staging_bytes"] > before["staging_bytes"]
        kill()
        end = time.monotonic() + DEAD_SECONDS
        names = ("engines", "connections", "leases", "units", "staging_bytes", "jobs")
        while any(cache.status().counters[name] != before[name] for name in names):
            assert time.monotonic() < end, cache.status().counters
            time.sleep(0.01)
        settled(cache)
    reasons = {event.reason for event in logged(daemon, events.EngineLeft)[ended:]}
    assert reasons <= {"process ended", "connection closed"}
    assert len(logged(daemon, events.EngineLeft)) == ended + len(STEPS)
    assert check(cache, layout, 2) == TOKENS


def test_l07_sessions_that_were_on_disk_come_back_as_themselves(daemon, cache):
    """Long prompts go to disk and come back beside many short ones: each chunk of each is its own, or it is a miss."""
    layout = cache.register(tiny_layout())
    long, stop, wrong = 400, threading.Event(), []

    def short():
        chance = random.Random(7)
        with Cache.open(daemon.socket, staging_bytes=1 << 17) as mine:
            registered = mine.register(tiny_layout())
            while not stop.is_set():
                number = 60_000 + chance.randrange(200)
                try:
                    with suppress(CapacityError):
                        store(mine, registered, number)
                    check(mine, registered, number)
                except (AssertionError, KVLedgerError) as error:
                    wrong.append(error)
                    return

    others = [threading.Thread(target=short) for _ in range(3)]
    for thread in others:
        thread.start()
    try:
        found = []
        for turn in range(4):
            for number in range(50_000, 50_006):
                if turn == 0:
                    store(cache, layout, number, long)
                cache.offload(layout, prompt(number, long), boundary=long, drop_memory=True)
            found += [check(cache, layout, number, long) for number in range(50_000, 50_006)]
    finally:
        stop.set()
        for thread in others:
            thread.join()
    assert wrong == []
    assert set(found) == {long}


@pytest.mark.slow
def test_p41_the_daemon_itself_does_not_grow(daemon, cache):
    """Stored, evicted, written and forgotten over and over, prompts leave the daemon's own memory where it was."""
    layout = cache.register(tiny_layout())
    sizes = []
    for first in range(1_000_000, 1_000_000 + 16 * PROMPTS, PROMPTS):
        for number in range(first, first + PROMPTS):
            store(cache, layout, number)
            if number % 50 == 0:
                cache.offload(layout, prompt(number), boundary=TOKENS)
                for kind in (Kind.COMPRESSED_KV, Kind.UNCOMPRESSED_TAIL):
                    cache.evict(layout, prompt(number), boundary=TOKENS, kind=kind, disk=True)
        sizes.append(own_bytes(daemon.pid))
    # Four rounds fill pools and free lists. What is known of one prompt takes some 4 KB, so keeping it would show.
    assert sizes[-1] - sizes[4] < 1000 * PROMPTS * 12, sizes
