"""Many short prompts end before the first block: a look-up judges the residues that are worth it, and no more."""

from kvledger.kinds import Form, Kind
from kvledger.verdict import Code
from kvledgerd.core.lookup.choice import OFFERS_MAX
from kvledgerd.core.lookup.residues import OUTSIDE_MAX, RESIDUES_MAX
from support.soon import soon
from support.world import World, group, layout

STATE = layout(group("S", Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT), block_tokens=64)
MANY = 3000
ASKED = [
    group("E", Kind.COMPRESSED_KV, tokens_per_row=10, cacheable=False),
    *(group(f"T{n}", Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT, coupled_to="E") for n in range(40)),
]
"""Tails that are empty at 10 tokens: nothing to store, and each is asked by every judgement."""
SOON = 0.06
"""Processor seconds; judging all of them took more than twenty times as long."""


def stored(ends, what=STATE):
    """A user with one prompt for each end, no two alike, stored in this order."""
    user = World(check=False).engine()
    number = user.register(what)
    for other, end in enumerate(ends):
        user.store(number, [1000 + other] * end)
    return user, number


def hash_of(user, number, prompt):
    """The residue hash of a short prompt."""
    return user.boundary(number, prompt).residue_hash


def test_of_equal_residues_those_stored_last_are_offered():
    """An answer has room for some of them, and what was stored just now is asked again soonest."""
    user, number = stored([10] * (OFFERS_MAX + 6))
    offered = {offer.residue_hash for offer in user.acquire(number, [5] * 12).offers}
    last = {hash_of(user, number, [1000 + other] * 10) for other in range(6, OFFERS_MAX + 6)}
    assert offered == last


def test_the_residues_of_most_tokens_are_offered():
    """However early it was stored, what saves more goes first."""
    user, number = stored([30, 20, *[10] * (2 * OFFERS_MAX)])
    offers = user.acquire(number, [5] * 40).offers
    assert [offer.position for offer in offers] == [30, 20, *[10] * (OFFERS_MAX - 2)]


def test_residues_that_fell_hide_none_that_is_usable():
    """More residues than an answer offers lie on disk; the shorter one in memory is still found."""
    user, number = stored([9, *[10] * (2 * OFFERS_MAX)])
    for other in range(1, 2 * OFFERS_MAX + 1):
        user.offload(number, [1000 + other] * 10)
    answer = user.acquire(number, [5] * 12, restore=False)
    assert [offer.position for offer in answer.offers] == [9]
    assert Code.ON_DISK in {cut.code for cut in answer.cuts}


def test_residues_that_the_caller_can_not_use_hide_none_that_it_can():
    """Those within what is left to the caller are more than a look-up judges, and count for nothing but a few cuts."""
    user, number = stored([5, *[50] * (RESIDUES_MAX + 1)])
    answer = user.acquire(number, [5] * 60, leave=48)
    assert [offer.position for offer in answer.offers] == [5]
    assert sum(cut.code is Code.LEAVE for cut in answer.cuts) + answer.cuts_more <= OUTSIDE_MAX


def test_what_lies_behind_the_prompt_is_cut_by_nothing():
    """A boundary that a longer prompt left is no boundary of this one, so no reason is given for it."""
    user, number = stored([30, 40])
    answer = user.acquire(number, [5] * 35)
    assert [offer.position for offer in answer.offers] == [30]
    assert all(cut.end <= 35 for cut in answer.cuts)


def test_thousands_of_residues_are_judged_soon():
    """A short prompt's look-up does not grow with all short prompts before it."""
    user, number = stored([10] * MANY, layout(*STATE.groups, *ASKED, block_tokens=64))
    answer = soon(lambda: user.acquire(number, [5] * 12), SOON)
    assert len(answer.offers) == OFFERS_MAX
