"""When the daemon writes to disk by itself, what it passes over, and what pushes out what."""

import pytest

from kvledger.geometry import bits
from kvledger.wire.replies import Failed
from kvledger.wire.requests import Release, Settle
from kvledger_storage import events
from kvledgerd.core.apply import apply
from kvledgerd.core.commands import DemoteDue, RecordsLost, SaveDue, WriteDue
from kvledgerd.core.config import CoreConfig, DiskWritePolicy
from kvledgerd.core.copies.decide_write import unsaved
from kvledgerd.core.copies.records import blob_of
from kvledgerd.core.decide import decide
from kvledgerd.core.decision import DiskWrite, Later
from kvledgerd.core.index import ASKED
from kvledgerd.core.invariants import violations
from kvledgerd.core.state import State
from kvledgerd.snapshots.decode import decode_state
from kvledgerd.snapshots.encode import encode_state
from support.layouts import pick
from support.world import World

MIB = 1 << 20


def prompt(number: int, tokens: int = 512) -> list[int]:
    """A prompt that begins like no other."""
    return [10_000 * number + token for token in range(tokens)]


def world_with(policy: DiskWritePolicy, letters: str = "CM", **config):
    """A world with one engine and a layout; small memory, so that it fills."""
    fields = {
        "memory_bytes": MIB // 2,
        "arena_bytes": MIB // 16,
        "disk_bytes": 64 * MIB,
        "write_bytes": 64 << 10,
    } | config
    world = World(CoreConfig(disk_write=policy, **fields), check=False)
    user = world.engine()
    return world, user, user.register(pick(letters))


def on_disk(world, user, number, tokens, end=512) -> bool:
    """Whether a boundary could be brought back if all memory were lost."""
    at = user.boundary(number, tokens, end)
    node = world.state.layouts[number].tree.nodes[at.hashes[-32:]]
    cell = node.boundary(number, at.residue, at.residue_hash)
    blocks = [one.cell(number) for one in node.path()]
    lost = [c for c in (*blocks, cell) if c is not None and c.memory & ~c.disk]
    return cell is not None and cell.manifest is not None and not lost


def why(world) -> list[str]:
    """Why each offload was begun, without its worth."""
    return [event.reason.partition(":")[0] for event in world.events("offload_started.1")]


def lost_in_memory(world) -> list[tuple[int, int]]:
    """Objects whose last copy was dropped to make room."""
    state, found = State(world.config), []
    for raw in world.log:
        event = events.decode(raw).event
        if isinstance(event, events.ObjectsEvicted) and event.reason == "room":
            found += [(c, s) for c, s in event.objects if not state.cells[c].disk >> s & 1]
        apply(state, event)
    return found


def test_always_writes_what_is_committed():
    """Under `always` a boundary is on disk as soon as it was committed, and a second commit of it writes nothing."""
    world, user, number = world_with(DiskWritePolicy.ALWAYS)
    user.store(number, prompt(1), 512)
    assert on_disk(world, user, number, prompt(1))
    user.store(number, prompt(1), 512)
    assert why(world) == ["always"]


@pytest.mark.parametrize("end", [512, 500])
def test_second_use_writes_what_a_look_up_reads(end):
    """Under `on_second_use` a commit writes nothing, and the first look-up that keeps a boundary has it written."""
    world, user, number = world_with(DiskWritePolicy.ON_SECOND_USE)
    user.store(number, prompt(1), end)
    user.store(number, prompt(1), 256)
    assert why(world) == []
    hit = user.acquire(number, prompt(1, 513))
    chosen = next(i for i, offer in enumerate(hit.offers) if offer.position == end)
    if len(hit.offers) > 1:
        user.ok(Settle(hit.lease, chosen))
    assert on_disk(world, user, number, prompt(1), end)
    assert why(world) == ["on_second_use"]


