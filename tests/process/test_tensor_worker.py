"""The tensor worker of a real daemon: what becomes of its jobs, and of it, when one of the two dies or hangs."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import torch

from kvledger import Cache
from kvledger.testing import Daemon, DaemonError
from process.test_conversions import expected, prompt, store
from support.formats import v4_layout

END = 448
SPLIT, BY_ROWS = v4_layout(), v4_layout(split=False, csa_rows=16)


@pytest.fixture(scope="module")
def daemon():
    """Give a daemon whose jobs on tensors may take two seconds."""
    with Daemon(memory="64MiB", settings={"arena_bytes": "1MiB", "tensor_seconds": 2}) as running:
        yield running


@pytest.fixture
def cache(daemon):
    """Give the cache of the engine that asks; whatever died before, the next process may start at once."""
    daemon.wait_ready()
    with Cache.open(daemon.socket, name="reader") as opened:
        yield opened


def stored(cache: Cache, seed: int) -> list[int]:
    """Commit a boundary in split pages and return its prompt."""
    tokens = [1_000_000 + seed, *range(END - 1)]
    with cache.reserve(cache.register(SPLIT), tokens, boundary=END) as unit:
        for slot in unit.objects:
            unit.put(slot, os.urandom(slot.length))
    return tokens


def converted(cache: Cache, tokens: list[int], wait: float = 20.0) -> tuple[int, str]:
    """Return how many tokens the other page format finds, and why no more."""
    with cache.acquire(cache.register(BY_ROWS), [*tokens, 7], wait=wait) as hit:
        return hit.tokens, hit.why


def process_of(daemon: Daemon) -> int:
    """Return the process id of the daemon's tensor worker."""
    children = (int(pid) for path in Path(f"/proc/{daemon.pid}/task").glob("*/children") for pid in _words(path))
    return next(pid for pid in children if b"kvledgerd.tensors" in Path(f"/proc/{pid}/cmdline").read_bytes())


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="ascii").split()
    except OSError:
        return []  # a thread that ended meanwhile


@contextmanager
def held(pid: int):
    """Stop a process for a `with` block, at the end of which it may be gone."""
    os.kill(pid, signal.SIGSTOP)
    yield
    if Path(f"/proc/{pid}").exists():
        os.kill(pid, signal.SIGCONT)


def gone(pid: int, seconds: float = 60.0) -> bool:
    """Tell whether a process ends within some time."""
    end = time.monotonic() + seconds
    while Path(f"/proc/{pid}").exists() and time.monotonic() < end:
        time.sleep(0.01)
    return not Path(f"/proc/{pid}").exists()


def test_tensors_are_worked_on_by_a_process_without_torch(daemon, cache):
    """A conversion is done in a process of its own; on a CPU neither it nor the daemon loads torch."""
    before = cache.status().counters
    assert converted(cache, stored(cache, 1))[0] == END
    counters = cache.status().counters
    for pid in (daemon.pid, process_of(daemon)):
        assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text(encoding="utf-8")

    assert counters["tensor_process"] == 1
    assert counters["tensor_gpu"] == 0
    assert counters["tensor_convert_jobs"] == before["tensor_convert_jobs"] + 1
    assert counters["tensor_convert_bytes"] > before["tensor_convert_bytes"]


def test_a_process_killed_over_its_job_costs_a_miss(daemon, cache):
    """Whoever waits for the job gets a miss with the reason at once; the next look-up is a hit, by a new process."""
    assert converted(cache, stored(cache, 2))[0] == END
    tokens, killed = stored(cache, 3), process_of(daemon)
    with held(killed):
        timer = threading.Timer(0.2, os.kill, (killed, signal.SIGKILL))
        timer.start()
        tokens_found, why = converted(cache, tokens)
        timer.join()
    assert tokens_found == 0
    assert "the tensor worker is gone: it has died" in why

    assert converted(cache, tokens)[0] == END
    assert process_of(daemon) != killed
    assert cache.status().counters["tensor_lost"] >= 1


def test_a_process_that_hangs_is_ended(daemon, cache):
    """A job that takes longer than it may is a miss, and what hung over it is dead before its memory is used again."""
    assert converted(cache, stored(cache, 4))[0] == END
    tokens, hung = stored(cache, 5), process_of(daemon)
    with held(hung):
        tokens_found, why = converted(cache, tokens)
        assert gone(hung)
    assert tokens_found == 0
    assert "it did not answer within 2 s" in why
    assert converted(cache, tokens)[0] == END


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_kills_at_any_moment_make_no_wrong_hit(daemon, cache):
    """However far a job was when its process was killed, the look-up is a miss or finds the right bytes, always."""
    rng, found, tried = random.Random(5), [], 40
    for number in range(tried):
        tokens = prompt(100 + number)
        written = store(cache, SPLIT, tokens)
        pid = process_of(daemon) if number % 2 else 0
        timer = threading.Timer(rng.uniform(0.0, 0.01), kill, (pid,))
        timer.start()
        with cache.acquire(cache.register(BY_ROWS), [*tokens, 7]) as hit:
            read = {(one.group, one.first_token): (one.tokens, bytes(one.buffer)) for one in hit}
        timer.join()
        found.append(bool(read))
        for key, (count, data) in read.items():
            assert data == expected(SPLIT, BY_ROWS, key[0], count, written[key]), (number, key)
        wait_for_process(cache)
    assert 0 < sum(found) < tried


def kill(pid: int) -> None:
    """Kill a process that may be gone, none for 0."""
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_for_process(cache: Cache, seconds: float = 90.0) -> None:
    """Look up until a conversion succeeds, as it does when no pause is left."""
    end, number = time.monotonic() + seconds, time.monotonic_ns() % 1_000_000
    tokens = stored(cache, 10_000_000 + number)
    while converted(cache, tokens)[0] != END:
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_process_dies_with_its_daemon(daemon, cache):
    """A daemon that is killed takes the process with it, even a stopped one; the next daemon starts, with its hits."""
    tokens = stored(cache, 6)
    assert converted(cache, tokens)[0] == END
    orphan = process_of(daemon)
    with held(orphan):
        daemon.kill()
        assert gone(orphan)
    daemon.wait_ready()
    with Cache.open(daemon.socket, name="after") as after:
        assert converted(after, tokens)[0] == END
        assert converted(after, stored(after, 7))[0] == END
        assert process_of(daemon) != orphan


def test_a_daemon_that_is_told_to_stop_leaves_nothing(daemon):
    """After an orderly stop there is no process, and the lock of the data directory is free."""
    with Cache.open(daemon.socket, name="reader") as cache:
        assert converted(cache, stored(cache, 8))[0] == END
    left = process_of(daemon)
    assert daemon.stop() == 0
    assert not Path(f"/proc/{left}").exists()
    daemon.start()
    daemon.wait_ready()


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_device_that_is_not_there_is_refused_at_the_start():
    """The daemon ends with a line that names the setting, what lacks and what to do, and with the code for settings."""
    daemon = Daemon(memory="64MiB", settings={"tensor_device": "cuda:0"}, keeper=False)
    with pytest.raises(DaemonError, match=r"tensor_device: cuda:0 can not be used: .*or set cpu") as caught, daemon:
        pass
    assert '"code": 78' in str(caught.value)
