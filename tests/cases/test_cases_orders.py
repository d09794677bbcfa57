"""Field cases about races whose order has to be forced: a job is held back while something else happens.

What many clients at once do to the real daemon stands in `test_cases_races.py`.
"""

from itertools import permutations

import pytest

from kvledger.kinds import Kind
from kvledger.verdict import Code
from kvledger.wire.replies import Failed, Pending, Restored
from kvledger.wire.requests import Abort, Acquire, Commit, Evict, Offload, Put, PutRange, Release, Restore
from kvledgerd.core.commands import Ask, EngineSilent, RestoreDone, Written
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.decision import DiskRead, DiskWrite
from kvledgerd.core.transitions import ObjectState
from support.layouts import pick
from support.world import World

PROMPT = list(range(600))
OTHER = [t + 1000 for t in PROMPT]
THIRD = [t + 2000 for t in PROMPT]
LAYOUTS = ["CM", "CXST", "TSXC"]


def tight(letters, units, end=512, only=tuple(Kind)):
    """A world whose memory holds exactly `units` boundaries of a layout, of some kinds, and one engine in it."""
    world = World()
    user = world.engine()
    user.store(user.register(pick(letters)), range(end), end)
    kinds = {kind: pool.live_bytes * units for (_, kind), pool in world.state.pools.items() if kind in only}
    world = World(CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, disk_bytes=64 << 20, kind_bytes=kinds))
    user = world.engine()
    return world, user, user.register(pick(letters))


def on_disk(letters, units=2):
    """The same with one boundary on disk only."""
    world, user, number = tight(letters, units)
    user.store(number, PROMPT, 512)
    user.offload(number, PROMPT, 512)
    return world, user, number


def in_memory(user, number, tokens):
    """Return what is usable of a prompt without its disk copies; no lease stays."""
    acquired = user.acquire(number, tokens, restore=False)
    if acquired.lease:
        user.ok(Release(acquired.lease))
    return acquired.usable_tokens


def evict_all(user, number, tokens, end, *, disk=False):
    """Ask for every kind of a boundary to be dropped; return how many copies went and how many stayed."""
    at = user.boundary(number, tokens, end)
    kinds = {group.kind for group in user.world.state.layouts[number].layout.groups}
    replies = [user.ok(Evict(kind, number, at, disk=disk)) for kind in sorted(kinds)]
    return sum(r.dropped for r in replies), sum(r.kept for r in replies)


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("error", ["", "no space left"])
def test_p26_what_is_being_written_to_disk_is_not_evicted_before_the_answer(letters, error):
    """A copy's source stays while the copy runs, whoever wants its room; with the answer it is anybody's again."""
    world, user, number = tight(letters, 1)
    user.store(number, PROMPT, 512)
    world.held = []
    user.ask(Offload(number, user.boundary(number, PROMPT, 512)))
    (write,) = (effect for effect in world.held if isinstance(effect, DiskWrite))
    assert user.ask_reserve(number, OTHER, 512).code == "capacity"
    dropped, kept = evict_all(user, number, PROMPT, 512, disk=True)
    assert (dropped, kept) == (0, len(write.records))
    before = [world.memory[record.arena, record.offset] for record in write.records]
    held, world.held = world.held, None
    if error:
        world.do(Written(write.job, error=error))
    else:
        for effect in held:
            world.run(effect)
        assert [data for _, data in sorted(world.disk.items())][: len(before)] == before
    user.store(number, OTHER, 512)
    assert user.acquire(number, OTHER).usable_tokens == 512
    assert user.acquire(number, PROMPT, restore=False).usable_tokens == 0
    assert bool(user.acquire(number, PROMPT).offers) == (not error)


