"""SIGKILL of the daemon at random moments while two engines write: what was acknowledged is there afterwards."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvledger import Cache
from kvledger.testing import Daemon, DaemonError
from kvledger_storage.events import decode
from kvledger_storage.log import RealLogIO, read_events, verify
from kvledgerd.core.apply import apply
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.state import State
from support.tiny import check, tiny_layout

SETTINGS = {"arena_bytes": "16MiB", "log_segment_bytes": "256KiB", "snapshot_events": 2000, "restart_seconds": 0}

# Stores prompt after prompt, and writes down the number of each one that was acknowledged. Whatever goes wrong with one
# is not acknowledged, and the next one is tried. None is evicted: 1 GiB holds 26,000 of them.
MOST = 12_000
ENGINE = """
import sys, time
sys.path.insert(0, "tests")
from kvledger import Cache
from kvledger.errors import KVLedgerError
from support.tiny import store, tiny_layout
socket, acknowledged, seed, step = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
with Cache.open(socket) as cache, open(acknowledged, "a", buffering=1) as note:
    layout = cache.register(tiny_layout())
    for seed in range(seed, seed + step * int(sys.argv[5]), step):
        try:
            store(cache, layout, seed)
        except KVLedgerError as error:
            print(type(error).__name__, error, file=sys.stderr)
        else:
            print(seed, file=note)
        time.sleep(0.005)
    time.sleep(3600)
"""


@contextmanager
def engines(daemon: Daemon, count: int) -> Iterator[list[Path]]:
    """Run engines that write without pause, from their first commit on; give the files of what was acknowledged."""
    notes = [daemon.directory / f"acknowledged-{number}" for number in range(count)]
    with (daemon.directory / "engines.log").open("wb") as errors:
        running = [
            subprocess.Popen(
                [sys.executable, "-c", ENGINE, str(daemon.socket), str(note), *map(str, (number, count, MOST))],
                stderr=errors,
            )
            for number, note in enumerate(notes)
        ]
    try:
        while not all(note.exists() and note.stat().st_size for note in notes):
            assert None in [engine.poll() for engine in running], (daemon.directory / "engines.log").read_text()
            time.sleep(0.02)
        yield notes
        assert [engine.poll() for engine in running] == [None] * count, (daemon.directory / "engines.log").read_text()
    finally:
        for engine in running:
            engine.kill()
            engine.wait()


def acknowledged(notes: list[Path]) -> list[int]:
    """Return the numbers of all prompts that were acknowledged; a line that a kill cut short does not count."""
    return [int(line) for note in notes if note.exists() for line in note.read_text().split("\n")[:-1]]


def replayed_digest(daemon: Daemon, seq: int) -> str:
    """Return the digest that a replay of the log reaches at `seq`."""
    state = State(CoreConfig())
    for logged in read_events(RealLogIO(), daemon.log_dir, through_seq=seq):
        apply(state, decode(logged.event).event)
    return f"{state.digest():016x}"


def kill_now(daemon: Daemon) -> None:
    """Kill the daemon wherever it is, and wait until the next one serves."""
    daemon.kill()
    daemon.wait_ready()


@pytest.mark.parametrize("kills", [5, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.timeout(900)
def test_nothing_acknowledged_is_lost(kills):
    """However often it was killed: every acknowledged prompt is read back byte by byte, and log and replay agree."""
    chance = random.Random(kills)
    with Daemon(memory="1GiB", settings=SETTINGS) as daemon:
        with engines(daemon, 2) as notes:
            for _ in range(kills):
                time.sleep(chance.uniform(0.05, 0.4))
                kill_now(daemon)
            while len(acknowledged(notes)) <= kills:
                time.sleep(0.02)
        kept = acknowledged(notes)
        with Cache.open(daemon.socket) as cache:
            layout = cache.register(tiny_layout())
            lost = [seed for seed in kept if check(cache, layout, seed) != 50]
            status = cache.status()
        assert daemon.stop() == 0

        assert lost == []
        assert status.incarnation == kills + 1
        assert status.counters["decision_faults"] == 0
        assert verify(daemon.log_dir).ok
        assert replayed_digest(daemon, status.seq) == status.digest


@pytest.mark.slow
def test_the_keeper_holds_through_a_crash_loop():
    """A daemon that is killed again and again while it starts comes back, and loses nothing that it had."""
    with Daemon(memory="64MiB", settings=SETTINGS) as daemon:
        with engines(daemon, 1) as notes:
            while len(acknowledged(notes)) < 3:
                time.sleep(0.02)
        kept = acknowledged(notes)
        for _ in range(5):
            kill_early(daemon)
        daemon.wait_ready()
        with Cache.open(daemon.socket) as cache:
            layout = cache.register(tiny_layout())

            assert [check(cache, layout, seed) for seed in kept] == [50] * len(kept)


def kill_early(daemon: Daemon) -> None:
    """Kill the daemon as soon as it has its lock, which is long before it serves."""
    while True:
        try:
            daemon.kill()
        except DaemonError:
            time.sleep(0.01)
        else:
            return


@pytest.mark.slow
def test_stopped_daemons_go_on():
    """A daemon that is stopped for a while and continued serves on, and nobody was told anything wrong."""
    with Daemon(memory="64MiB", settings=SETTINGS) as daemon:
        with engines(daemon, 2) as notes:
            pid = daemon.pid
            os.kill(pid, signal.SIGSTOP)
            time.sleep(1.0)
            os.kill(pid, signal.SIGCONT)
            before = len(acknowledged(notes))
            while len(acknowledged(notes)) < before + 5:
                time.sleep(0.02)
        kept = acknowledged(notes)
        with Cache.open(daemon.socket) as cache:
            layout = cache.register(tiny_layout())
            assert all(check(cache, layout, seed) == 50 for seed in kept)
        assert daemon.pid == pid
