"""The disk through a real daemon: asking without waiting, joining, and what a client that dies leaves behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kvledger import Cache
from kvledger.testing import Daemon
from support.tiny import check, prompt, store, tiny_layout

TOKENS = 800
WAITER = """
import sys
from kvledger import Cache
from support.tiny import prompt, tiny_layout
cache = Cache.open(sys.argv[1])
known = cache.register(tiny_layout())
hits = [cache.acquire(known, [*prompt(seed, {tokens}), 7], wait=0) for seed in range(20)]
print(sum(hit.pending is not None for hit in hits), flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def daemon():
    """A daemon for all tests, each with prompts of its own."""
    with Daemon(memory="64MiB") as started:
        yield started


def to_disk(cache, known, seed: int) -> list[int]:
    """Store a prompt, leave it on disk alone, and return it with one token more."""
    store(cache, known, seed, TOKENS)
    cache.offload(known, prompt(seed, TOKENS), boundary=TOKENS, drop_memory=True)
    return [*prompt(seed, TOKENS), 7]


def counters(cache, job: str) -> dict[str, int]:
    """Return the numbers of one sort of work over all kinds."""
    found: dict[str, int] = {}
    for name, number in cache.status().counters.items():
        what = name.partition(".")[0].removeprefix(f"{job}_")
        found[what] = found.get(what, 0) + number
    return found


def until(done, what: str) -> None:
    """Wait until something holds."""
    end = time.monotonic() + 60
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.005)


def is_idle(cache) -> bool:
    """Whether nothing is being written, nor waits for it."""
    counters = cache.status().counters
    return not counters["offload_queued.DISK_PREFIX"] + counters["offload_running.DISK_PREFIX"]


def test_asking_without_waiting_answers_at_once_and_is_a_hit_in_the_end(daemon):
    """With wait=0 each call returns what is in memory and the restore's progress; once verified it is a hit."""
    with Cache.open(daemon.socket) as cache:
        known = cache.register(tiny_layout())
        words = to_disk(cache, known, 100)
        jobs, done = set(), [0]
        with cache.acquire(known, words, wait=0) as first:
            assert not first
            assert first.pending is not None
            assert "pending: restore" in first.why
            assert first.pending.total_bytes == 50 * 8192 + 8192
        while (hit := cache.acquire(known, words, wait=0)).pending:
            jobs.add(hit.pending.job)
            done.append(hit.pending.done)
            hit.release()
        hit.release()
        assert jobs <= {first.pending.job}
        assert done == sorted(done)
        assert check(cache, known, 100, TOKENS) == TOKENS


def test_pending_takes_what_lies_in_memory_under_a_lease(daemon):
    """While the longer boundary is read the shorter one is handed out, and stays readable under its lease."""
    with Cache.open(daemon.socket) as cache:
        known = cache.register(tiny_layout())
        words = to_disk(cache, known, 101)
        with cache.reserve(known, words, boundary=16) as unit:
            for slot in unit.objects:
                if not slot.present:
                    unit.put(slot, bytes(slot.length))
        with cache.acquire(known, words[:17]) as short:
            assert short.tokens == 16
        with cache.acquire(known, words, wait=0) as hit:
            assert hit.tokens in {16, TOKENS}
            assert (hit.pending is None) == (hit.tokens == TOKENS)
            assert len([bytes(handle.buffer) for handle in hit]) >= 2


def test_a_boundary_on_disk_says_what_reading_it_costs(daemon):
    """The cost is all bytes of that boundary while it lies on disk, and none once it is in memory."""
    with Cache.open(daemon.socket) as cache:
        known = cache.register(tiny_layout())
        words = to_disk(cache, known, 300)
        with cache.acquire(known, words, wait=0) as miss:
            assert not miss
            size, seconds = miss.restore_cost
        with cache.acquire(known, words, wait=60) as hit:
            assert (size, seconds >= 0) == (sum(len(handle.buffer) for handle in hit), True)
            assert hit.restore_cost is None


def test_a_restore_is_read_once_however_many_wait(daemon):
    """Twenty waiting look-ups of one prompt are one restore of its objects, and all of them are hits."""
    with Cache.open(daemon.socket) as cache:
        known = cache.register(tiny_layout())
        to_disk(cache, known, 102)
        before = cache.status().counters
        with ThreadPoolExecutor(20) as threads:
            assert list(threads.map(lambda _: check(cache, known, 102, TOKENS), range(20))) == [TOKENS] * 20
        after = cache.status().counters
        kinds = ("COMPRESSED_KV", "UNCOMPRESSED_TAIL")
        assert [after[f"restore_done.{k}"] - before[f"restore_done.{k}"] for k in kinds] == [1, 1]