@pytest.mark.parametrize("letters", LAYOUTS)
def test_p26_what_is_being_verified_is_not_evicted_before_the_answer(letters):
    """Bytes adopted from before a restart keep their place while they are hashed, and nobody else's are trusted."""
    world, user, number = tight(letters, 1)
    user.store(number, PROMPT, 512)
    world.restart()
    user = world.engine("after")
    world.held = []
    user.ask(Acquire(number, 600, user.boundary(number, PROMPT).hashes))
    assert user.ask_reserve(number, OTHER, 512).code == "capacity"
    assert evict_all(user, number, PROMPT, 512)[0] == 0
    world.release_effects()
    assert user.acquire(number, PROMPT).usable_tokens == 512


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("then", ["abort", "silence", "death"])
def test_p26_slots_of_a_copy_under_way_are_nobodys_until_the_answer(letters, then):
    """A reservation ends while its bytes are being copied in: its slots are given to others only when that is over."""
    world, user, number = tight(letters, 1)
    other = world.engine("other")
    reserved = user.reserve(number, PROMPT, 512)
    item = world.state.units[reserved.unit].objects[0]
    kind = world.state.layouts[number].layout.groups[item.group].kind
    world.rings[user.caller.connection, 0] = b"\xee" * item.length
    world.held = []
    user.ask(Put(reserved.unit, [PutRange(kind, 0, 0, 0, item.length)]))
    if then == "abort":
        world.do(Ask(user.caller, Abort(reserved.unit)))
    elif then == "silence":
        world.do(EngineSilent(user.caller.engine, silent=True))
    else:
        user.leave("killed")
    held, world.held = world.held, []
    assert other.ask_reserve(number, OTHER, 512).code == "capacity"
    world.held = held
    world.release_effects()
    other.store(number, OTHER, 512, seed=5)
    acquired = other.acquire(number, OTHER)
    assert all(b"/5;" in data for data in other.read(acquired).values())


def failing(letters, victim):
    """Start a restore and hold it; return the world, its user and layout, and the read with one victim in it."""
    world, user, number = on_disk(letters)
    world.held = []
    assert isinstance(user.ask(Restore(number, user.boundary(number, PROMPT, 512), wait_ms=0)), Pending)
    (read,) = (effect for effect in world.held if isinstance(effect, DiskRead))
    world.held = None
    return world, user, number, read, victim % len(read.records)


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("victim", [0, 1, -1])
@pytest.mark.parametrize("error", ["damaged: another fingerprint", "failed: I/O error"])
def test_p31_v41_what_is_being_loaded_is_promised_to_nobody(letters, victim, error):
    """Before the answer no look-up calls it ready, and after a failed one none ever does."""
    world, user, number, read, victim = failing(letters, victim)
    early = user.acquire(number, PROMPT)
    assert [offer.ready for offer in early.offers] == [False]
    assert user.acquire(number, PROMPT, restore=False).usable_tokens == 0
    errors = [world._read(record) for record in read.records]
    errors[victim] = error
    world.do(RestoreDone(read.job, tuple(errors)))
    cell = world.state.cells.get(read.records[victim].cell)
    state = cell.state(read.records[victim].slot) if cell is not None else ObjectState.VACANT
    assert state is (ObjectState.ON_DISK if error.startswith("failed") else ObjectState.VACANT)
    late = user.acquire(number, PROMPT)
    assert not any(offer.ready for offer in late.offers)
    assert bool(late.offers) == error.startswith("failed")
    refused = user.ask(Restore(number, user.boundary(number, PROMPT, 512)))
    assert isinstance(refused, Restored if error.startswith("failed") else Failed)


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("victim", [0, -1])
def test_l19_a_failed_load_is_reported_once_and_as_a_failure(letters, victim):
    """Whoever waits for a load that fails is told so; the damage stands in the log once, whoever asks afterwards."""
    world, user, number = on_disk(letters)
    records = sorted(world.disk)[:-1]
    world.disk[records[victim]] = b"other bytes"
    answers = [user.ask(Restore(number, user.boundary(number, PROMPT, 512))) for _ in range(3)]
    assert all(isinstance(answer, Failed) for answer in answers)
    assert "damaged" in answers[0].message
    assert [user.acquire(number, PROMPT).usable_tokens for _ in range(3)] == [0, 0, 0]
    told = [event for event in world.events("restore_finished.1") if any(event.errors)]
    assert len(told) == 1
    assert sum(bool(error) for error in told[0].errors) == 1


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("between", ["evicted", "damaged", "moved"])
def test_p35_what_goes_between_verdict_and_restore_is_refused_in_words(letters, between):
    """An offer on disk is no promise: if it goes before its restore is asked for, the reply says so."""
    world, user, number = on_disk(letters, 1)
    offered = user.acquire(number, PROMPT)
    assert [offer.ready for offer in offered.offers] == [False]
    if between == "evicted":
        evict_all(user, number, PROMPT, 512, disk=True)
    elif between == "damaged":
        for at in world.disk:
            world.disk[at] = b"x"
    else:
        user.store(number, PROMPT, 512, seed=3)
    reply = user.restore(number, PROMPT, 512)
    user.ok(Release(offered.lease))
    found = user.acquire(number, PROMPT)
    if between == "moved":
        assert isinstance(reply, Restored)
        assert found.usable_tokens == 512
    else:
        assert (isinstance(reply, Failed), bool(reply.remedy)) == (True, True)
        assert found.usable_tokens == 0


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("order", list(permutations(["evict", "pressure", "offload"])))
def test_p35_a_verdict_and_its_lease_are_one_decision(letters, order):
    """Whatever happens after a look-up in whatever order, what it named is there with its bytes until the release."""
    world, user, number = tight(letters, 1)
    other = world.engine("other")
    user.store(number, PROMPT, 512)
    held = user.acquire(number, PROMPT)
    before = user.read(held)
    for step in order:
        if step == "evict":
            assert evict_all(other, number, PROMPT, 512)[0] == 0
        elif step == "pressure":
            assert other.ask_reserve(number, OTHER, 512).code == "capacity"
        else:
            other.offload(number, PROMPT, 512)
        assert user.read(held) == before
    user.ok(Release(held.lease))
    other.store(number, OTHER, 512)


