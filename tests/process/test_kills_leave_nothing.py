"""Five daemons killed one after the other leave nothing behind, and no cap is ever passed on the way."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from kvledger import Cache
from kvledger.testing import Daemon
from support.soak.measures import Held, held_by, parent_of, size_of
from support.tiny import check, store, tiny_layout

MIB = 1 << 20
MEMORY = 8 * MIB
RING = 64 * MIB
SEGMENT = 256 << 10
KILLS = 5
STORED = 230
"""Prompts of 40 KiB: more than memory holds, so that it is full whenever the daemon is killed."""


def within_caps(counters):
    """Tell whether a status is within its caps."""
    live = sum(size for name, size in counters.items() if name.startswith("live_bytes."))
    return live <= counters["arena_bytes"] <= MEMORY


class Life(NamedTuple):
    """What a daemon held at the end of its life: what the kernel says, its arenas, and the bytes of the log."""

    held: Held
    arenas: int
    log_bytes: int


def life(daemon, first):
    """Fill memory from one connection, look up what is left, and measure; every look is within the caps."""
    with Cache.open(daemon.socket, timeout=60) as cache:
        layout = cache.register(tiny_layout())
        for number in range(first, first + STORED):
            store(cache, layout, number)
            if number % 50 == 0:
                assert within_caps(cache.status().counters)
        assert check(cache, layout, first + STORED - 1) == 50
        counters = cache.status().counters
        assert within_caps(counters)
        held = held_by([daemon.pid, parent_of(daemon.pid)])
    return Life(held, counters["arenas"], size_of(daemon.log_dir))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_five_kills_leave_nothing():
    """Memory of its own, descriptors and shared memory are after five kills as after one, and the log grows evenly."""
    settings = {"arena_bytes": "1MiB", "restart_seconds": 0, "log_segment_bytes": "256KiB"}
    with Daemon(memory=f"{MEMORY // MIB}MiB", settings=settings) as daemon:
        lives = [life(daemon, 0)]
        for number in range(1, KILLS + 1):
            daemon.kill()
            daemon.wait_ready()
            lives.append(life(daemon, number * STORED))
    second, last = lives[1], lives[-1]
    assert last.held.descriptors == second.held.descriptors
    assert last.held.memfds == last.arenas + 1, "the arenas, and the ring of the one connection"
    assert last.held.shm_bytes <= 1.02 * MEMORY + RING
    assert last.held.rss_bytes <= 1.2 * second.held.rss_bytes
    assert last.log_bytes - lives[-2].log_bytes <= 1.5 * (second.log_bytes - lives[0].log_bytes) + SEGMENT
