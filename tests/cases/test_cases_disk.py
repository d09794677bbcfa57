"""Field cases about disk, late answers and restarts, as far as the core decides them."""

from itertools import product

import pytest

from kvledger.kinds import Kind
from kvledger.verdict import Code
from kvledger.wire.replies import Failed, Offloaded, Pending
from kvledger.wire.requests import Abort, Acquire, Evict, Offload, Put, PutRange, Release, Restore
from kvledger_storage.blob_ref import BlobRef
from kvledgerd.core.commands import Copied, RestoreDone, Verified, Written
from kvledgerd.core.config import PAGE, CoreConfig
from support.layouts import pick
from support.world import World

PROMPT = list(range(600))
OTHER = [t + 1000 for t in PROMPT]
LAYOUTS = ["CM", "CXST", "TSXC"]


def stored(letters, end=512, **config):
    """A world in which one engine stored a boundary."""
    fields = {"memory_bytes": 64 << 20, "arena_bytes": 1 << 20, "disk_bytes": 64 << 20} | config
    world = World(CoreConfig(**fields))
    user = world.engine()
    number = user.register(pick(letters))
    user.store(number, PROMPT, end)
    return world, user, number


def on_disk(letters, **config):
    """The same with its boundary on disk only."""
    world, user, number = stored(letters, **config)
    reply = user.offload(number, PROMPT, 512)
    assert isinstance(reply, Offloaded)
    assert not any(cell.memory for cell in world.state.cells.values())
    return world, user, number


def clean(world):
    """Nothing is held, pinned or under way, and disk holds exactly what the state knows."""
    assert (world.state.units, world.state.jobs, world.state.restoring) == ({}, {}, {})
    assert not any(cell.pins or cell.limbo for cell in world.state.cells.values())
    assert set(world.disk) == world.records()


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("victim", [0, 1, -2])
def test_f07_what_is_damaged_becomes_a_miss_once_and_is_stored_again(letters, victim):
    """A damaged record is a miss with its reason; a later store of the same key is a hit with the right bytes."""
    world, user, number = on_disk(letters)
    world.disk[sorted(world.disk)[victim]] = b"cut"
    assert isinstance(user.restore(number, PROMPT, 512), Failed)
    missed = user.acquire(number, PROMPT)
    assert (missed.usable_tokens, missed.lease) == (0, 0)
    clean(world)
    user.store(number, PROMPT, 512, seed=3)
    user.restore(number, PROMPT, 512)
    acquired = user.acquire(number, PROMPT)
    assert acquired.usable_tokens == 512
    assert any(b"/3;" in data for data in user.read(acquired).values())
    user.ok(Release(acquired.lease))
    clean(world)


@pytest.mark.parametrize("letters", LAYOUTS)
def test_p27_l05_a_failed_offload_leaves_its_source(letters):
    """Nothing could be written: the reply says so, memory is as it was, and nothing counts as backed up."""
    world, user, number = stored(letters)
    before = user.acquire(number, PROMPT)
    world.held = []
    user.ask(Offload(number, user.boundary(number, PROMPT, 512), drop_memory=True))
    (write,) = world.held
    world.held = None
    world.do(Written(write.job, error="no space left"))
    user.ok(Release(before.lease))
    assert world.state.disk_bytes == 0
    assert not any(cell.disk or cell.manifest for cell in world.state.cells.values())
    assert user.acquire(number, PROMPT).usable_tokens == 512
    assert "no space left" in str(world.state.outcomes[write.job])


@pytest.mark.parametrize("letters", LAYOUTS)
def test_p27_a_restore_that_finds_no_room_changes_nothing(letters):
    """The memory is leased: the restore is refused with numbers, and the boundary stays on disk whole."""
    sizes = {kind: p.live_bytes for (_, kind), p in stored(letters)[0].state.pools.items()}
    _, user, number = on_disk(letters, kind_bytes=sizes)
    user.store(number, OTHER, 512)
    held = user.acquire(number, OTHER)
    refused = user.restore(number, PROMPT, 512)
    assert (refused.code, refused.field) == ("capacity", "kind_bytes")
    assert Code.ON_DISK in {cut.code for cut in user.acquire(number, PROMPT, restore=False).cuts}
    user.ok(Release(held.lease))
    assert not isinstance(user.restore(number, PROMPT, 512), Failed)
    assert user.acquire(number, PROMPT).usable_tokens == 512