@pytest.mark.parametrize("letters", LAYOUTS)
def test_p14_bytes_that_were_reused_bear_another_generation(letters):
    """A slot that is given to the next object moves every generation in it, so an old handle fits no byte of it."""
    world, user, number = tight(letters, 1)
    user.store(number, PROMPT, 512)
    held = user.acquire(number, PROMPT)
    runs = [*held.rows, *held.offers[0].runs]
    pages = {(r.arena, r.offset + i * r.stride): r.generation for r in runs for i in range(r.count)}
    assert all(world.generations[page] == generation for page, generation in pages.items())
    world.do(EngineSilent(user.caller.engine, silent=True))
    other = world.engine("other")
    other.reserve(number, OTHER, 512)
    assert not any(world.generations[page] == generation for page, generation in pages.items())
    other.leave()
    other = world.engine("third")
    other.reserve(number, PROMPT, 512)
    assert not any(world.generations[page] == generation for page, generation in pages.items())


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_p23_releases_alone_make_room_again(letters, order):
    """Releases in any order free what they held, without any look-up between them; then a store finds its room."""
    world, user, number = tight(letters, 1)
    user.store(number, PROMPT, 512)
    leases = [user.acquire(number, PROMPT).lease for _ in order]
    for n in order:
        assert user.ask_reserve(number, OTHER, 512).code == "capacity"
        user.ok(Release(leases[n]))
    assert not any(cell.pins for cell in world.state.cells.values())
    user.store(number, OTHER, 512)


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("blocks", [1, 2, 4])
@pytest.mark.parametrize("written", [True, False])
def test_p17_what_makes_room_goes_to_disk_or_ends_and_the_log_says_why(letters, blocks, written):
    """Under pressure a copy that is on disk too is kept there, every kind of it, and comes back; another one ends."""
    long = list(range(1100))
    world, user, number = tight(letters, 1, 1024, only=(Kind.COMPRESSED_KV, Kind.INDEXER_STATE))
    user.store(number, long, 1024)
    if written:
        user.offload(number, long, 1024, drop=False)
    newer = [[t + 5000 * n for t in long] for n in range(1, 4 // blocks + 1)]
    for tokens in newer:
        user.store(number, tokens, 256 * blocks)
    assert [in_memory(user, number, tokens) for tokens in newer] == [256 * blocks] * len(newer)
    assert set(world.reasons("objects_evicted.1")) == {"room"}
    assert {name for name, _ in world.evicted()} == set(letters)
    found = user.acquire(number, long)
    assert [offer.position for offer in found.offers if not offer.ready] == ([1024] if written else [])
    if written:
        user.ok(Release(found.lease))
        assert isinstance(user.restore(number, long, 1024), Restored)
        acquired = user.acquire(number, long)
        assert acquired.usable_tokens == 1024
        assert all(b"/0;" in data for data in user.read(acquired).values())


@pytest.mark.parametrize("letters", ["C", "CM", "CXST"])
@pytest.mark.parametrize("gone", [0, 1])
def test_p16_a_longer_prefix_on_disk_is_nothing_without_the_shorter_one(letters, gone):
    """A boundary is written with all that it stands on; if a block of that goes, it is neither offered nor restored."""
    world, user, number = on_disk(letters)
    assert {cell.node.depth for cell in world.state.cells.values() if cell.disk} == {1, 2}
    user.evict(number, PROMPT, 512, "C", block=gone, disk=True)
    found = user.acquire(number, PROMPT)
    assert 512 not in [offer.position for offer in found.offers]
    assert (256 in [offer.position for offer in found.offers]) == (letters == "C" and gone == 1)
    refused = user.restore(number, PROMPT, 512)
    if letters == "C" and gone == 1:
        assert refused.code == "not_found", "nothing is known of the second block any more"
    else:
        assert (refused.code, "C (COMPRESSED_KV)" in refused.message) == ("commit_refused", True)


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("wanted", [True, False])
def test_l23_a_lease_has_no_clock(letters, wanted):
    """However many commands pass, a heard engine keeps its lease; a silent one does until its bytes are wanted."""
    world, user, number = tight(letters, 2)
    user.store(number, PROMPT, 512)
    held = user.acquire(number, PROMPT)
    before = user.read(held)
    other = world.engine("other")
    for n in range(20):
        other.store(number, [t + 10_000 * n for t in OTHER], 512)
    assert user.read(held) == before
    world.do(EngineSilent(user.caller.engine, silent=True))
    if wanted:
        kept = other.acquire(number, [t + 10_000 * 19 for t in OTHER])
        other.store(number, THIRD, 512)
        assert kept.lease
        assert user.ask(Release(held.lease)).code == "lease_lost"
    else:
        assert user.read(held) == before
        user.ok(Release(held.lease))


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("pending", ["put", "commit"])
def test_l32_an_engine_that_ends_before_its_last_store_leaves_no_session(letters, pending):
    """An engine's last store is under way when it ends: whole or not at all, and no engine, unit or lease stays."""
    world, user, number = tight(letters, 2)
    user.store(number, PROMPT, 512)
    user.acquire(number, PROMPT)
    reserved = user.reserve(number, OTHER, 512)
    if pending == "commit":
        user.fill(reserved)
        user.ok(Commit(reserved.unit))
        user.leave()
    else:
        world.held = []
        user.ask(_first_put(world, user, reserved))
        user.leave()
        world.release_effects()
    state = world.state
    assert (state.engines, state.units, state.leases, state.jobs) == ({}, {}, {}, {})
    assert not any(cell.pins for cell in state.cells.values())
    other = world.engine("other")
    assert other.acquire(number, OTHER).usable_tokens == (512 if pending == "commit" else 0)


def _first_put(world, user, reserved):
    item = world.state.units[reserved.unit].objects[0]
    world.rings[user.caller.connection, 0] = bytes(item.length)
    kind = world.state.layouts[1].layout.groups[item.group].kind
    return Put(reserved.unit, [PutRange(kind, 0, 0, 0, item.length)])


@pytest.mark.parametrize("name", ["C", "X", "S", "T"])
def test_v12_a_hole_that_comes_after_the_verdict_is_seen_by_the_next(name):
    """A verdict is true at its moment: what goes after its release is cut in the next, by kind and group."""
    world, user, number = tight("CXST", 1)
    user.store(number, PROMPT, 512)
    held = user.acquire(number, PROMPT)
    assert user.evict(number, PROMPT, 512, name).dropped == 0
    user.ok(Release(held.lease))
    assert user.evict(number, PROMPT, 512, name).dropped > 0
    cuts = {(cut.group, cut.kind) for cut in user.acquire(number, PROMPT).cuts if cut.code is not Code.LEAVE}
    assert (name, world.state.layouts[number].layout.group(name).kind) in cuts
    assert Kind.DISK_PREFIX not in {kind for _, kind in cuts}
