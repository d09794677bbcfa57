"""A cache whose disk fails: restores stop, memory goes on, and a probe ends it."""

import pytest

from kvledger.verdict import Code
from kvledger.wire.replies import Failed, Restored
from kvledger.wire.requests import Restore
from kvledgerd.core.commands import Ask, DegradeDue, Probed, ProbeDue, RestoreDone
from kvledgerd.core.decision import Decision, DiskProbe, DiskRead
from kvledgerd.snapshots.decode import decode_state
from kvledgerd.snapshots.encode import encode_state
from support.layouts import pick
from support.world import World

PROMPT = list(range(600))
OTHER = [token + 1000 for token in PROMPT]
WHY = "5 restores failed within 60 s"


def degraded():
    """A world with one boundary on disk alone and one in memory, in which restores have stopped."""
    world = World()
    user = world.engine()
    number = user.register(pick("CM"))
    user.store(number, PROMPT, 512)
    user.offload(number, PROMPT, 512)
    user.store(number, OTHER, 512)
    world.do(DegradeDue(WHY))
    return world, user, number


def test_memory_hits_go_on_and_verdicts_say_why():
    """What lies in memory is handed out; what lies on disk is cut with the reason, and a restore is refused with it."""
    world, user, number = degraded()
    assert user.acquire(number, OTHER).usable_tokens == 512
    answer = user.acquire(number, PROMPT)
    assert answer.offers == []
    (cut,) = [cut for cut in answer.cuts if cut.code is Code.DEGRADED]
    assert WHY in cut.detail
    refused = user.restore(number, PROMPT, 512)
    assert isinstance(refused, Failed)
    assert (refused.code, WHY in refused.message) == ("degraded", True)
    assert user.counters()["degraded"] == 1
    world.do(DegradeDue("again"))
    assert [event.reason for event in world.events("degradation_changed.1")] == [WHY]


def test_who_waited_by_then_gets_its_outcome():
    """A restore that runs when restores stop comes to its end, and may be joined until then."""
    world = World()
    user = world.engine()
    number = user.register(pick("CM"))
    user.store(number, PROMPT, 512)
    user.offload(number, PROMPT, 512)
    world.held = []
    body = Restore(number, user.boundary(number, PROMPT, 512))
    parked = world.do(Ask(user.caller, body))
    world.do(DegradeDue(WHY))
    joined = world.do(Ask(user.caller, body))
    assert isinstance(parked, Decision)
    assert isinstance(joined, Decision)
    assert joined.park.jobs == parked.park.jobs
    (read,) = (effect for effect in world.held if isinstance(effect, DiskRead))
    world.held = None
    world.do(RestoreDone(read.job, tuple(world._read(record) for record in read.records)))
    assert isinstance(world.do(Ask(user.caller, body, parked=parked.park.jobs)), Restored)


@pytest.mark.parametrize(("error", "ends"), [("", True), ("damaged: gone", True), ("failed: I/O error", False)])
def test_a_probe_ends_it_once_the_disk_answers(error, ends):
    """A probe reads a record that the state knows, into no slot; restores begin again if it answers."""
    world, user, number = degraded()
    world.held = []
    before = world.state.digest()
    world.do(ProbeDue())
    (probe,) = (effect for effect in world.held if isinstance(effect, DiskProbe))
    ref = probe.record.ref
    assert (ref.segment, ref.offset) in world.records()
    assert world.state.digest() == before
    world.held = None
    world.do(Probed(error))
    assert bool(world.state.degraded) is not ends
    assert isinstance(user.restore(number, PROMPT, 512), Restored) is ends


def test_with_nothing_on_disk_there_is_nothing_to_stop_for():
    """A probe that finds no record ends it, and one that comes too late changes nothing."""
    world = World()
    world.engine()
    world.do(DegradeDue(WHY))
    world.do(ProbeDue())
    assert world.state.degraded == ""
    seen = len(world.log)
    world.do(ProbeDue())
    world.do(Probed(""))
    assert len(world.log) == seen


def test_it_is_in_the_log_and_in_snapshots_and_ends_with_the_incarnation():
    """Replay and snapshot agree on it; a daemon that starts tries the disk anew."""
    world, _, _ = degraded()
    assert world.replayed().degraded == WHY
    again = decode_state(encode_state(world.state), world.config)
    assert (again.degraded, again.digest()) == (WHY, world.state.digest())
    world.restart()
    assert world.state.degraded == ""
