"""Device pools with a real daemon, and host buffers in the place of GPU pages: what an engine fills is its own.

There is no GPU here. A pool is a `bytearray` whose bytes this process alone writes, as an engine would on its device;
the daemon sees offsets, generations and fingerprints only.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from anyio import fail_after

from kvledger import AsyncCache, Cache, Kind
from kvledger.device_view import DevicePlace
from kvledger.errors import CallerError, CapacityError, CommitRefusedError, LeaseLost, ServiceError
from kvledger.testing import Daemon
from kvledger_kernels.fingerprint import fingerprint
from kvledgerd.audit.object_life import object_life
from kvledgerd.audit.stored import list_objects
from support.tiny import BLOCK, check, content, prompt, store, tiny_layout

TOKENS = 50
ADDRESS = 0x7F00_0000_0000

ENGINE = """
import sys, time
sys.path[:0] = sys.argv[1:2]
from kvledger import Cache
from process.test_device_pools import Device
from support.tiny import tiny_layout
cache = Cache.open(sys.argv[2], engine=bytes.fromhex(sys.argv[3]))
device = Device(cache, cache.register(tiny_layout()))
device.put(1)
print(device.pool.number, flush=True)
time.sleep(600)
"""


class Device:
    """An engine's device: a host buffer of pages, and a pool over it."""

    def __init__(self, cache: Cache, layout, size: int = 1 << 20, **fields) -> None:
        self.cache, self.layout = cache, layout
        self.memory = bytearray(size)
        self.pool = cache.device_pool("host:0", size, layout, **({"address": ADDRESS} | fields))

    def write(self, slot, data: bytes) -> int:
        """Write an object as a kernel would, and return its fingerprint."""
        self.memory[slot.offset : slot.offset + slot.length] = data
        return fingerprint(data)

    def put(self, seed: int, tokens: int = TOKENS):
        """Fill what the pool lacks of a prompt's end; return what was answered and what made room."""
        with self.pool.ask(prompt(seed, tokens), boundary=tokens) as unit:
            prints = [
                self.write(slot, content(seed, slot.group, slot.first_token, slot.length)) for slot in unit.missing
            ]
            return unit.filled(prints), unit.victims

    def read(self, place: DevicePlace) -> bytes:
        """Return an object's bytes, as a kernel that takes its address would see them."""
        assert place.address == ADDRESS + place.offset
        return bytes(self.memory[place.offset : place.offset + place.length])


@pytest.fixture(scope="module")
def daemon():
    """A daemon for all tests that do not end it."""
    with Daemon(memory="64MiB") as running:
        yield running


@pytest.fixture
def cache(daemon):
    """An engine."""
    with Cache.open(daemon.socket) as opened:
        yield opened


def hit_of(cache: Cache, layout, seed: int):
    """Look a stored prompt up."""
    return cache.acquire(layout, [*prompt(seed), 7])


def test_what_an_engine_fills_is_ready_for_it_alone(daemon, cache):
    """Handles tell pool, address, generation and fp64 and have no host buffer; another engine's look-up is a miss."""
    layout = cache.register(tiny_layout("alone"))
    device = Device(cache, layout)

    done, victims = device.put(1)

    assert (done.stored, victims) == (5, ())
    with hit_of(cache, layout, 1) as hit:
        assert hit.tokens == TOKENS
        for handle in hit:
            place = handle.device
            assert device.read(place) == content(1, handle.group, handle.first_token, handle.length)
            assert place.fp64 == handle.fp64 == fingerprint(device.read(place))
            assert (place.pool, place.generation) == (device.pool.number, handle.generation)
            with pytest.raises(CallerError, match="have no host buffer"):
                handle.buffer  # noqa: B018 - taking it is what fails
    with Cache.open(daemon.socket) as other:
        assert not hit_of(other, other.register(tiny_layout("alone")), 1)


