"""Retirement: one event ends everything of some weights, or of a kernel, and what runs meanwhile comes to nothing."""

import pytest
from msgspec.structs import replace

from kvledger.epochs import EpochState
from kvledger.layout import KernelABI
from kvledger.verdict import Code, Layer
from kvledger.wire.replies import Failed
from kvledger.wire.requests import (
    Acquire,
    Commit,
    Epochs,
    Fingerprints,
    Offload,
    Register,
    Release,
    Reserve,
    Restore,
    SetEpoch,
)
from kvledger_storage import events
from kvledgerd.core.decision import Decision
from kvledgerd.core.transitions import IN_MEMORY, ON_DISK_TOO, Happening, ObjectState, follow
from support.epochs import PROMPT, become, cut_codes, states, stored, told
from support.layouts import pick
from support.world import World

CANARY, ACTIVE, DRAINING, RETIRED = EpochState


def test_a_retirement_is_one_event_that_ends_everything():
    """One event makes every object invalid: memory is free, records are given back, nothing is found or kept."""
    user, number = stored()
    user.offload(number, PROMPT, 512, drop=False)
    user.store(number, PROMPT, 576)
    objects, log = user.world.state.objects, len(user.world.log)
    reply = become(user, RETIRED)
    assert (reply.before, reply.invalid) == (ACTIVE, objects)
    assert len(user.world.log) == log + 1
    state = user.world.state
    assert (state.objects, state.cells, state.nodes, state.disk_bytes, user.world.disk) == (0, {}, {}, 0, {})
    assert not any(pool.live_bytes for pool in state.pools.values())


def test_a_look_up_of_retired_weights_says_so():
    """It misses with one cut at layer 2 that names the weights, and wants nothing stored."""
    user, number = stored()
    become(user, RETIRED)
    missed = user.acquire(number, PROMPT)
    assert (missed.usable_tokens, missed.lease, missed.wanted, missed.restorable) == (0, 0, [], [])
    assert [(c.start, c.end, c.code, c.detail) for c in missed.cuts] == [
        (0, 600, Code.EPOCH_RETIRED, "test with weights w1 was retired")
    ]


def test_nothing_acts_on_retired_weights():
    """Reserve, offload, restore and new layouts are refused by type; a layout that is known keeps its number."""
    user, number = stored()
    become(user, RETIRED)
    at = user.boundary(number, PROMPT, 512)
    requests = [Reserve(number, at), Offload(number, at), Restore(number, at), Register(pick("CXST", revision="b"))]
    for refused in map(user.ask, requests):
        assert isinstance(refused, Failed)
        assert (refused.code, refused.field) == ("epoch", "layout")
        assert "audit epochs" in refused.remedy
    assert user.register(pick("CXST")) == number


def test_leased_bytes_stay_until_they_are_released():
    """What a lease reads when its weights are retired keeps bytes and generation; then it is free, and not before."""
    user, number = stored()
    held = user.acquire(number, PROMPT)
    before, live = user.read(held), sum(p.live_bytes for p in user.world.state.pools.values())
    become(user, RETIRED)
    assert user.read(held) == before
    kept = sum(p.live_bytes for p in user.world.state.pools.values())
    assert 0 < kept <= live
    other = user.register(pick("CXST", weights_digest="w2"))
    user.store(other, PROMPT, 512, seed=9)
    assert user.read(held) == before
    user.ok(Release(held.lease))
    become(user, RETIRED, "w2")
    assert not any(pool.live_bytes for pool in user.world.state.pools.values())


def test_a_lease_of_retired_weights_answers_for_nothing():
    """Fingerprints of a lease whose objects are invalid are refused: there is nothing any more to compare with."""
    user, number = stored()
    held = user.acquire(number, PROMPT)
    become(user, RETIRED)
    refused = user.ask(Fingerprints(held.lease))
    assert (refused.code, refused.field) == ("epoch", "layout")


@pytest.mark.parametrize("filled", [False, True])
def test_a_late_commit_of_retired_weights_is_refused(filled):
    """A reservation ends with its weights and its memory is free; a late commit is refused and stores nothing."""
    user, number = stored()
    late = user.reserve(number, PROMPT, 576)
    if filled:
        user.fill(late)
    become(user, RETIRED)
    refused = user.ask(Commit(late.unit))
    assert (refused.code, refused.field) == ("generation", "unit")
    assert refused.message.endswith("test with weights w1 was retired")
    become(user, ACTIVE)
    assert user.ask(Commit(late.unit)).code == "generation"
    assert user.acquire(number, PROMPT).usable_tokens == 0
    assert not user.world.state.units


