"""Strict provenance, case by case; random runs are in tests/property/test_core_provenance.py."""

import pytest

from kvledger.verdict import Code, Layer
from kvledger.wire.replies import Committed
from kvledger.wire.requests import Commit, Release
from support.epochs import PROMPT
from support.layouts import pick
from support.world import World


def strict(letters="CXST"):
    """Two engines and a layout with strict provenance."""
    world = World()
    users = world.engine("one"), world.engine("two")
    return *users, users[0].register(pick(letters, strict_provenance=True))


def fresh(user, number, end, seed=0, **fields):
    """Reserve and fill a unit."""
    unit = user.reserve(number, PROMPT, end, **fields)
    user.fill(unit, seed=seed)
    return unit


def test_runs_that_differ_are_not_joined():
    """Of two engines that computed one prefix with other bits the second is refused, but for loose layouts."""
    one, two, number = strict()
    first, second = fresh(one, number, 512), fresh(two, number, 512, seed=1)
    assert isinstance(one.commit(first), Committed)
    refused = two.commit(second)
    assert (refused.code, refused.field) == ("commit_refused", "unit")
    assert refused.message.startswith("the rows of [0, 256) differ from those that another run stored")
    loose = World()
    users = loose.engine("one"), loose.engine("two")
    number = users[0].register(pick("CXST"))
    units = [fresh(user, number, 512, seed=seed) for seed, user in enumerate(users)]
    assert [user.commit(unit).differing for user, unit in zip(users, units, strict=True)] == [0, 8]


def test_runs_that_agree_are_one():
    """Two engines with the same bits both store: what is equal is kept once, and what the second adds is usable."""
    one, two, number = strict("CM")
    first, second = fresh(one, number, 256), fresh(two, number, 512)
    one.ok(Commit(first.unit))
    reply = two.ok(Commit(second.unit))
    assert (reply.duplicates, reply.differing) == (1, 0)
    assert one.acquire(number, PROMPT).usable_tokens == 512


def test_nothing_that_a_run_made_counts_as_stored():
    """A unit brings all rows that its run made, whatever is stored: only so can they be compared."""
    one, two, number = strict("CM")
    one.store(number, PROMPT, 512)
    unit = two.reserve(number, PROMPT, 512)
    assert len(two.world.state.units[unit.unit].missing()) == 3
    assert unit.present == b"\0"


def test_a_unit_goes_on_from_what_its_engine_holds():
    """Behind block 0 a unit begins only under a lease on the rows before; without one it is refused and says so."""
    one, two, number = strict("CM")
    one.store(number, PROMPT, 256)
    for user in (one, two):
        refused = user.ask_reserve(number, PROMPT, 512, first_block=1)
        assert (refused.code, refused.field) == ("commit_refused", "first_block")
        assert "hold a hit" in refused.remedy
    lease = two.acquire(number, PROMPT).lease
    two.store(number, PROMPT, 512, first_block=1, seed=1)
    two.ok(Release(lease))
    assert one.acquire(number, PROMPT).usable_tokens == 512


def lost_and_replaced(*, offload: bool):
    """Rows of the second block are lost, and another run stores its own there beside the first one's boundary."""
    one, two, number = strict("CM")
    for end in (256, 512):
        lease = one.acquire(number, PROMPT).lease
        one.store(number, PROMPT, end, first_block=1 if lease else 0)
        if lease:
            one.ok(Release(lease))
    if offload:
        one.offload(number, PROMPT, 512, drop=False)
    one.evict(number, PROMPT, 512, "C", block=1, disk=True)
    lease = two.acquire(number, PROMPT).lease
    unit = fresh(two, number, 512, seed=1, first_block=1, boundary=False)
    two.ok(Commit(unit.unit))
    return one, two, number, lease


@pytest.mark.parametrize("offload", [False, True])
@pytest.mark.parametrize("restarted", [False, True])
def test_states_whose_rows_were_replaced_are_not_offered(offload, restarted):
    """What another run stored in the place of lost rows makes the first one's states unusable, on disk too."""
    one, _, number, _ = lost_and_replaced(offload=offload)
    if restarted:
        one.world.restart()
        one = one.world.engine()
    missed = one.acquire(number, PROMPT)
    assert missed.usable_tokens == 256
    cut = next(cut for cut in missed.cuts if cut.code is Code.OTHER_RUN)
    assert (cut.start, cut.end, cut.layer) == (256, 512, Layer.STATE)
    assert cut.detail == "the states at 512 belong to other rows than those that are stored"


def test_states_of_other_rows_make_way():
    """A run that stores the boundary anew replaces states that nobody could use any more."""
    one, two, number, _ = lost_and_replaced(offload=True)
    unit = fresh(two, number, 512, seed=1, first_block=1)
    reply = two.ok(Commit(unit.unit))
    assert (reply.stored, reply.duplicates) == (1, 1)
    assert "belongs to other rows" in two.world.reasons("objects_evicted.1")
    assert one.acquire(number, PROMPT).usable_tokens == 512


def test_rows_that_change_between_reservation_and_commit_are_noticed():
    """A unit whose rows before it were replaced since it was reserved is refused."""
    one, two, number = strict("CM")
    one.store(number, PROMPT, 256)
    lease = two.acquire(number, PROMPT).lease
    unit = fresh(two, number, 512, first_block=1, boundary=False)
    two.ok(Release(lease))
    one.evict(number, PROMPT, 256, "C", block=0)
    one.evict(number, PROMPT, 256, "M", block=-1)
    one.store(number, PROMPT, 256, seed=4)
    refused = two.commit(unit)
    assert (refused.code, refused.field) == ("commit_refused", "unit")
    assert "not those any more" in refused.message
