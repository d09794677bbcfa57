"""Clients that die while they hold leases and reservations, by the thousand: nothing of theirs stays behind.

A process that has everything imported forks the clients, since starting a Python for each would measure nothing but
that. Each one tells when it holds what it is to hold, and is then killed, stopped and continued, or killed while
stopped; every third is in the middle of storing and reading when it dies.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from kvledger import Cache
from kvledger.testing import Daemon
from support.promises import assert_judged, assert_kept
from support.tiny import check, store, tiny_layout

SETTINGS = {"arena_bytes": "16MiB", "ring_bytes": "2GiB"}
WAVE = 40
STORED = 5
WAYS = ((signal.SIGKILL,), (signal.SIGSTOP, signal.SIGCONT, signal.SIGKILL), (signal.SIGSTOP, signal.SIGKILL))

NURSERY = """
import os, signal, sys
sys.path.insert(0, "tests")
from kvledger import Cache
from kvledger.errors import KVLedgerError
from support.tiny import check, prompt, store, tiny_layout

def live(number, caches):
    held = []
    for _ in range(caches):
        cache = Cache.open(sys.argv[1], staging_bytes=1 << 16, timeout=60)
        layout = cache.register(tiny_layout())
        held.append((cache, cache.acquire(layout, [*prompt(number % 5), 7])))
    unit = cache.reserve(layout, prompt(10_000 + number), boundary=50)
    os.write(1, b"%d\\n" % os.getpid())
    while number % 3 == 0:
        try:
            store(cache, layout, 20_000 + number)
            check(cache, layout, number % 5)
        except KVLedgerError:
            pass
    signal.pause()

signal.signal(signal.SIGCHLD, signal.SIG_IGN)
for line in sys.stdin:
    first, count, caches = map(int, line.split())
    for number in range(first, first + count):
        if os.fork() == 0:
            live(number, caches)
            os._exit(1)
"""


@contextmanager
def nursery(daemon):
    """Run the process that forks clients; give a function that makes a wave of them and returns their pids."""
    command = [sys.executable, "-c", NURSERY, str(daemon.socket)]
    with (daemon.directory / "clients.log").open("wb") as errors:
        forks = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
        )

    def wave(first, count, caches=1):
        forks.stdin.write(f"{first} {count} {caches}\n")
        forks.stdin.flush()
        return [int(forks.stdout.readline()) for _ in range(count)]

    try:
        yield wave
    finally:
        os.killpg(forks.pid, signal.SIGKILL)
        forks.communicate()


def die(pid, way):
    """End one client in one of the ways."""
    for number in way:
        os.kill(pid, number)


def settled(cache, seconds=60.0):
    """Wait until no lease and no reservation is left, and return the daemon's numbers."""
    end = time.monotonic() + seconds
    while True:
        counters = cache.status().counters
        if not counters["leases"] and not counters["units"] and counters["connections"] == 1:
            return counters
        assert time.monotonic() < end, f"{counters['leases']} leases, {counters['units']} reservations stay behind"
        time.sleep(0.02)


@pytest.mark.parametrize("deaths", [80, pytest.param(4000, marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
def test_dead_clients_leave_nothing(deaths):
    """After each wave of deaths leases, reservations and rings are gone, and what was stored is whole."""
    with (
        Daemon(memory="256MiB", settings=SETTINGS) as daemon,
        Cache.open(daemon.socket) as cache,
        nursery(daemon) as wave,
    ):
        layout = cache.register(tiny_layout())
        for number in range(STORED):
            store(cache, layout, number)
        before = settled(cache)
        for first in range(0, deaths, WAVE):
            pids = wave(first, WAVE)
            held = cache.status().counters
            assert min(held["leases"], held["units"]) >= WAVE
            for place, pid in enumerate(pids):
                die(pid, WAYS[place % len(WAYS)])
            counters = settled(cache)
            assert counters["staging_bytes"] == before["staging_bytes"]
        assert_kept(range(STORED), [number for number in range(STORED) if check(cache, layout, number) == 50])
        assert_judged(counters["decision_faults"] == 0, "a decision failed")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_thousand_engines_end_at_once():
    """A thousand connected engines that each hold a lease end in one moment, and the cache serves on."""
    with (
        Daemon(memory="256MiB", settings=SETTINGS) as daemon,
        Cache.open(daemon.socket, timeout=60) as cache,
        nursery(daemon) as wave,
    ):
        layout = cache.register(tiny_layout())
        for number in range(STORED):
            store(cache, layout, number)
        pids = wave(1, WAVE, caches=1000 // WAVE)
        assert cache.status().counters["connections"] == 1001
        for pid in pids:
            die(pid, (signal.SIGKILL,))
        settled(cache, 60.0)
        assert_kept(range(STORED), [number for number in range(STORED) if check(cache, layout, number) == 50])
