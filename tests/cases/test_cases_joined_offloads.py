"""Offloads of two boundaries that share blocks: who waited for another's job is told of its own boundary only."""

import pytest

from kvledger.wire.replies import Failed, Offloaded
from kvledger.wire.requests import Offload
from kvledgerd.core.commands import Ask, Written
from kvledgerd.core.decision import Decision, DiskWrite
from support.layouts import pick
from support.world import World

PROMPT = list(range(600))
LAYOUTS = ["CM", "CXST", "C"]


def joined(letters, first, second):
    """Begin to write one boundary and let another that shares its blocks wait for it; both are in memory."""
    world = World()
    user = world.engine()
    number = user.register(pick(letters))
    for end in (256, 512):
        user.store(number, PROMPT, end)
    world.held = []
    user.ask(Offload(number, user.boundary(number, PROMPT, first)))
    (write,) = (effect for effect in world.held if isinstance(effect, DiskWrite))
    request = Ask(user.caller, Offload(number, user.boundary(number, PROMPT, second)))
    waits = world.do(request)
    assert isinstance(waits, Decision)
    assert waits.park.jobs == (write.job,)
    world.held = None
    return world, user, number, write, Ask(user.caller, request.body, parked=waits.park.jobs)


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize(("first", "second"), [(512, 256), (256, 512), (512, 512)])
def test_f05_p29_a_joined_offload_counts_its_own_objects(letters, first, second):
    """The reply adds up to the objects of the boundary that was asked for, whoever wrote them."""
    world, user, number, write, again = joined(letters, first, second)
    world.run(write)
    reply = world.do(again)
    assert isinstance(reply, Offloaded)
    whole = user.ok(Offload(number, user.boundary(number, PROMPT, second)))
    assert (whole.objects, whole.bytes) == (0, 0)
    assert reply.objects + reply.already == whole.already
    assert reply.objects >= (first == second)


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize(("first", "second"), [(512, 256), (256, 512)])
def test_p27_a_joined_offload_is_tried_after_somebody_elses_failure(letters, first, second):
    """What went wrong with another boundary fails nobody else: the one that waited for it is written by itself."""
    world, user, number, write, again = joined(letters, first, second)
    world.do(Written(write.job, error="no space left"))
    assert isinstance(world.do(again), Offloaded)
    assert user.ask(Offload(number, user.boundary(number, PROMPT, second))).objects == 0


@pytest.mark.parametrize("letters", LAYOUTS)
def test_p27_an_offload_that_fails_itself_is_not_tried_for_ever(letters):
    """A boundary whose own writing failed is refused with the reason, and can be asked for again."""
    world, user, number, write, _ = joined(letters, 512, 256)
    own = Ask(user.caller, Offload(number, user.boundary(number, PROMPT, 512)), parked=(write.job,))
    world.do(Written(write.job, error="no space left"))
    refused = world.do(own)
    assert isinstance(refused, Failed)
    assert (refused.code, refused.message) == ("service", "no space left")
    assert isinstance(user.ask(own.body), Offloaded)
