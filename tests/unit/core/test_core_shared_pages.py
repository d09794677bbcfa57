"""Offers that part behind one block share its window pages: each is complete, and the pages are looked up once."""

import xxhash

from kvledger.kinds import Form, Kind
from kvledger.wire.requests import Fingerprints
from support.soon import soon
from support.world import User, World, group, layout

OFFERS = 64
BLOCKS = 60
SHARDS = 32
SOON = 0.25
"""Processor seconds; looking the pages up for every offer took twenty times as long."""


def windowed(window, shards):
    """A window of two pages a block, and rows of one token."""
    return layout(
        group("R", Kind.COMPRESSED_KV),
        group("W", Kind.SWA_WINDOW, Form.PAGED_WINDOW, window=window, rows_per_page=2, shards=shards),
        block_tokens=4,
    )


def stored(blocks, window, shards, offers, *, check):
    """A prompt of whole blocks that goes on in as many ways as there are offers, one page each."""
    user = World(check=check).engine()
    number = user.register(windowed(window, shards))
    prompt = list(range(4 * blocks))
    user.store(number, prompt, all_pages=True)
    for other in range(offers):
        user.store(number, [*prompt, 1000 + other, 0], seed=1 + other)
    return user, number, [*prompt, 5, 5, 5]


def test_each_offer_has_its_own_page_behind_the_shared_ones():
    """Whatever was joined to a run of shared pages, every offer reads the pages of its own residue."""
    user, number, prompt = stored(3, 7, 2, 3, check=True)
    answer = user.acquire(number, prompt)
    residues = [n for n, offer in enumerate(answer.offers) if offer.residue]
    assert len(residues) == 3
    last = [user.read(answer, n)[1, 1, 12] for n in residues]
    assert len(set(last)) == 3
    assert all(page.startswith(b"W/1/12/") for page in last)
    for n in residues:
        assert sorted(first for g, shard, first in user.read(answer, n) if (g, shard) == (1, 1)) == [8, 10, 12]


def test_fingerprints_follow_the_order_of_the_runs():
    """A client that checks an answer goes through its runs, offer after offer."""
    user, number, prompt = stored(3, 7, 2, 2, check=True)
    answer = user.acquire(number, prompt)
    runs = [*answer.rows, *(run for offer in answer.offers for run in offer.runs)]
    places = [(run.arena, run.offset + n * run.stride) for run in runs for n in range(run.count)]
    prints = b"".join(xxhash.xxh3_128_digest(user.world.memory[place]) for place in places)
    assert user.ok(Fingerprints(answer.lease)).fingerprints == prints


def test_many_offers_of_a_wide_window_are_answered_soon():
    """As many offers as an answer may have cost little more than one, since other engines wait for it too."""
    answer = soon(User.acquire, SOON, lambda: stored(BLOCKS, 4 * BLOCKS, SHARDS, OFFERS, check=False))
    assert len(answer.offers) == OFFERS + 1