@pytest.mark.parametrize("letters", LAYOUTS)
def test_l31_what_is_being_restored_or_written_is_not_evicted(letters):
    """Between look-up and load nothing goes: eviction counts what a job keeps, and the load is served."""
    world, user, number = on_disk(letters)
    world.held = []
    assert isinstance(user.ask(Restore(number, user.boundary(number, PROMPT, 512), wait_ms=0)), Pending)
    for name in letters:
        kind = world.state.layouts[number].layout.group(name).kind
        evicted = user.ok(Evict(kind, number, user.boundary(number, PROMPT, 512), name, disk=True))
        assert (evicted.dropped, evicted.kept > 0) == (0, True)
    assert isinstance(user.ask(Restore(number, user.boundary(number, PROMPT, 512), wait_ms=0)), Pending)
    assert len(world.state.jobs) == 1
    world.release_effects()
    assert user.acquire(number, PROMPT).usable_tokens == 512


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_l36_the_cap_on_disk_holds_with_writes_under_way(letters, at_once):
    """Offloads that run together never pass the cap: what does not fit is refused with numbers, after restarts too."""
    world, user, number = stored(letters)
    user.offload(number, PROMPT, 512, drop=False)
    world, user, number = stored(letters, disk_bytes=world.state.disk_bytes * 2 + 4 * PAGE)
    prompts = [PROMPT, *([t + 1000 * n for t in PROMPT] for n in range(1, 5))]
    for prompt in prompts[1:]:
        user.store(number, prompt, 512)
    refused = 0
    for first in range(0, 5, at_once):
        world.held = []
        for prompt in prompts[first : first + at_once]:
            reply = user.ask(Offload(number, user.boundary(number, prompt, 512)))
            refused += isinstance(reply, Failed) and (reply.code, reply.field) == ("capacity", "disk_bytes")
        world.release_effects()
        assert world.state.disk_bytes <= world.config.disk_bytes
    assert refused >= 3
    world.restart()
    assert world.state.disk_bytes <= world.config.disk_bytes
    assert set(world.disk) == world.records()


@pytest.mark.parametrize("letters", LAYOUTS)
def test_l36_f01_after_a_restart_disk_is_found_and_half_writes_are_not(letters):
    """SIGKILL while a second boundary is being written: the first is found, nothing of the second is."""
    world, user, number = on_disk(letters)
    user.store(number, OTHER, 512)
    world.held = []
    user.ask(Offload(number, user.boundary(number, OTHER, 512), drop_memory=True))
    world.restart(arenas=False, boot=b"c" * 16)
    user = world.engine("after")
    number = user.register(pick(letters))
    assert user.acquire(number, OTHER).hash_tokens == 0
    user.restore(number, PROMPT, 512)
    acquired = user.acquire(number, PROMPT)
    assert acquired.usable_tokens == 512
    assert all(b"/0;" in data for data in user.read(acquired).values())


LATE = ["abort", "gone", "restart"]


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("end", LATE)
@pytest.mark.parametrize("error", ["", "broken"])
def test_l32_a_late_copy_fills_nobody_elses_slots(letters, end, error):
    """A copy that is answered after its unit ended publishes nothing, frees its slots once, and leaks nothing."""
    world, user, number = stored(letters)
    base = world.state.objects
    reserved = user.reserve(number, OTHER, 512)
    item = world.state.units[reserved.unit].objects[0]
    kind = world.state.layouts[number].layout.groups[item.group].kind
    world.rings[user.caller.connection, 0] = bytes(item.length)
    world.held = []
    user.ask(Put(reserved.unit, [PutRange(kind, 0, 0, 0, item.length)]))
    (copy,) = world.held
    if end == "abort":
        user.ok(Abort(reserved.unit))
    elif end == "gone":
        user.leave()
    else:
        world.restart()
    if end != "restart":
        assert world.state.objects > base
    world.held = None
    for _ in range(2):
        world.do(Copied(copy.job, ((0, b"\1" * 16),), error))
    assert world.state.objects == base
    other = world.engine("other")
    assert other.acquire(other.register(pick(letters)), OTHER).hash_tokens == 0
    clean(world)


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("end", ["gone", "restart"])
def test_a_late_write_is_kept_or_given_back(letters, end):
    """Records whose job is still there become disk copies; those of before a restart are given back."""
    world, user, number = stored(letters)
    world.held = []
    user.ask(Offload(number, user.boundary(number, PROMPT, 512)))
    (write,) = world.held
    world.held = None
    if end == "gone":
        user.leave()
    else:
        world.restart()
    refs = tuple(world._write(b"r") for _ in range(len(write.records) + 1))
    for _ in range(2):
        world.do(Written(write.job, refs))
    assert not world.state.jobs
    assert set(world.disk) == world.records()
    assert bool(world.disk) == (end == "gone")


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("end", ["gone", "restart"])
def test_a_late_restore_changes_nothing_wrong(letters, end):
    """A restore outlives who asked for it; one that is answered after a restart publishes nothing."""
    world, user, number = on_disk(letters)
    world.held = []
    user.ask(Restore(number, user.boundary(number, PROMPT, 512), wait_ms=0))
    held, world.held = world.held, None
    read = held[-1]
    if end == "gone":
        user.leave()
        for effect in held:
            world.run(effect)
    else:
        world.restart()
        world.do(RestoreDone(read.job, ("",) * len(read.records)))
        assert not any(cell.memory for cell in world.state.cells.values())
    world.do(RestoreDone(read.job, ("",) * len(read.records)))
    clean(world)
    other = world.engine("other")
    number = other.register(pick(letters))
    other.restore(number, PROMPT, 512)
    acquired = other.acquire(number, PROMPT)
    assert acquired.usable_tokens == 512
    assert all(b"/0;" in data for data in other.read(acquired).values())


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("right", [True, False])
def test_a_late_verification_judges_its_own_bytes_only(letters, right):
    """Bytes adopted after a restart are offered only when verified; a second answer changes nothing."""
    world, user, number = stored(letters)
    world.restart()
    user = world.engine("after")
    number = user.register(pick(letters))
    world.held = []
    user.ask(Acquire(number, 600, user.boundary(number, PROMPT).hashes))
    (check,) = world.held
    world.held = None
    world.restart()
    user = world.engine("again")
    world.do(Verified(check.job, (b"\0" * 16,) * len(check.slots)))
    clean(world)
    if not right:
        arena, offset, _ = check.slots[0]
        world.memory[arena, offset] = b"changed"
    assert user.acquire(number, PROMPT).usable_tokens == (512 if right else 0)
    assert user.acquire(number, PROMPT).usable_tokens == (512 if right else 0)


