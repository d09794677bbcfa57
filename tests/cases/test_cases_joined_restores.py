"""Restores of two boundaries that share blocks: who joins a job is told of its own objects only."""

import pytest

from kvledger.wire.replies import Failed, Pending, Restored
from kvledger.wire.requests import Restore
from kvledgerd.core.commands import Ask, EngineSilent, RestoreDone
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.decide import decide
from kvledgerd.core.decision import Decision, DiskRead
from support.layouts import pick
from support.world import World

PROMPT = list(range(600))
OTHER = [t + 1000 for t in PROMPT]
LAYOUTS = ["CM", "CXST"]


def on_disk(letters, ends=(256, 512), **config):
    """A world with boundaries of one prompt on disk only; the shorter one's blocks belong to both."""
    fields = {"memory_bytes": 64 << 20, "arena_bytes": 1 << 20, "disk_bytes": 64 << 20} | config
    world = World(CoreConfig(**fields))
    user = world.engine()
    number = user.register(pick(letters))
    for end in ends:
        user.store(number, PROMPT, end)
    for end in reversed(ends):
        user.offload(number, PROMPT, end)
    return world, user, number


def joined(world, user, number):
    """Start restoring the longer boundary and let the shorter one join; return the read and the parked request."""
    world.held = []
    longer = Restore(number, user.boundary(number, PROMPT, 512))
    shorter = Ask(user.caller, Restore(number, user.boundary(number, PROMPT, 256)))
    user.ask(longer)
    (read,) = (effect for effect in world.held if isinstance(effect, DiskRead))
    parked = world.do(shorter)
    assert isinstance(parked, Decision)
    assert parked.park.jobs == (read.job,)
    world.held = None
    return read, Ask(user.caller, shorter.body, parked=parked.park.jobs)


def answer(world, read, error, wrong):
    """Answer a read: the records for which `wrong` holds fail, the bytes of the others are there."""
    errors = tuple(error if wrong(record) else world._read(record) for record in read.records)
    world.do(RestoreDone(read.job, errors))


def of_the_longer_one(world):
    """Tell records that only the boundary at 512 needs."""
    return lambda record: world.state.cells[record.cell].node.depth == 2


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("error", ["damaged: another fingerprint", "failed: I/O error"])
def test_a_joined_restore_goes_on_after_somebody_elses_failure(letters, error):
    """What is wrong with the other boundary's own objects does not fail the one that shares only its blocks."""
    world, user, number = on_disk(letters)
    read, again = joined(world, user, number)
    answer(world, read, error, of_the_longer_one(world))

    assert isinstance(world.do(again), Restored)
    assert user.acquire(number, PROMPT, restore=False).usable_tokens == 256


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("error", ["damaged: another fingerprint", "failed: I/O error"])
def test_a_joined_restore_fails_with_its_own_objects(letters, error):
    """What is wrong with shared blocks fails both, with the reason, and a read that failed is not tried for ever."""
    world, user, number = on_disk(letters)
    read, again = joined(world, user, number)
    answer(world, read, error, lambda _: True)

    refused = world.do(again)
    assert isinstance(refused, Failed)
    assert (refused.code, refused.message) == ("service", error)


def test_a_read_that_failed_may_be_asked_for_again():
    """A boundary that could not be read once is restored by a new request."""
    world, user, number = on_disk("CM")
    read, _ = joined(world, user, number)
    answer(world, read, "failed: I/O error", lambda _: True)

    assert isinstance(user.restore(number, PROMPT, 256), Restored)


def test_a_restore_past_its_deadline_is_answered_where_only_a_silent_engine_could_make_room():
    """The request may wait no more, so it is refused with a remedy; asked again, it gets the silent engine's room."""
    world, user, number = on_disk("CM", (512,))
    user.restore(number, PROMPT, 512)
    sizes = {kind: pool.live_bytes for (_, kind), pool in world.state.pools.items()}
    world, user, number = on_disk("CM", (512,), kind_bytes=sizes)
    other = world.engine("other")
    other.reserve(number, OTHER, 512)
    assert user.restore(number, PROMPT, 512).field == "kind_bytes"
    world.do(EngineSilent(other.caller.engine, silent=True))
    request = Restore(number, user.boundary(number, PROMPT, 512))

    late = decide(world.state, Ask(user.caller, request, waited=True))
    assert late.park is None
    assert (late.reply.code, late.reply.field) == ("capacity", "wait_ms")
    assert isinstance(user.ask(request), Restored)


@pytest.mark.parametrize("letters", LAYOUTS)
def test_a_restore_that_was_given_up_is_begun_anew_by_who_asks_next(letters):
    """Who joined a restore just before it was given up gets no error of somebody else's leaving: it is read now."""
    world, user, number = on_disk(letters)
    read, again = joined(world, user, number)
    world.held = []
    world.do(RestoreDone(read.job, tuple("cancelled: nobody waits" for _ in read.records)))
    assert not world.state.restoring

    decision = world.do(again)
    assert isinstance(decision, Decision)
    (anew,) = (effect for effect in world.held if isinstance(effect, DiskRead))
    assert anew.job in decision.park.jobs
    world.release_effects()
    assert user.acquire(number, PROMPT, restore=False).usable_tokens == 256


def test_a_pending_restore_names_its_job_and_what_it_brings():
    """Asking without waiting names the job with its objects and bytes; another boundary that joins is told the same."""
    world, user, number = on_disk("CM")
    world.held = []
    first = user.ask(Restore(number, user.boundary(number, PROMPT, 512), 0))
    second = user.ask(Restore(number, user.boundary(number, PROMPT, 256), 0))
    (read,) = (effect for effect in world.held if isinstance(effect, DiskRead))
    assert first == Pending(read.job, 0, len(read.records), 0, sum(r.length for r in read.records))
    assert second == first
