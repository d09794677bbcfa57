"""Epochs: which states there are, who begins as what, and what may become of it."""

import itertools

import pytest

from kvledger.epochs import EpochState
from kvledger.verdict import Code, Layer
from kvledger.wire.replies import Committed, Restored
from kvledger.wire.requests import (
    Commit,
    Epochs,
    SetEpoch,
)
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.epoch.epochs import NEXT_STATES
from support.epochs import PROMPT, become, cut_codes, prompt, small, states, stored
from support.layouts import pick
from support.world import World

CANARY, ACTIVE, DRAINING, RETIRED = EpochState


def test_the_first_weights_are_active_and_the_next_a_canary():
    """A model's first weights begin active; whatever else comes beside them is a canary; another model has its own."""
    user = World().engine()
    for weights in ("w1", "w2", "w3"):
        user.register(pick("CM", weights_digest=weights))
    user.register(pick("CM", model="other", weights_digest="w1"))
    assert states(user) == {"w1": ACTIVE, "w2": CANARY, "w3": CANARY} | {"w1": ACTIVE}
    assert [(e.model, e.state) for e in user.ok(Epochs()).epochs if e.model == "other"] == [("other", ACTIVE)]


def test_new_weights_are_active_where_no_others_serve():
    """Weights that come while no others are active begin active: somebody drained those on purpose."""
    user, _ = stored()
    become(user, DRAINING)
    user.register(pick("CXST", weights_digest="w2"))
    assert states(user) == {"w1": DRAINING, "w2": ACTIVE}


def test_layouts_of_one_model_and_weights_share_an_epoch():
    """Two layouts of the same model and weights belong to one epoch, whatever else differs."""
    user, _ = stored()
    user.register(pick("CXST", revision="b"))
    (epoch,) = user.ok(Epochs()).epochs
    assert (epoch.layouts, epoch.engine, epoch.kernels) == (2, 0, [])
    assert epoch.memory_bytes == sum(p.live_bytes for p in user.world.state.pools.values())


def test_tenants_have_epochs_of_their_own():
    """What one tenant does to its weights says nothing to another's, and another's are not listed."""
    world = World()
    mine, theirs = world.engine("a", "a"), world.engine("b", "b")
    numbers = [user.register(pick("CM")) for user in (mine, theirs)]
    theirs.store(numbers[1], PROMPT, 512)
    become(mine, RETIRED)
    assert (states(mine), states(theirs)) == ({"w1": RETIRED}, {"w1": ACTIVE})
    assert theirs.acquire(numbers[1], PROMPT).usable_tokens == 512


@pytest.mark.parametrize(("before", "after"), list(itertools.product(EpochState, repeat=2)))
def test_every_change_is_granted_once_or_refused_without_a_trace(before, after):
    """What stands in the table happens in one event; asking again changes nothing; the rest is refused."""
    user, _ = stored()
    user.register(pick("CXST", weights_digest="w2"))
    for step in {CANARY: [], ACTIVE: [ACTIVE], DRAINING: [DRAINING], RETIRED: [RETIRED]}[before]:
        become(user, step, "w2")
    assert states(user)["w2"] is before
    told_before = len(user.world.log)
    reply = user.ask(SetEpoch("test", "w2", after))
    new = user.world.log[told_before:]
    if after is before:
        assert (reply.before, new) == (before, [])
    elif after in NEXT_STATES[before]:
        assert (reply.before, len(new), states(user)["w2"]) == (before, 1, after)
    else:
        assert (reply.code, reply.field, new, states(user)["w2"]) == ("caller", "state", [], before)
        assert reply.remedy


def test_activating_one_drains_the_other():
    """One event makes a canary active and lets the weights that were active drain; canaries beside them stay."""
    user, _ = stored()
    for weights in ("w2", "w3"):
        user.register(pick("CXST", weights_digest=weights))
    reply = become(user, ACTIVE, "w2")
    assert (reply.before, reply.drained, reply.invalid) == (CANARY, "w1", 0)
    assert states(user) == {"w1": DRAINING, "w2": ACTIVE, "w3": CANARY}
    assert become(user, ACTIVE, "w1").drained == "w2"
    assert states(user) == {"w1": ACTIVE, "w2": DRAINING, "w3": CANARY}


