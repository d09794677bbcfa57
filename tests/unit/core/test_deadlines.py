"""Every request that waits for a job is answered at its deadline, and says so."""

import pytest
from msgspec.structs import replace

from kvledger.wire.requests import Acquire, Commit, Offload, Put, PutRange, Reserve
from kvledgerd.core.commands import Ask
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.decide import decide
from support.layouts import pick
from support.world import World

PROMPT = list(range(600))
OTHER = list(range(9000, 9600))
CONFIG = CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, disk_bytes=64 << 20, wait_ms=1234)


def scene(*, stored: bool = True):
    """A world whose jobs are not answered from now on, its engine, and a layout."""
    world = World(CONFIG)
    user = world.engine()
    number = user.register(pick("CM"))
    if stored:
        user.store(number, PROMPT, 512)
    return world, user, number


def reserve(world, user, number):
    """A reservation that waits for an arena."""
    return Reserve(number, user.boundary(number, OTHER, 512))


def acquire(world, user, number):
    """A look-up that waits for a verification."""
    for cell in world.state.cells.values():
        cell.unverified = cell.memory
    return Acquire(number, 600, user.boundary(number, PROMPT).hashes)


def offload(world, user, number):
    """An offload that waits for the disk."""
    return Offload(number, user.boundary(number, PROMPT, 512))


def parked(world, user, request):
    """Ask with all jobs held back, and return the command as it is parked."""
    world.held = []
    ask = Ask(user.caller, request)
    decision = decide(world.state, ask)
    assert decision.park.jobs
    assert decision.park.deadline_ms == 1234
    world.do(ask)
    return replace(ask, parked=decision.park.jobs)


@pytest.mark.parametrize("wait", [reserve, acquire, offload])
def test_what_waits_is_answered_at_its_deadline(wait):
    """The answer is a typed error and changes nothing; the job goes on, and asking again joins it."""
    world, user, number = scene(stored=wait is not reserve)
    request = wait(world, user, number)
    command = parked(world, user, request)
    late = decide(world.state, replace(command, waited=True))
    assert (late.reply.code, late.events, late.park, late.effects) == ("deadline", (), None, ())
    assert "1234 ms" in late.reply.message
    world.release_effects()
    user.ok(request)


def test_a_put_that_is_late_gives_its_unit_up():
    """The writer may use its ring again after the answer, so nothing that the copy still reads may be published."""
    world, user, number = scene(stored=False)
    reserved = user.reserve(number, OTHER, 512)
    unit = world.state.units[reserved.unit]
    kind = pick("CM").groups[unit.objects[0].group].kind
    world.rings[user.caller.connection, 0] = bytes(unit.objects[0].length)
    command = parked(world, user, Put(reserved.unit, [PutRange(kind, 0, 0, 0, unit.objects[0].length)]))
    late = world.do(replace(command, waited=True))
    assert late.code == "deadline"
    assert world.reasons("unit_aborted.1") == ["a copy did not end in time"]
    assert user.ask(Commit(reserved.unit)).code == "generation"
    assert world.state.units  # its slots are kept until the copy has ended
    world.release_effects()
    assert not world.state.units


def test_a_put_that_is_done_at_its_deadline_is_done():
    """The answer of a job that came at the last moment counts."""
    world, user, number = scene(stored=False)
    reserved = user.reserve(number, OTHER, 512)
    user.fill(reserved)
    (job,) = [number for number in world.state.outcomes if number > reserved.unit]
    command = Ask(user.caller, Put(reserved.unit, []), parked=(job,), waited=True)
    assert type(decide(world.state, command).reply).__name__ == "Done"
    user.ok(Commit(reserved.unit))