@pytest.mark.parametrize("letters", ["CM", "CXST", "C"])
def test_what_goes_next_is_written_before_it_goes(letters):
    """Under `on_evict` prompts far beyond the memory all come back from disk; nothing was lost to make room."""
    world, user, number = world_with(DiskWritePolicy.ON_EVICT, letters)
    numbers = range(80)
    for one in numbers:
        user.store(number, prompt(one), 512)
    assert world.reasons("objects_evicted.1").count("room") > 3
    assert lost_in_memory(world) == []
    assert set(why(world)) == {"goes next"}
    for one in numbers:
        hit = user.acquire(number, prompt(one, 513))
        assert hit.restorable[-1] == 512, one


def test_nothing_is_written_while_memory_is_plenty():
    """Under `on_evict` what fits into memory costs the disk nothing."""
    world, user, number = world_with(DiskWritePolicy.ON_EVICT, memory_bytes=64 * MIB)
    for one in range(10):
        user.store(number, prompt(one), 512)
    assert why(world) == []


def test_memory_never_waits_for_a_disk_that_hangs():
    """With writes that never end commits go on, and no more is held for the disk than may be on its way."""
    world, user, number = world_with(DiskWritePolicy.ON_EVICT)
    world.held = []
    hung = []
    for one in range(80):
        world.held = None
        run = world.run
        world.run = lambda effect, run=run: hung.append(effect) if isinstance(effect, DiskWrite) else run(effect)
        user.store(number, prompt(one), 512)
        world.run = run
    assert hung
    held = sum(record.length for effect in hung for record in effect.records)
    assert held <= (64 << 10) + max(sum(r.length for r in effect.records) for effect in hung)


def fill_disk(world, user, number, numbers, *, read=False) -> None:
    """Commit prompts, each read once or never."""
    for one in numbers:
        user.store(number, prompt(one), 512)
        if read:
            user.ok(Release(user.acquire(number, prompt(one, 513)).lease))