def test_device_to_memory_and_back(daemon, cache):
    """An engine puts what lies on its device into memory, and another one copies it from there onto its own device."""
    layout = cache.register(tiny_layout("there and back"))
    device = Device(cache, layout)
    device.put(2)

    with hit_of(cache, layout, 2) as hit, cache.reserve(layout, prompt(2), boundary=TOKENS) as unit:
        there = {(handle.group, handle.first_token): device.read(handle.device) for handle in hit}
        for slot in unit.objects:
            unit.put(slot, there[slot.group, slot.first_token])

    with Cache.open(daemon.socket) as other:
        theirs = other.register(tiny_layout("there and back"))
        assert check(other, theirs, 2) == TOKENS
        second = Device(other, theirs)
        with hit_of(other, theirs, 2) as hit, second.pool.ask(prompt(2), boundary=TOKENS) as unit:
            there = {(handle.group, handle.first_token): bytes(handle.buffer) for handle in hit}
            prints = [second.write(slot, there[slot.group, slot.first_token]) for slot in unit.missing]
            hit.check()
            assert unit.filled(prints).stored == 5
        with hit_of(other, theirs, 2) as hit:
            assert all(handle.device.pool == second.pool.number for handle in hit)
    with hit_of(cache, layout, 2) as hit:  # each engine is told of its own device
        assert all(handle.device.pool == device.pool.number for handle in hit)


def test_what_makes_room_can_be_saved_before_it_is_overwritten(cache):
    """`victims` names copies that lie nowhere else; their bytes are there until the engine writes."""
    layout = cache.register(tiny_layout("victims"))
    device = Device(cache, layout, pages={"full": 8, "tail": 2})
    device.put(3)

    with device.pool.ask(prompt(4), boundary=TOKENS) as unit:
        saved = {}
        for one in unit.victims:
            data = bytes(device.memory[one.offset : one.offset + one.length])
            assert fingerprint(data) == one.fp64
            saved[one.group, data] = None
        prints = [device.write(slot, content(4, slot.group, slot.first_token, slot.length)) for slot in unit.missing]
        assert unit.filled(prints).stored == 5

    expected = [("full", BLOCK * block, 8192) for block in range(3)] + [("full", 48, 8192), ("tail", 50, 8192)]
    assert set(saved) == {(group, content(3, group, first, length)) for group, first, length in expected}
    assert not hit_of(cache, layout, 3)
    with hit_of(cache, layout, 4) as hit:
        assert hit.tokens == TOKENS


def test_a_lease_keeps_pages_from_being_given_again(cache):
    """While a hit is held its pages are neither given, freed nor dropped; afterwards handles of old bytes are stale."""
    layout = cache.register(tiny_layout("leased"))
    device = Device(cache, layout, pages={"full": 8, "tail": 2})
    device.put(5)

    with hit_of(cache, layout, 5) as hit:
        stale = list(hit)
        with pytest.raises(CapacityError, match="do not fit device pool"):
            device.pool.ask(prompt(6), boundary=TOKENS)
        kept = device.pool.free(prompt(5), kind=Kind.COMPRESSED_KV, whole=True)
        assert (kept.dropped, kept.kept) == (0, 4)
        with pytest.raises(ServiceError, match="is in use"):
            device.pool.drop()
        assert all(handle.is_current for handle in hit)
    device.put(6)
    assert not any(handle.is_current for handle in stale)
    freed = device.pool.free(prompt(6), kind=Kind.UNCOMPRESSED_TAIL, whole=True)
    assert (freed.dropped, freed.kept) == (1, 0)
    device.pool.drop()
    device.pool.drop()
    with pytest.raises(LeaseLost, match="is gone"):
        device.pool.ask(prompt(6), boundary=TOKENS)


def test_pages_that_are_not_filled_go_back(cache):
    """A block that is left without `filled` gives its pages back, by an exception too; speculative ends are refused."""
    layout = cache.register(tiny_layout("given back"))
    device = Device(cache, layout)

    with device.pool.ask(prompt(7), boundary=TOKENS) as unit:
        with pytest.raises(CommitRefusedError, match="49 tokens are settled"):
            unit.filled([0] * 5, settled=49)
        with pytest.raises(CallerError, match="fp64s of 5 objects are asked for"):
            unit.filled([0])
    with pytest.raises(ZeroDivisionError), device.pool.ask(prompt(7), boundary=TOKENS):
        raise ZeroDivisionError

    assert not hit_of(cache, layout, 7)
    assert cache.status().counters["device_units"] == 0


