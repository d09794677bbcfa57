"""What is given up when the disk is full, and what the log's own past does to the state."""

import pytest

from kvledger.wire.replies import Evicted
from kvledger.wire.requests import Acquire, Offload, Restore
from kvledgerd.core.commands import ArchiveDue, RetireDue, RoomWanted
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.copies import decide_room
from kvledgerd.core.decide import decide
from kvledgerd.core.decision import Ack, ArchiveSegments, DropBlobs, RetireSegments
from kvledgerd.snapshots.decode import decode_state
from kvledgerd.snapshots.encode import encode_state
from support.layouts import compressed, tail
from support.world import World, layout

BLOCK = 32
CHAIN = bytes(range(32))


def stored(*prompts):
    """Return a world with an engine whose prompts of two blocks lie on disk only, oldest first, and its layout."""
    user = World().engine()
    number = user.register(layout(compressed(block=BLOCK), tail(), block_tokens=BLOCK))
    for prompt in prompts:
        user.store(number, prompt)
        user.ok(Offload(number, user.boundary(number, prompt, len(prompt)), drop_memory=True))
    return user, number


def usable(user, number, prompt):
    """Return how many tokens of a prompt can be reused, restored ones included."""
    whole = len(prompt) // BLOCK * BLOCK
    asked = Acquire(number, len(prompt), user.boundary(number, prompt, whole).hashes, leave=0, restore=True)
    return max((offer.position for offer in user.ok(asked).offers), default=0)


OLD, NEW = [1] * 64, [2] * 64
LONGER = [*OLD, *[3] * 32]


def test_the_oldest_prefix_goes_first_and_wholly():
    """Asked for as much as one prefix takes, the one that was used least recently is given up, and the other stays."""
    user, number = stored(OLD, NEW)
    before = user.world.state.disk_bytes
    found = user.world.do(RoomWanted(before // 2, "the disk is full"))
    assert isinstance(found, Evicted)
    assert user.world.state.disk_bytes == before // 2
    assert usable(user, number, NEW) == 64
    assert usable(user, number, OLD) == 0


def test_a_prefix_that_is_looked_up_is_young_again():
    """The one that was written first stays if it was looked up since, though it lies on disk alone."""
    user, number = stored(OLD, NEW)
    assert usable(user, number, OLD) == 64
    user.world.do(RoomWanted(user.world.state.disk_bytes // 2, "the disk is full"))
    assert [usable(user, number, prompt) for prompt in (OLD, NEW)] == [64, 0]


def test_everything_goes_if_all_of_it_is_asked_for():
    """Asked for more than there is, all records are given up, and another time nothing is left."""
    user, number = stored(OLD, NEW, LONGER)
    user.world.do(RoomWanted(1 << 40, "the disk is full"))
    assert user.world.state.disk_bytes == 0
    assert user.world.disk == {}
    assert usable(user, number, LONGER) == 0
    assert user.world.do(RoomWanted(1 << 40, "the disk is full")).dropped == 0


def test_what_a_longer_prefix_stands_on_stays():
    """The rows that a longer prefix on disk still needs are not given up with a shorter one."""
    user, number = stored(OLD, LONGER)
    user.ok(Acquire(number, 96, user.boundary(number, LONGER, 96).hashes, leave=0))
    user.world.do(RoomWanted(1, "the disk is full"))
    assert usable(user, number, LONGER) == 96


def test_a_path_that_stays_is_not_walked_for_each_prefix_on_it(monkeypatch):
    """Where many prefixes end behind one path whose last block is being read, each of its blocks is looked at once."""
    user, number = stored(NEW)
    path = [1] * (20 * BLOCK)
    for residue in range(1, 20):
        prompt = [*path, *[residue] * 8]
        user.store(number, prompt)
        user.ok(Offload(number, user.boundary(number, prompt), drop_memory=False))
    user.evict(number, path, None, "C", block=19)
    user.world.held = []
    user.restore(number, prompt)
    assert user.world.state.jobs
    looked = []
    real = decide_room._standing_on
    monkeypatch.setattr(decide_room, "_standing_on", lambda cell: looked.append(cell.id) or real(cell))
    user.world.do(RoomWanted(1 << 40, "the disk is full"))
    assert len(looked) <= 2 * len(user.world.state.cells)


def test_what_a_lease_holds_stays():
    """A prefix that was restored and is leased keeps its records, however much is asked for."""
    user, number = stored(OLD)
    user.ok(Restore(number, user.boundary(number, OLD, 64)))
    user.ok(Acquire(number, 64, user.boundary(number, OLD, 64).hashes, leave=0))
    before = user.world.state.disk_bytes
    user.world.do(RoomWanted(1 << 40, "the disk is full"))
    assert user.world.state.disk_bytes == before


def test_records_are_removed_only_when_that_is_durable():
    """What destroys bytes on disk waits for the event that says so to be synced."""
    user, _ = stored(OLD)
    decision = decide(user.world.state, RoomWanted(1, "the disk is full"))
    assert decision.ack is Ack.DURABLE
    assert [(ack, type(effect)) for ack, effect in decision.effects] == [(Ack.DURABLE, DropBlobs)]


def test_archiving_and_retiring_are_events_before_they_are_changes_of_files():
    """Both are durable before a file moves, are done once, and never pass each other."""
    world = World()
    archive = decide(world.state, ArchiveDue(100, CHAIN))
    assert archive.effects == ((Ack.DURABLE, ArchiveSegments(100, CHAIN)),)
    assert not decide(world.state, RetireDue(50, CHAIN, "cap")).events, "what is live can not be retired"
    world.record(archive.events)
    assert not decide(world.state, ArchiveDue(100, CHAIN)).events
    assert not decide(world.state, RetireDue(101, CHAIN, "cap")).events
    retire = decide(world.state, RetireDue(50, CHAIN, "cap"))
    assert retire.effects == ((Ack.DURABLE, RetireSegments(50, CHAIN)),)
    world.record(retire.events)
    assert (world.state.live_from, world.state.kept_from) == ((100, CHAIN), (50, CHAIN))


@pytest.mark.parametrize("command", [ArchiveDue(100, CHAIN), RoomWanted(1, "the disk is full")])
def test_both_replay_and_survive_snapshots(command):
    """The log and a snapshot of the state lead to the same digest."""
    user, _ = stored(OLD)
    before = user.world.state.digest()
    user.world.record(decide(user.world.state, command).events)
    state = user.world.state
    assert state.digest() != before
    assert user.world.replayed().digest() == state.digest()
    assert decode_state(encode_state(state), CoreConfig()).digest() == state.digest()
