"""The drill: which step fails is what it says, what it had got is given back, and it recovers by itself."""

import asyncio

import pytest

from kvledger.errors import CapacityError
from kvledger.kinds import Kind
from kvledger.wire import replies, requests
from kvledger_storage.arena import Arena, ArenaIdentity
from kvledgerd.core.commands import Ask, EngineJoined
from kvledgerd.core.config import DRILL_TENANT
from kvledgerd.life import drill as module
from kvledgerd.life.drill import DRILL_LAYOUT, Drill
from kvledgerd.loop.refusals import failed
from kvledgerd.memory.arenas import ArenaTable
from kvledgerd.memory.rings import RingTable
from kvledgerd.tenants import tenant_digest
from support.shell import until

pytestmark = pytest.mark.asyncio
FULL = failed(CapacityError("LOG_FULL: the disk under the log is full", field="log", remedy="make room"))
RUN = replies.HandleRun(0, 0, 0, 16, 16, 1, 1, 0, 0, 4096, 7)
HIT = replies.Acquired(9, [replies.Offer(16, 0, b"", "exact", 0, [])], [RUN], 16, 16, [16], [16], [], [], 0)


class Bench:
    """A drill over a daemon of one arena whose answers a test may change."""

    def __init__(self):
        identity = ArenaIdentity(bytes(16), bytes(16), 1, tenant_digest(DRILL_TENANT), int(Kind.COMPRESSED_KV))
        self.arena = Arena.create(identity, 65536)
        self.arena.set_generations([(0, 1, 7)])
        arenas = ArenaTable()
        arenas.add(self.arena)
        self.rings = RingTable(cap_bytes=1 << 20, tenant_bytes=1 << 20, user_bytes=1 << 20)
        self.asked, self.posted, self.damage, self.late = [], [], False, asyncio.Event()
        self.before_silence = lambda: None
        self.answers = {
            requests.Register: replies.Registered(3, DRILL_LAYOUT.digest),
            requests.Reserve: replies.Reserved(5, b"\0"),
            requests.Put: replies.Done(),
            requests.Commit: replies.Committed(6, 1, 0),
            requests.Acquire: HIT,
            requests.Release: replies.Done(),
            requests.Evict: replies.Evicted(1),
        }
        self.drill = Drill(self.ask, self.posted.append, lambda *_: 4, self.rings, arenas, 60)

    async def ask(self, command):
        """Answer a command; a copy of the ring is what a put makes."""
        if isinstance(command, EngineJoined):
            return None
        assert (command.caller.tenant, command.caller.engine) == (DRILL_TENANT, 4)
        self.asked.append(type(command.body))
        if isinstance(command.body, requests.Put):
            await asyncio.to_thread(self.rings.get(0).reader.read_into, self.arena.view(0, 4096), 0)
            if self.damage:
                self.arena.view(17, 1)[:] = bytes([self.arena.view(17, 1)[0] ^ 1])
        if self.answers[type(command.body)] is None:
            await self.late.wait()
        steps = [*self.answers, None]
        if self.answers.get(steps[steps.index(type(command.body)) + 1], self) is None:
            self.before_silence()
        return self.answers[type(command.body)]


@pytest.fixture
def bench():
    """A bench whose arena is closed afterwards."""
    made = Bench()
    yield made
    made.rings.drop(0)
    made.arena.close()


async def test_a_good_pass_goes_all_the_way(bench):
    """It stores, looks up, reads and takes away again, is measured, and leaves nothing to give back."""
    await bench.drill.look()
    await bench.drill.look()
    numbers = bench.drill.counters()
    assert bench.asked == 2 * list(bench.answers)
    assert (numbers["drill_passes"], numbers["drill_failures"], numbers["drill_failing"]) == (2, 0, 0)
    assert numbers["drill_micros"] > 0
    assert (bench.drill.notes(), bench.posted) == ({}, [])


@pytest.mark.parametrize(
    ("request_", "answer", "says", "given_back"),
    [
        (requests.Register, FULL, "register: capacity: LOG_FULL", []),
        (requests.Reserve, FULL, "reserve: capacity: LOG_FULL", []),
        (requests.Put, FULL, "put: capacity", [requests.Abort]),
        (requests.Commit, FULL, "commit: capacity: LOG_FULL", [requests.Abort]),
        (requests.Commit, None, "commit: no answer within 0.05 s", [requests.Abort]),
        (requests.Acquire, replies.Acquired(0, [], [], 0, 0, [], [], [], [], 0), "look up: 0 of 16", [requests.Evict]),
        (requests.Evict, replies.Evicted(0, 1), "evict: ", [requests.Evict]),
    ],
)
async def test_the_step_that_fails_is_named(bench, monkeypatch, request_, answer, says, given_back):
    """A log that takes nothing, memory that is full, a miss: each is told as its step, and the next pass is well."""
    right, bench.answers[request_] = bench.answers[request_], answer
    with monkeypatch.context() as patience:
        bench.before_silence = lambda: patience.setattr(module, "_STEP_SECONDS", 0.05)
        await bench.drill.look()
    assert bench.drill.notes()["drill"].startswith(says)
    assert bench.drill.counters()["drill_failing"] == 1
    assert [type(command.body) for command in bench.posted] == given_back
    assert all(isinstance(command, Ask) for command in bench.posted)
    bench.answers[request_] = right
    await bench.drill.look()
    numbers = bench.drill.counters()
    assert (numbers["drill_failing"], numbers["drill_failures"], bench.drill.notes()) == (0, 1, {})


@pytest.mark.parametrize(
    ("request_", "given_back"), [(requests.Reserve, requests.Abort), (requests.Acquire, requests.Release)]
)
async def test_what_comes_too_late_is_given_back(bench, monkeypatch, request_, given_back):
    """A reservation or a lease that is answered when nobody waits any more is not kept for good."""
    right, bench.answers[request_], bench.late = bench.answers[request_], None, asyncio.Event()
    with monkeypatch.context() as patience:
        bench.before_silence = lambda: patience.setattr(module, "_STEP_SECONDS", 0.05)
        await bench.drill.look()
    assert "no answer within" in bench.drill.notes()["drill"]
    bench.posted.clear()
    bench.answers[request_] = right
    bench.late.set()
    await until(lambda: bench.posted)
    assert [type(command.body) for command in bench.posted] == [given_back]


async def test_wrong_bytes_fail_the_verification(bench):
    """A single bit that differs from what was stored is found, and lease and object are given back."""
    bench.damage = True
    await bench.drill.look()
    assert bench.drill.notes()["drill"] == "verify: the bytes are not those that were stored"
    assert [type(command.body) for command in bench.posted] == [requests.Release, requests.Evict]


async def test_memory_that_was_reused_under_the_lease_fails_the_read(bench):
    """A generation that moved while the lease was held is a fault of its own, whatever the bytes are."""
    bench.arena.set_generations([(0, 1, 8)])
    await bench.drill.look()
    assert bench.drill.notes()["drill"] == "read: the generation of a leased object moved"


async def test_a_drill_that_comes_to_no_end_is_overdue(bench, monkeypatch):
    """Without a good pass for three intervals it is failing, though none has failed."""
    assert bench.drill.counters()["drill_failing"] == 0
    now = module.time.monotonic()
    monkeypatch.setattr(module.time, "monotonic", lambda: now + 3 * 70 + 1)
    numbers = bench.drill.counters()
    assert (numbers["drill_failing"], numbers["drill_failures"]) == (1, 0)
    assert numbers["drill_age_ms"] > 3 * 70_000
