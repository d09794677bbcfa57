"""A commit that comes right behind its last put waits for the copies, and publishes nothing that did not arrive."""

from kvledger.wire.replies import Committed, Failed
from kvledger.wire.requests import Commit
from kvledgerd.core.commands import Ask, Copied
from kvledgerd.core.decide import decide
from support.layouts import pick
from support.world import World

PROMPT = list(range(600))


def put_under_way():
    """A unit of which all was put, while the copy of it is still running; gives its user, the unit, and the copy."""
    user = World().engine()
    number = user.register(pick("C"))
    reserved = user.reserve(number, PROMPT, 512)
    user.world.held = []
    user.fill(reserved)
    return user, number, reserved, user.world.held[0]


def test_a_commit_waits_for_the_copies_of_its_unit():
    """It is parked on the copy, nothing is seen meanwhile, and when the copy ends it is published."""
    user, number, reserved, copy = put_under_way()
    decision = decide(user.world.state, Ask(user.caller, Commit(reserved.unit)))
    assert decision.park is not None
    assert decision.park.jobs == (copy.job,)
    assert not decision.events
    assert not user.acquire(number, PROMPT).usable_tokens
    user.world.release_effects()
    assert isinstance(user.commit(reserved), Committed)
    assert user.acquire(number, PROMPT).usable_tokens == 512


def test_a_commit_behind_a_copy_that_fails_publishes_nothing():
    """The unit ends with the copy, and the commit that waited for it is told how."""
    user, number, reserved, copy = put_under_way()
    user.world.held = None
    user.world.do(Copied(copy.job, error="the ring can not be read"))
    refusal = user.commit(reserved)
    assert isinstance(refusal, Failed)
    assert "the ring can not be read" in refusal.message
    assert not user.acquire(number, PROMPT).usable_tokens


def test_a_commit_does_not_wait_for_what_was_never_put():
    """What lacks bytes is refused at once, however much of the rest is still being copied."""
    user = World().engine()
    number = user.register(pick("CX"))
    reserved = user.reserve(number, PROMPT, 512)
    user.world.held = []
    user.fill(reserved, skip=("X",))
    refusal = user.commit(reserved)
    assert isinstance(refusal, Failed)
    assert refusal.code == "commit_refused"
