"""Memory that was changed behind the daemon's back: refused with its reason, and nobody else is hurt."""

import time

import pytest

from kvledger import Cache, TopologyLostError
from kvledger.testing import Daemon
from support.damaged_memory import damage
from support.tiny import check, prompt, store, tiny_layout


def test_adopted_bytes_that_changed_cost_one_miss_and_no_daemon():
    """After a restart, each of three damaged prompts is refused as damaged, the fourth is a hit, the daemon lives."""
    with Daemon(memory="64MiB") as daemon, Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        for seed in range(4):
            store(cache, layout, seed)
        assert all(damage(daemon.pid, f"prompt {seed} tail at".encode()) for seed in range(3))
        daemon.kill()
        daemon.wait_ready()

        for seed in range(3):
            with cache.acquire(layout, [*prompt(seed), 7]) as hit:
                assert not hit
                assert "bytes_damaged" in hit.why
        assert check(cache, layout, 3) == 50
        assert cache.status().incarnation == 2
        assert cache.status().counters["decision_faults"] == 0


def test_damage_under_a_captured_graph_is_found_though_nobody_looks_it_up():
    """After a restart generations tell the engine that its graph must not be replayed, and so does the daemon."""
    with Daemon(memory="64MiB") as daemon, Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        store(cache, layout, 1)
        with cache.acquire(layout, [*prompt(1), 7]) as hit:
            topology = cache.register_topology(hit)
        topology.check()
        assert damage(daemon.pid, b"prompt 1 tail at")
        daemon.kill()
        daemon.wait_ready()
        deadline = time.monotonic() + 60
        while not topology.lost:
            assert time.monotonic() < deadline, "the damage was never found"
            topology.refresh()
        with pytest.raises(TopologyLostError, match="1 of 5 objects"):
            topology.check()
        assert cache.status().counters["topologies_broken"] == 1
        topology.drop()