def test_only_a_canary_is_announced_before_it_comes():
    """A canary may be named before its first layout; any other change of unknown weights is refused and says so."""
    user, _ = stored()
    for state in (ACTIVE, DRAINING, RETIRED):
        refused = user.ask(SetEpoch("test", "typo", state))
        assert (refused.code, refused.field) == ("not_found", "weights")
    assert states(user) == {"w1": ACTIVE}
    reply = become(user, CANARY, "w2", share=10)
    assert (reply.before, states(user)) == (None, {"w1": ACTIVE, "w2": CANARY})
    user.register(pick("CXST", weights_digest="w2"))
    assert [(e.share, e.layouts) for e in user.ok(Epochs()).epochs] == [(100, 1), (10, 1)]


def test_announcements_are_limited_as_layouts_are():
    """A tenant that announces canaries without end meets the cap on its layouts."""
    user = World(CoreConfig(max_layouts=2)).engine()
    become(user, CANARY, "w1")
    become(user, CANARY, "w2")
    refused = user.ask(SetEpoch("test", "w3", CANARY))
    assert (refused.code, refused.field) == ("limit", "max_layouts")


def test_draining_weights_hit_and_store_nothing():
    """Look-ups hit and leases go on; reservations and commits are refused by the field and say why."""
    user, number = stored()
    held, late = user.acquire(number, PROMPT), user.reserve(number, PROMPT, 576)
    user.fill(late)
    before = user.read(held)
    become(user, DRAINING)
    again = user.acquire(number, PROMPT)
    assert (again.usable_tokens, again.wanted) == (512, [])
    assert user.read(held) == before
    for refused in (user.ask(Commit(late.unit)), user.ask_reserve(number, PROMPT, 576)):
        assert (refused.code, refused.field) == ("epoch", "layout")
        assert "draining" in refused.message
    become(user, ACTIVE)
    assert isinstance(user.ask(Commit(late.unit)), Committed)


def test_draining_weights_still_come_back_from_disk():
    """A boundary of draining weights is restored: reading goes on to the end."""
    user, number = stored()
    user.offload(number, PROMPT, 512)
    become(user, DRAINING)
    assert isinstance(user.restore(number, PROMPT, 512), Restored)
    assert user.acquire(number, PROMPT).usable_tokens == 512


def test_draining_weights_make_room_first():
    """Whoever needs room takes it from draining weights first, however recently these were used."""
    user = World(small(6)).engine()
    old, new = user.register(pick("C")), user.register(pick("C", weights_digest="w2"))
    for number in range(3):
        user.store(new, prompt(number), 256)
    for number in range(3):
        user.store(old, prompt(number), 256)
    become(user, DRAINING)
    for number in range(3):
        user.store(new, prompt(number + 10), 256)
    found = [user.acquire(new, prompt(number), leave=0).usable_tokens for number in (0, 1, 2, 10, 11, 12)]
    assert (found, user.acquire(old, prompt(0), leave=0).usable_tokens) == ([256] * 6, 0)


def test_hits_never_cross_epochs():
    """A canary and the active weights store the same tokens side by side, and each finds its own bytes only."""
    user, one = stored()
    two = user.register(pick("CXST", weights_digest="w2"))
    missed = user.acquire(two, PROMPT)
    assert (missed.usable_tokens, (Layer.IDENTITY, Code.IDENTITY_MISMATCH) in cut_codes(missed)) == (0, True)
    user.store(two, PROMPT, 512, seed=5)
    found = [user.read(user.acquire(number, PROMPT)) for number in (one, two)]
    assert found[0].keys() == found[1].keys()
    assert all(found[0][name] != found[1][name] for name in found[0])
