"""Topologies with real processes: which deaths a captured graph's memory survives, and which end it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from kvledger import Cache, Kind
from kvledger.errors import CallerError, RecaptureError, ServiceError, TopologyLostError
from kvledger.testing import Daemon
from kvledgerd.audit.object_life import object_life
from kvledgerd.audit.stored import list_objects
from kvledgerd.audit.topologies import topologies
from process.test_device_pools import Device
from support.tiny import content, prompt, store, tiny_layout

TOKENS = 50

ENGINE = """
import sys, time
sys.path[:0] = sys.argv[1:2]
from kvledger import Cache
from support.tiny import store, prompt, tiny_layout
cache = Cache.open(sys.argv[2], engine=bytes.fromhex(sys.argv[3]))
layout = cache.register(tiny_layout())
store(cache, layout, 1)
with cache.acquire(layout, [*prompt(1), 7]) as hit:
    topology = cache.register_topology(hit)
print(topology.number, flush=True)
time.sleep(600)
"""


@contextmanager
def engine(daemon: Daemon, key: bytes):
    """An engine in a process of its own that has captured a graph over prompt 1 and says nothing more."""
    tests = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", ENGINE, tests, str(daemon.socket), key.hex()]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        ready, _, _ = select.select([process.stdout], [], [], 60)
        assert ready, "the engine said nothing"
        assert int(process.stdout.readline()) > 0
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def until(cache: Cache, topologies: int) -> None:
    """Wait until the daemon counts so many topologies."""
    end = time.monotonic() + 60
    while cache.status().counters["topologies"] != topologies:
        assert time.monotonic() < end, f"the daemon never counted {topologies} topologies"
        time.sleep(0.02)


def evict(cache: Cache, layout, seed: int) -> tuple[int, int]:
    """Ask for the eviction of a prompt's rows; return how many copies went and how many were kept."""
    answer = cache.evict(layout, prompt(seed, TOKENS), kind=Kind.COMPRESSED_KV, boundary=TOKENS)
    return answer.dropped, answer.kept


def test_a_killed_daemon_leaves_a_graph_its_memory():
    """After SIGKILL the same addresses hold the same bytes, the pins stand, and the engine may change and drop."""
    with Daemon(memory="64MiB") as daemon, Cache.open(daemon.socket, timeout=60) as cache:
        layout = cache.register(tiny_layout())
        store(cache, layout, 1)
        with cache.acquire(layout, [*prompt(1), 7]) as hit:
            topology = cache.register_topology(hit)
        graph = [(handle, handle.buffer) for handle in topology]
        assert len(graph) == topology.objects == 5
        daemon.kill()
        for handle, view in graph:  # a graph does not notice
            assert bytes(view) == content(1, handle.group, handle.first_token, handle.length)
        topology.refresh()
        topology.check()
        assert topology.lost == 0
        assert evict(cache, layout, 1) == (0, 4)
        store(cache, layout, 2)
        with topology.recapture() as window, cache.acquire(layout, [*prompt(2), 7]) as other:
            window.replace(other)
        assert {bytes(h.buffer)[:9] for h in topology} == {b"prompt 2 "}
        assert evict(cache, layout, 1) == (4, 0)
        topology.drop()
        topology.drop()
        assert evict(cache, layout, 2) == (4, 0)
        with pytest.raises(TopologyLostError):
            topology.check()
        told_by_the_log(daemon, topology.number)


def told_by_the_log(daemon: Daemon, number: int) -> None:
    """The audit tells the topology's life, and that of an object that it released when it was captured anew."""
    (record,) = topologies(daemon.data_dir)
    assert (record.number, record.objects) == (number, 5)
    assert [(one.what, one.detail) for one in record.entries] == [
        ("registered", "5 objects, by engine 2"),
        ("recapture opened", ""),
        ("changed", "5 objects added, 0 at a new address, 5 released"),
        ("recapture closed", ""),
        ("ended", "dropped by its owner"),
    ]
    assert [pid for pid, _ in record.processes] == [os.getpid()]
    names = [name for name, *_ in list_objects(daemon.data_dir)]
    first, last = (
        [one.detail for one in object_life(daemon.data_dir, name).entries if one.what in {"pinned", "released"}]
        for name in (min(names), max(names))
    )
    anew, by = f"by topology {number}, captured anew", f"by topology {number}"
    assert first == [f"{by} of engine 2", anew]
    assert last == [anew, f"{by}: dropped by its owner"]


