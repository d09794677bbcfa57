"""Clocks that jump and daemons that stand still: no answer changes, and nobody loses anything for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from kvledger import Cache
from kvledger.testing import Daemon
from support.neighbour import TOKENS, Neighbour
from support.service_manager import Manager
from support.tiny import check, prompt, store, tiny_layout

DAY = 86_400


@pytest.mark.hostile("TI01")
@pytest.mark.slow
@pytest.mark.parametrize("jumps", [(DAY, -DAY), (-DAY, DAY)], ids=["forward and back", "back and forward"])
def test_a_clock_that_is_set_changes_no_answer(tmp_socket_dir, jumps):
    """A day forward or back, while leases are held and over a kill: all is hit, and the log verifies."""
    with Manager(tmp_socket_dir) as manager:
        manager.start()
        with Neighbour(manager) as neighbour:
            for jump in (*jumps, 0):
                hit = neighbour.cache.acquire(neighbour.layout, [*prompt(1), 7])
                with neighbour.unharmed():
                    manager.set_clock(jump)
                    hit.check()
                hit.release()
                neighbour.cache.offload(neighbour.layout, prompt(2), boundary=TOKENS)
            manager.kill()
            manager.set_clock(jumps[1])
            manager.start()
            with neighbour.unharmed():
                neighbour.is_served()
    command = [sys.executable, "-m", "kvledgerd.cli", "log", "verify", "--data", str(manager.data_dir)]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.hostile("TI02")
@pytest.mark.slow
def test_a_daemon_that_stood_still_for_half_a_minute_takes_nothing():
    """Stopped for 30 seconds, it answers what waited and calls nobody silent, though all were silent for it."""
    with (
        Daemon(memory="16MiB", settings={"arena_bytes": "1MiB", "silence_seconds": 5}) as daemon,
        Cache.open(daemon.socket, staging_bytes=1 << 17, timeout=90) as cache,
        Neighbour(daemon) as neighbour,
    ):
        layout = cache.register(tiny_layout())
        store(cache, layout, 1)
        hit = cache.acquire(layout, [*prompt(1), 7])
        found = []
        os.kill(daemon.pid, signal.SIGSTOP)
        waiting = threading.Thread(target=lambda: found.append(check(cache, layout, 1)))
        waiting.start()
        time.sleep(30)
        os.kill(daemon.pid, signal.SIGCONT)
        waiting.join()
        assert found == [TOKENS]
        for _ in range(500):
            neighbour.is_served()
        hit.check()
        hit.release()
        assert daemon.wait_ready().incarnation == 1