def test_memory_that_is_set_aside_is_refused_to_others(daemon, cache):
    """Memory that processes share has one name: who registers it again is refused, and told the field that differs."""
    layout = cache.register(tiny_layout("shared"))
    Device(cache, layout, memory=b"an exported handle")

    with Cache.open(daemon.socket) as other:
        theirs = other.register(tiny_layout("shared", weights="w2"))
        with pytest.raises(CallerError, match="weights_digest: stored 'w1', asked 'w2'"):
            Device(other, theirs, memory=b"an exported handle")
    with pytest.raises(CallerError, match="'rows' is no group of this layout"):
        Device(cache, layout, pages={"rows": 3}, address=1)


def test_a_killed_engine_leaves_no_pool(daemon):
    """SIGKILL of an engine drops its pool; who takes its id up again finds a miss."""
    key = os.urandom(16)
    tests = str(Path(__file__).parents[1])
    command = [sys.executable, "-c", ENGINE, tests, str(daemon.socket), key.hex()]
    with Cache.open(daemon.socket) as cache:
        before = cache.status().counters["device_pools"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            ready, _, _ = select.select([process.stdout], [], [], 60)
            assert ready, "the engine said nothing"
            assert int(process.stdout.readline()) > 0
            counters = cache.status().counters
            assert (counters["device_pools"], counters["device_copies"] >= 5) == (before + 1, True)
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()
        end = time.monotonic() + 60
        while cache.status().counters["device_pools"] != before:
            assert time.monotonic() < end, "the pool outlived its engine"
            time.sleep(0.02)
    with Cache.open(daemon.socket, engine=key) as again:
        assert not hit_of(again, again.register(tiny_layout()), 1)


def test_a_restarted_daemon_has_no_pools_and_takes_them_anew():
    """What lay on a device is a miss after the daemon's SIGKILL; memory is there, and the pool is registered anew."""
    with Daemon(memory="64MiB") as daemon, Cache.open(daemon.socket, timeout=60) as cache:
        layout = cache.register(tiny_layout())
        device = Device(cache, layout)
        device.put(1)
        store(cache, layout, 2)
        names = {state: name for name, _, _, state in list_objects(daemon.data_dir)}
        assert sorted(names) == ["COMMITTED", f"RESIDENT in device pool {device.pool.number}"]
        daemon.kill()
        assert check(cache, layout, 2) == TOKENS
        assert not hit_of(cache, layout, 1)
        with pytest.raises(LeaseLost, match="register the pool again"):
            device.pool.ask(prompt(1), boundary=TOKENS)
        again = Device(cache, layout)
        assert again.pool.number > device.pool.number
        again.put(1)
        with hit_of(cache, layout, 1) as hit:
            assert hit.tokens == TOKENS
        life = object_life(daemon.data_dir, max(names.items())[1]).entries
        assert [one.what for one in life] == ["resident", "lost", "daemon started"]
        assert life[1].detail == f"with device pool {device.pool.number}: the daemon was started anew"


@pytest.mark.asyncio
async def test_the_asynchronous_client_fills_a_pool(daemon):
    """The same with `await`."""
    with fail_after(60):
        async with await AsyncCache.open(daemon.socket) as cache:
            layout = await cache.register(tiny_layout("await"))
            pool = await cache.device_pool("host:0", 1 << 20, layout)
            async with await pool.ask(prompt(1), boundary=TOKENS) as unit:
                await unit.filled([1, 2, 3, 4, 5])
            async with await cache.acquire(layout, [*prompt(1), 7]) as hit:
                assert [handle.device.fp64 for handle in hit] == [1, 2, 3, 4, 5]
            await pool.drop()