def test_a_copy_under_way_frees_its_slots_when_it_is_answered():
    """A put that runs when the weights are retired keeps its slots until it is answered, and not longer."""
    user, number = stored()
    late, world = user.reserve(number, PROMPT, 576), user.world
    world.held = []
    user.fill(late)
    become(user, RETIRED)
    assert sum(p.live_bytes for p in world.state.pools.values()) > 0
    world.release_effects()
    assert (world.state.units, sum(p.live_bytes for p in world.state.pools.values())) == ({}, 0)


def held_back(job, what):
    """A world in which a job of `what` waits for its answer: its user and layout."""
    user, number = stored()
    world, at = user.world, user.boundary(number, PROMPT, 512)
    if what == "restore":
        user.offload(number, PROMPT, 512)
    if what == "verify":
        world.restart()
        user = world.engine()
        number = user.register(pick("CXST"))
    world.held = []
    request = {"offload": lambda: Offload(number, at), "restore": lambda: Restore(number, at)}.get(what)
    waiting = user.ask(request()) if request else user.ask(job(user, number))
    assert isinstance(waiting, Decision)
    return user, number


def look_up(user, number):
    """A look-up of the whole prompt."""
    return Acquire(number, 600, user.boundary(number, PROMPT).hashes)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("what", ["offload", "restore", "verify"])
def test_a_job_on_retired_weights_is_decided_anew(what, again):
    """A job that runs while its weights are retired leaves nothing, also where they began anew before its answer."""
    user, number = held_back(look_up, what)
    world = user.world
    become(user, RETIRED)
    assert world.state.objects == 0
    if again:
        become(user, ACTIVE)
    world.release_effects()
    state = world.state
    assert (state.objects, state.jobs, state.restoring, state.cells, state.disk_bytes) == (0, {}, {}, {}, 0)
    assert (world.disk, sum(p.live_bytes for p in state.pools.values())) == ({}, 0)
    user.ok(SetEpoch("test", "w1", ACTIVE))
    assert user.acquire(number, PROMPT).usable_tokens == 0


@pytest.mark.parametrize("what", ["offload", "restore"])
def test_a_void_job_leaves_what_was_stored_meanwhile_alone(what):
    """Weights that began anew store the same tokens while the old job runs: its late answer touches none of it."""
    user, number = held_back(look_up, what)
    world = user.world
    become(user, RETIRED)
    become(user, ACTIVE)
    kept, world.held = world.held, None
    user.store(number, PROMPT, 512, seed=3)
    before = user.read(user.acquire(number, PROMPT))
    world.held = kept
    world.release_effects()
    assert user.read(user.acquire(number, PROMPT)) == before
    assert (world.disk, world.state.disk_bytes) == ({}, 0)


@pytest.mark.parametrize("what", ["offload", "restore"])
def test_a_job_outlives_two_retirements(what):
    """Weights that are retired, begin anew and are retired again while one job runs: its answer still frees it all."""
    # Found by the explorer: the second retirement voided the job once more, and would have ended the daemon.
    user, number = held_back(look_up, what)
    for state in (RETIRED, ACTIVE, RETIRED, ACTIVE):
        become(user, state)
    user.world.release_effects()
    state = user.world.state
    assert (state.jobs, state.cells, state.restoring, user.world.disk) == ({}, {}, {}, {})
    assert not any(pool.live_bytes for pool in state.pools.values())
    user.store(number, PROMPT, 512)


def test_a_restart_ends_a_void_job():
    """A daemon that dies while a job on retired weights runs starts with nothing of it."""
    for what in ("offload", "restore", "verify"):
        user, _ = held_back(look_up, what)
        become(user, RETIRED)
        user.world.restart()
        state = user.world.state
        assert (state.objects, state.jobs, state.cells, user.world.disk) == (0, {}, {}, {})
        assert not any(pool.live_bytes for pool in state.pools.values())


def test_retired_weights_begin_anew_empty():
    """Weights that are rolled back to begin with nothing, and store and hit as new ones do."""
    user, number = stored()
    become(user, RETIRED)
    become(user, CANARY)
    assert user.acquire(number, PROMPT).usable_tokens == 0
    user.store(number, PROMPT, 512)
    assert user.acquire(number, PROMPT).usable_tokens == 512