def test_a_client_that_dies_while_it_waits_leaves_nothing(daemon):
    """SIGKILL of an engine with restores under way ends its jobs, frees their slots, and hurts nobody else."""
    with Cache.open(daemon.socket) as cache:
        known = cache.register(tiny_layout())
        for seed in range(20):
            to_disk(cache, known, seed)
        _kill_while_waiting(daemon.socket)
        until(lambda: cache.status().counters["engines"] == 1, "the engine ended")
        until(lambda: cache.status().counters["jobs"] == 0, "its jobs ended")
        slots = ("queued", "running", "bytes")
        until(lambda: not any(counters(cache, "restore")[one] for one in slots), "its slots are free")
        assert all(check(cache, known, seed, TOKENS) == TOKENS for seed in range(20))


def _kill_while_waiting(socket) -> None:
    """Let another process ask for all twenty prompts and kill it while it may still be told that they are pending."""
    command = [sys.executable, "-c", WAITER.format(tokens=TOKENS), str(socket)]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as waiter:
        assert waiter.stdout is not None
        assert int(waiter.stdout.readline()) > 0
        with contextlib.suppress(ProcessLookupError):
            os.kill(waiter.pid, signal.SIGKILL)


def test_memory_that_fills_is_backed_by_the_disk():
    """Of prompts that are twice the memory more come back than fit into it, though nobody asked for an offload."""
    with Daemon(memory="16MiB", settings={"disk_write": "on_evict"}) as daemon, Cache.open(daemon.socket) as cache:
        known = cache.register(tiny_layout())
        for seed in range(80):
            store(cache, known, seed, TOKENS)
            until(lambda: is_idle(cache), "the disk keeps up")
        fit = (16 << 20) // (51 * 8192)
        assert sum(check(cache, known, seed, TOKENS) == TOKENS for seed in range(80)) > fit + 20


@pytest.mark.slow
def test_a_disk_that_fails_is_left_alone_until_it_answers():
    """Records that are gone stop restores after two failures; look-ups say why, and a probe ends it."""
    settings = {"disk_write": "asked", "degrade_failures": 2, "probe_seconds": 2}
    with Daemon(memory="64MiB", settings=settings) as daemon, Cache.open(daemon.socket) as cache:
        known = cache.register(tiny_layout())
        words = [to_disk(cache, known, seed) for seed in range(3)]
        store(cache, known, 9)
        for file in (daemon.data_dir / "data").glob("*.seg"):
            os.truncate(file, 4096)
        for one in words[:2]:
            assert not cache.acquire(known, one, wait=5)
        with cache.acquire(known, words[2], wait=5) as missed:
            assert "2 restores failed within 60 s" in missed.why
            assert [cut.code.value for cut in missed.cuts if cut.end == TOKENS] == ["degraded"]
        assert check(cache, known, 9) == 50
        until(lambda: cache.status().counters["degraded"] == 0, "a probe ends it")


def test_an_orderly_stop_keeps_the_cache_and_a_start_brings_it_back():
    """What only memory had is ready in the next daemon before anybody asks; a command brings things back as well."""
    with Daemon(memory="64MiB", settings={"disk_write": "on_evict", "warm_percent": 50}) as daemon:
        with Cache.open(daemon.socket) as cache:
            known = cache.register(tiny_layout())
            for seed in range(5):
                store(cache, known, seed)
            assert cache.status().counters["disk_bytes"] == 0
        assert daemon.stop() == 0
        daemon.start()
        daemon.wait_ready()
        with Cache.open(daemon.socket) as cache:
            known = cache.register(tiny_layout())
            until(lambda: cache.status().counters["warm_prefixes"] == 5, "the warm-up ends")
            for seed in range(5):
                with cache.acquire(known, [*prompt(seed), 7], restore=False) as hit:
                    assert hit.tokens == 50
            cache.offload(known, prompt(0), boundary=50, drop_memory=True)
            assert cache.warm(layout=known.digest[:2]).total == 5
            until(lambda: cache.status().counters["warm_prefixes"] == 6, "the command brings it back")