@pytest.mark.parametrize("letters", LAYOUTS)
def test_records_that_nobody_needs_are_given_back(letters):
    """Storing, offloading, damaging, evicting and forgetting leave exactly the records that the state knows."""
    world, user, number = on_disk(letters)
    user.restore(number, PROMPT, 512)
    at = user.boundary(number, PROMPT, 512)
    for spec, block in product(world.state.layouts[number].layout.groups, (1, -1)):
        user.ask(Evict(spec.kind, number, at, spec.name, block, disk=True))
        assert set(world.disk) == world.records()
    user.store(number, PROMPT, 512, seed=1)
    user.offload(number, PROMPT, 512)
    assert set(world.disk) == world.records()
    user.ok(Evict(Kind.DISK_PREFIX, number, user.boundary(number, PROMPT, 512)))
    for spec in world.state.layouts[number].layout.groups:
        user.ask(Evict(spec.kind, number, user.boundary(number, PROMPT, 512), spec.name, disk=True))
    assert (world.disk, world.state.disk_bytes, world.state.objects, world.state.nodes) == ({}, 0, 0, {})


@pytest.mark.parametrize("letters", ["C", "CM", "CS", "CXST", "TSXC"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("end", ["evicted", "damaged"])
def test_l36_a_prefix_without_objects_keeps_no_record(letters, turned, end):
    """Where every object of a prefix lost its disk copy, asked for or damaged, its manifest takes no room either."""
    world, user, number = on_disk(letters)
    if end == "damaged":
        world.disk = dict.fromkeys(world.disk, b"other bytes")
        assert isinstance(user.restore(number, PROMPT, 512), Failed)
    else:
        for name in sorted(letters, reverse=turned):
            user.evict(number, PROMPT, 512, name, disk=True)
        assert world.state.cells == {}
    assert (world.state.disk_bytes, world.disk) == (0, {})
    clean(world)


def test_records_of_an_unknown_job_are_given_back():
    """An answer that no job waits for hands its records to be dropped."""
    world, *_ = stored("CM")
    world.disk[1, 77] = b"orphan"
    world.do(Written(999, (BlobRef(1, 77, 6),)))
    assert world.disk == {}


@pytest.mark.parametrize("letters", ["CX", "XC", "CXST"])
def test_half_a_couple_on_disk_is_given_back_with_the_commit_that_replaces_it(letters):
    """Rows whose keys are gone are replaced together with them, and their record on disk goes too."""
    world, user, number = stored(letters)
    user.offload(number, PROMPT, 512, drop=False)
    user.evict(number, PROMPT, 512, "X", block=0, disk=True)
    assert user.store(number, PROMPT, 512, seed=2).stored == 2
    assert set(world.disk) == world.records()