def test_a_retirement_outlives_a_restart():
    """After a restart retired weights are retired still, and nothing is found in memory or on disk."""
    user, number = stored()
    user.offload(number, PROMPT, 512, drop=False)
    become(user, RETIRED)
    user.world.restart()
    again = user.world.engine()
    assert states(again) == {"w1": RETIRED}
    assert (Layer.IDENTITY, Code.EPOCH_RETIRED) in cut_codes(again.acquire(number, PROMPT))


def test_marks_of_damage_end_with_their_epoch():
    """A block of which only a mark of damage is left ends too."""
    user, number = stored(pick("C"))
    user.offload(number, PROMPT, 512)
    user.world.disk = dict.fromkeys(user.world.disk, b"rot")
    user.restore(number, PROMPT, 512)
    assert user.world.state.cells
    become(user, RETIRED)
    assert user.world.state.cells == {}


def with_kernel(number: int, **fields):
    """A layout whose rows were made by version `number` of a kernel."""
    made = pick("CXST", **fields)
    return replace(made, abi=made.abi | {"C": KernelABI(name="flash", number=number)})


def test_a_kernel_is_retired_with_every_layout_that_has_it():
    """Layouts of these weights in which the kernel ABI occurs end, no others, and the cut names kernel and group."""
    user = World().engine()
    layouts = {
        "old": with_kernel(1),
        "old too": with_kernel(1, revision="b"),
        "new": with_kernel(2),
        "other weights": with_kernel(1, weights_digest="w2"),
    }
    numbers = {name: user.register(what) for name, what in layouts.items()}
    for number in numbers.values():
        user.store(number, PROMPT, 512)
    reply = become(user, RETIRED, kernel="flash", kernel_number=1)
    assert (reply.before, reply.invalid > 0) == (ACTIVE, True)
    usable = {name: user.acquire(number, PROMPT).usable_tokens for name, number in numbers.items()}
    assert usable == {"old": 0, "old too": 0, "new": 512, "other weights": 512}
    (cut,) = user.acquire(numbers["old"], PROMPT).cuts
    assert (cut.code, cut.detail) == (
        Code.EPOCH_RETIRED,
        "kernel ABI flash 1 of C was retired for test with weights w1",
    )
    assert user.ok(Epochs()).epochs[0].kernels == ["flash 1"]
    assert len(told(user.world, events.KernelRetired)) == 1


def test_a_retired_kernel_stays_retired():
    """A layout that brings a retired kernel ABI later is refused, whatever became of its weights since."""
    user = World().engine()
    for number in (1, 2):
        user.register(with_kernel(number))
    for _ in range(2):
        become(user, RETIRED, kernel="flash", kernel_number=1)
    assert len(told(user.world, events.KernelRetired)) == 1
    become(user, RETIRED)
    become(user, ACTIVE)
    refused = user.ask(Register(with_kernel(1, revision="b")))
    assert (refused.code, refused.field) == ("epoch", "layout")
    assert user.register(with_kernel(3))


def test_a_kernel_can_only_be_retired():
    """No other state is meant for a kernel ABI."""
    user, _ = stored()
    refused = user.ask(SetEpoch("test", "w1", DRAINING, kernel="plain", kernel_number=1))
    assert (refused.code, refused.field) == ("caller", "kernel")


@pytest.mark.parametrize(("name", "version"), [("flush", 1), ("flash", 3)])
def test_a_kernel_that_no_layout_has_is_refused(name, version):
    """A misspelt kernel ABI is told from those that there are, leaves no event, and can still be brought later."""
    user = World().engine()
    user.register(with_kernel(2))
    before = len(user.world.log)
    refused = user.ask(SetEpoch("test", "w1", RETIRED, kernel=name, kernel_number=version))
    assert (refused.code, refused.field) == ("not_found", "kernel")
    assert "flash:2, plain:1" in refused.message
    assert len(user.world.log) == before
    assert user.register(with_kernel(3))


def test_a_refusal_names_some_of_many_kernels():
    """With many kernel ABIs the refusal names the first and counts the others."""
    user = World().engine()
    for number in range(1, 12):
        user.register(with_kernel(number))
    refused = user.ask(SetEpoch("test", "w1", RETIRED, kernel="flush", kernel_number=1))
    assert "flash:8 and 4 more" in refused.message


def test_every_state_with_copies_can_become_invalid():
    """A retirement meets objects in every state that has copies, and the table leads each of them to INVALID."""
    for state in IN_MEMORY | ON_DISK_TOO:
        assert follow(state, Happening.INVALIDATE) is ObjectState.INVALID