def test_what_was_never_read_pushes_nothing_out():
    """At the disk's cap a boundary that no look-up read is passed over once, and the log says why with its worth."""
    world, user, number = world_with(DiskWritePolicy.ON_EVICT, disk_bytes=MIB // 2)
    fill_disk(world, user, number, range(60))
    declined = world.events("write_declined.1")
    assert declined
    assert all("not read since it was stored" in event.reason for event in declined if "disk_bytes" in event.reason)
    assert len({event.cell for event in declined}) == len(declined)
    assert "recycled" not in world.reasons("prefix_forgotten.1")


def test_what_was_read_pushes_out_the_oldest_that_nobody_asked_for():
    """At the cap a boundary that was read takes the place of the oldest; what an engine asked for stays."""
    world, user, number = world_with(DiskWritePolicy.ON_EVICT, disk_bytes=MIB // 2)
    user.store(number, prompt(900), 512)
    user.offload(number, prompt(900), 512)
    fill_disk(world, user, number, range(60), read=True)
    assert "recycled" in world.reasons("prefix_forgotten.1")
    assert world.state.disk_bytes <= MIB // 2
    assert on_disk(world, user, number, prompt(900))


def test_asking_for_what_the_daemon_wrote_keeps_it():
    """An offload of what lies on disk already writes nothing and is kept from then on, also after a restart."""
    world, user, number = world_with(DiskWritePolicy.ALWAYS)
    user.store(number, prompt(1), 512)
    reply = user.offload(number, prompt(1), 512, drop=False)
    assert reply.objects == 0
    (kept,) = world.events("prefix_kept.1")
    assert world.state.cells[kept.cell].marks & ASKED
    user.offload(number, prompt(1), 512, drop=False)
    assert len(world.events("prefix_kept.1")) == 1


def test_what_was_asked_for_stays_so_when_the_daemon_completes_it():
    """A record of an asked prefix is damaged and written anew by the daemon: it is pushed out no sooner than before."""
    world, user, number = world_with(DiskWritePolicy.ALWAYS)
    user.store(number, prompt(1), 512)
    user.offload(number, prompt(1), 512, drop=False)
    at = user.boundary(number, prompt(1), 512)
    node = world.state.layouts[number].tree.nodes[at.hashes[-32:]]
    boundary, block = node.boundary(number, at.residue, at.residue_hash), node.cell(number)
    lost = tuple(blob_of(world.state.layouts[number], block, slot) for slot in bits(block.disk))
    world.do(RecordsLost(lost, "gone", "scrub"))
    assert (block.disk, boundary.manifest is None) == (0, False)
    world.do(WriteDue(number, node.hash, at.residue, at.residue_hash))
    assert on_disk(world, user, number, prompt(1))
    assert boundary.marks & ASKED
    assert violations(world.state) == []


def test_an_orderly_stop_writes_the_youngest_first():
    """What a daemon that stops writes begins with what was used last, and ends when all is on disk."""
    world, user, number = world_with(DiskWritePolicy.ON_EVICT, memory_bytes=64 * MIB, write_bytes=4000)
    for one in range(5):
        user.store(number, prompt(one), 512)
    young, *older = unsaved(world.state)
    world.do(SaveDue((young,)))
    assert on_disk(world, user, number, prompt(4))
    assert not on_disk(world, user, number, prompt(0))
    while world.do(SaveDue(tuple(older))).objects:
        pass
    assert unsaved(world.state) == []
    assert all(on_disk(world, user, number, prompt(one)) for one in range(5))


def test_what_can_not_be_kept_is_passed_over():
    """Material, and what belongs to draining weights, is named in the log and never written."""
    world, user, number = world_with(DiskWritePolicy.ON_EVICT)
    for one in range(80):
        user.store(number, prompt(one), 512, boundary=False)
    assert why(world) == []
    reasons = {event.reason for event in world.events("write_declined.1")}
    assert reasons <= {"nothing can resume at 256", "nothing can resume at 512"}
    assert reasons


@pytest.mark.parametrize("command", [WriteDue(99, b"x", 0, b""), WriteDue(1, b"x" * 32, 0, b""), DemoteDue("nobody")])
def test_what_is_gone_by_then_is_nothing(command):
    """A command that comes due after its boundary, layout or tenant went changes nothing."""
    world, _, _ = world_with(DiskWritePolicy.ALWAYS)
    decision = decide(world.state, command)
    assert (decision.events, decision.effects) == ((), ())


@pytest.mark.parametrize("policy", list(DiskWritePolicy))
def test_caps_on_disk_hold_and_replay_and_snapshot_agree(policy):
    """Whatever the policy writes, no cap is passed, and log and snapshot lead to the same state."""
    world, user, number = world_with(policy, "CXST", disk_bytes=MIB, disk_tenant_entries=120)
    for one in range(40):
        user.store(number, prompt(one % 25), 512)
        hit = user.acquire(number, prompt(one % 7, 513), restore=False)
        if hit.lease:
            user.ok(Release(hit.lease))
    assert violations(world.state) == []
    assert world.state.disk_bytes <= MIB
    assert sum(amount.entries for amount in world.state.disk_use.values()) <= 120
    assert world.replayed().digest() == world.state.digest()
    assert decode_state(encode_state(world.state), world.config).digest() == world.state.digest()


def test_epochs_that_drain_are_never_asked_about():
    """A policy does nothing for an engine's own unnamed weights."""
    world, user, number = world_with(DiskWritePolicy.ALWAYS, allow_unpinned=True)
    unnamed = user.register(pick("CM", weights_digest=""))
    user.store(unnamed, prompt(1), 512)
    assert not isinstance(user.ask_reserve(number, prompt(2), 512), Failed)
    assert why(world) == []
    effects = [effect for effect in (world.held or []) if isinstance(effect, Later)]
    assert effects == []
