"""Field cases about weights and kernels that change under a warm cache."""

import itertools

import pytest
from msgspec.structs import replace

from kvledger.epochs import EpochState
from kvledger.layout import KernelABI
from kvledger.verdict import Code, Layer
from kvledger.wire.requests import Commit, Epochs, Offload, Release, Reserve, Restore, SetEpoch
from kvledgerd.audit.epoch_story import epoch_story
from support.epochs import PROMPT
from support.layouts import pick
from support.refused import write_log
from support.world import World

LETTERS = ["C", "CM", "CXST", "SM"]
PLACES = ["memory", "disk", "both"]


def warm(what, place="memory"):
    """A user with 512 tokens in a place, and the number of their layout."""
    user = World().engine("serving")
    number = user.register(what)
    user.store(number, PROMPT, 512)
    if place != "memory":
        user.offload(number, PROMPT, 512, drop=place == "disk")
    return user, number


def codes(answer):
    """Codes of the layer-2 cuts."""
    return {cut.code for cut in answer.cuts if cut.layer is Layer.IDENTITY}


@pytest.mark.parametrize(("letters", "place"), list(itertools.product(LETTERS, PLACES)))
def test_v35_l17_new_weights_end_all_older_objects_in_one_event(letters, place, tmp_path):
    """Weights are updated: one command ends every older object wherever it lies, leases drain, the audit tells."""
    user, number = warm(pick(letters), place)
    held = user.acquire(number, PROMPT) if place != "disk" else None
    before = user.read(held) if held else None
    new = user.register(pick(letters, weights_digest="w2"))
    assert user.acquire(new, PROMPT).usable_tokens == 0
    objects, events = user.world.state.objects, len(user.world.log)
    assert user.ok(SetEpoch("test", "w1", EpochState.RETIRED)).invalid == objects > 0
    assert len(user.world.log) == events + 1
    missed = user.acquire(number, PROMPT)
    assert (missed.usable_tokens, codes(missed)) == (0, {Code.EPOCH_RETIRED})
    assert (user.world.state.objects, user.world.disk) == (0, {})
    if held:
        assert user.read(held) == before
        user.ok(Release(held.lease))
    assert not any(pool.live_bytes for pool in user.world.state.pools.values())
    write_log(user.world, tmp_path)
    told = [(e.weights, e.what, e.objects) for e in epoch_story(tmp_path) if e.what == EpochState.RETIRED]
    assert told == [("w1", EpochState.RETIRED, objects)]


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize("place", PLACES)
def test_p01_another_model_under_the_same_name_never_reads_the_first(place, restarted, tmp_path):
    """Model B is served under A's name, over A's warm disk: a miss that names the weights, told by the audit too."""
    what = pick("CXST", weights_digest="A")
    user, _ = warm(what, place)
    if restarted:
        user.world.restart(arenas=False, boot=b"c" * 16)
        user = user.world.engine("serving B")
    missed = user.acquire(user.register(replace(what, weights_digest="B")), PROMPT)
    assert missed.usable_tokens == 0
    if place != "memory" or not restarted:
        assert codes(missed) == {Code.IDENTITY_MISMATCH}
    assert user.acquire(user.register(what), PROMPT).usable_tokens == (0 if restarted and place == "memory" else 512)
    write_log(user.world, tmp_path)
    assert [(e.weights, e.what) for e in epoch_story(tmp_path) if e.what in list(EpochState)] == [
        ("A", EpochState.ACTIVE),
        ("B", EpochState.CANARY),
    ]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("group", ["C", "M"])
def test_l09_what_a_retired_kernel_wrote_is_never_read_and_can_be_collected(group, place):
    """A kernel's layout changed, sizes did not: a named miss over the warm disk, and one command collects the rest."""
    what = pick("CM", abi={"C": KernelABI(name="plain"), "M": KernelABI(name="plain")})
    newer = replace(what, abi=what.abi | {group: KernelABI(name="plain", number=2)})
    user, number = warm(what, place)
    user.world.restart()
    user = user.world.engine("serving")
    again = user.register(newer)
    missed = user.acquire(again, PROMPT)
    assert (missed.usable_tokens, codes(missed)) == (0, {Code.ABI_MISMATCH})
    user.store(again, PROMPT, 512, seed=7)
    user.ok(SetEpoch("test", "w1", EpochState.RETIRED, kernel="plain", kernel_number=1))
    assert user.world.disk == {}
    assert codes(user.acquire(number, PROMPT)) == {Code.EPOCH_RETIRED}
    (epoch,) = user.ok(Epochs()).epochs
    assert epoch.kernels == ["plain 1"]


def test_l09_only_the_groups_that_a_retired_kernel_never_wrote_stay():
    """A layout in which the retired kernel occurs in no group keeps everything."""
    old = pick("CM", abi={"C": KernelABI(name="flash"), "M": KernelABI(name="plain")})
    new = replace(old, abi={"C": KernelABI(name="flash", number=2), "M": KernelABI(name="plain")})
    user, number = warm(old)
    again = user.register(new)
    user.store(again, PROMPT, 512)
    user.ok(SetEpoch("test", "w1", EpochState.RETIRED, kernel="flash", kernel_number=1))
    usable = [user.acquire(one, PROMPT).usable_tokens for one in (number, again)]
    assert usable == [0, 512]


def test_l17_a_late_writer_of_the_old_weights_is_refused_in_every_way():
    """Whatever an engine that still runs the old weights tries after their retirement is refused by type."""
    user, number = warm(pick("CM"), "both")
    late = user.reserve(number, PROMPT, 576)
    user.fill(late)
    user.ok(SetEpoch("test", "w1", EpochState.RETIRED))
    at = user.boundary(number, PROMPT, 512)
    replies = [
        user.ask(one) for one in (Commit(late.unit), Reserve(number, at), Offload(number, at), Restore(number, at))
    ]
    assert [reply.code for reply in replies] == ["generation", "epoch", "epoch", "epoch"]
    assert user.world.state.objects == 0