@pytest.mark.slow
def test_the_end_of_an_engine_ends_its_topologies_and_nothing_else_does():
    """A stopped engine keeps its pins though it is silent, and a killed daemon keeps them too; SIGKILL ends them."""
    key = os.urandom(16)
    with (
        Daemon(memory="64MiB", settings={"silence_seconds": 1}) as daemon,
        Cache.open(daemon.socket, timeout=60) as cache,
        engine(daemon, key) as process,
    ):
        layout = cache.register(tiny_layout())
        process.send_signal(signal.SIGSTOP)
        time.sleep(2.5)  # more than the second after which it counts as silent
        assert evict(cache, layout, 1) == (0, 4)
        daemon.kill()
        until(cache, 1)
        assert evict(cache, layout, 1) == (0, 4)
        process.kill()
        until(cache, 0)
        assert evict(cache, layout, 1) == (4, 0)


def test_a_new_connection_of_the_engine_owns_its_topologies():
    """Who closes the cache and opens another with the same engine id finds them, and nobody else does."""
    key = os.urandom(16)
    with Daemon(memory="64MiB") as daemon:
        with Cache.open(daemon.socket, engine=key) as first:
            layout = first.register(tiny_layout())
            store(first, layout, 1)
            with first.acquire(layout, [*prompt(1), 7]) as hit:
                topology = first.register_topology(hit, groups=["full"])
            assert topology.objects == 4
        with Cache.open(daemon.socket, engine=key) as again, Cache.open(daemon.socket) as stranger:
            assert stranger.topologies() == []
            (found,) = again.topologies()
            assert (found.number, found.objects, found.lost) == (topology.number, 4, 0)
            found.drop()
            assert again.topologies() == []


def test_a_worker_captures_over_what_its_scheduler_looked_up():
    """The hit is passed on as bytes; its lease may be released once the worker has registered, and both may drop it."""
    key = os.urandom(16)
    with (
        Daemon(memory="64MiB") as daemon,
        Cache.open(daemon.socket, engine=key) as scheduler,
        Cache.open(daemon.socket, engine=key) as worker,
    ):
        layout = scheduler.register(tiny_layout())
        worker.register(tiny_layout())
        store(scheduler, layout, 1)
        with scheduler.acquire(layout, [*prompt(1), 7]) as hit, worker.attach(hit.export()) as attached:
            topology = worker.register_topology(attached)
        for handle in topology:
            assert bytes(handle.buffer) == content(1, handle.group, handle.first_token, handle.length)
        assert evict(scheduler, layout, 1) == (0, 4)
        (same,) = scheduler.topologies()
        same.drop()
        assert evict(scheduler, layout, 1) == (4, 0)
        topology.drop()


def test_refusals_name_what_is_wrong():
    """A change outside of the window is refused, and so is a second window inside of one."""
    with Daemon(memory="64MiB") as daemon, Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        store(cache, layout, 1)
        with cache.acquire(layout, [*prompt(1), 7]) as hit:
            topology = cache.register_topology(hit)
            with topology.recapture() as window:
                pass
            with pytest.raises(RecaptureError):
                window.add(hit)
            with topology.recapture(), pytest.raises(RecaptureError), topology.recapture():
                pytest.fail("a window was opened twice")
            topology.drop()


def test_a_graph_over_device_pages_outlives_the_daemon():
    """After SIGKILL the pool is found again with what the graph reads, and not under the number of a new one."""
    with Daemon(memory="64MiB") as daemon, Cache.open(daemon.socket, timeout=60) as cache:
        layout = cache.register(tiny_layout())
        device = Device(cache, layout)
        device.put(1)
        with cache.acquire(layout, [*prompt(1), 7]) as hit:
            topology = cache.register_topology(hit)
        places = [handle.device for handle in topology]
        assert {place.pool for place in places} == {device.pool.number}
        daemon.kill()
        topology.refresh()
        with pytest.raises(CallerError, match=f"device pool {device.pool.number}"):
            Device(cache, layout)
        found = Device(cache, layout, again=device.pool.number)
        assert (found.pool.number, found.pool.kept) == (device.pool.number, 5)
        with cache.acquire(layout, [*prompt(1), 7]) as hit:
            assert [handle.device[:5] for handle in hit] == [place[:5] for place in places]
        topology.check()
        with pytest.raises(ServiceError, match="topologies keep 5 copies"):
            found.pool.drop()
        topology.drop()
        found.pool.drop()
