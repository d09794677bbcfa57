"""Which class of acknowledgement each operation waits for: the table of docs/durability.md, asked of the core."""

from __future__ import annotations

import pytest

from kvledger.kinds import Kind
from kvledger.wire.requests import Commit, Evict, Offload, Register, Reserve, Restore
from kvledger_storage.events import Checkpoint
from kvledgerd.core.apply import DigestMismatchError, apply
from kvledgerd.core.commands import Ask, Start, Written
from kvledgerd.core.decide import decide
from kvledgerd.core.decision import Ack, DiskRead, DiskWrite, DropBlobs, MakeArena, SetGenerations
from support.layouts import pick
from support.world import World

PROMPT = list(range(600))
OTHER = [token + 1000 for token in PROMPT]


def user_with_layout():
    """Return a world, a user of it, and the number of a registered layout with something stored."""
    world = World()
    user = world.engine()
    number = user.register(pick("CS"))
    user.store(number, PROMPT, 512)
    return world, user, number


def asked(user, body):
    """Return the decision about a request, without carrying it out."""
    return decide(user.world.state, Ask(user.caller, body))


def classes(decision, kind):
    """Return the classes that effects of one type wait for."""
    return {ack for ack, effect in decision.effects if isinstance(effect, kind)}


def test_generations_move_after_the_reservation_is_written():
    """A reservation is written before its generations move, and they move before the engine hears of it."""
    _, user, number = user_with_layout()

    decision = asked(user, Reserve(number, user.boundary(number, OTHER, 512)))

    assert decision.ack is Ack.WRITTEN
    assert classes(decision, SetGenerations) == {Ack.WRITTEN}


def test_a_commit_is_answered_when_it_is_written():
    """A commit is acknowledged after its event is in the log file."""
    _, user, number = user_with_layout()
    reserved = user.reserve(number, OTHER, 512)
    user.fill(reserved)

    assert asked(user, Commit(reserved.unit)).ack is Ack.WRITTEN


def test_identity_is_answered_when_it_is_durable():
    """A layout is acknowledged after its event was synced, and so is the start of an incarnation."""
    world, user, _ = user_with_layout()

    assert asked(user, Register(pick("CXST"))).ack is Ack.DURABLE
    assert decide(world.state, Start(2, b"b" * 16, b"l" * 16, ())).ack is Ack.DURABLE


def test_disk_writes_are_answered_when_they_are_durable():
    """An offload starts when its event is written, and what it brought is acknowledged after a sync."""
    world, user, number = user_with_layout()
    request = Offload(number, user.boundary(number, PROMPT, 512), drop_memory=False)
    world.held = []
    user.ask(request)
    (effect,) = world.held

    assert isinstance(effect, DiskWrite)
    refs = [world._write(world.memory[r.arena, r.offset]) for r in effect.records]
    assert decide(world.state, Written(effect.job, (*refs, world._write(effect.manifest)))).ack is Ack.DURABLE
    world.release_effects()
    assert asked(user, request).ack is Ack.DURABLE


def test_bytes_on_disk_are_destroyed_when_that_is_durable():
    """Records are dropped from disk after the event that gave them up was synced."""
    _, user, number = user_with_layout()
    user.offload(number, PROMPT, 512)

    decision = asked(user, Evict(Kind.DISK_PREFIX, number, user.boundary(number, PROMPT, 512), ""))

    assert classes(decision, DropBlobs) == {Ack.DURABLE}


def test_a_restore_reads_after_its_places_are_written():
    """A restore is written before generations move and before the first byte is read into its places."""
    _, user, number = user_with_layout()
    user.offload(number, PROMPT, 512)

    decision = asked(user, Restore(number, user.boundary(number, PROMPT, 512)))

    assert classes(decision, SetGenerations) == classes(decision, DiskRead) == {Ack.WRITTEN}
    assert not classes(decision, MakeArena)


def test_receipts_of_a_new_incarnation_lie_far_beyond_those_that_were_logged():
    """The first receipt after a start is 2^32 above the last one logged, whatever tail was lost."""
    world, user, number = user_with_layout()
    before = user.reserve(number, OTHER, 512).unit
    world.restart()
    again = world.engine("again")

    assert again.reserve(number, OTHER, 512).unit >= before + 2**32


def test_memory_that_outlived_the_daemon_is_verified_before_it_is_handed_out():
    """After a restart a look-up first verifies the bytes that it would hand out, and damaged ones are no hit."""
    world, _, number = user_with_layout()
    world.restart()
    again = world.engine("again")
    world.memory.update(dict.fromkeys(world.memory, b"other bytes"))

    assert again.acquire(number, PROMPT).usable_tokens == 0


def test_a_checkpoint_that_disagrees_ends_a_replay():
    """A replay that made another state than the one that was logged is refused at the next checkpoint."""
    world, _, _ = user_with_layout()

    apply(world.state, Checkpoint(world.state.digest()))
    with pytest.raises(DigestMismatchError, match="the replay made"):
        apply(world.state, Checkpoint(world.state.digest() ^ 1))
