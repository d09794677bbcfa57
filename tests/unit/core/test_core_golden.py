"""Numbers that were worked out by hand, and that the verdict has to meet."""

from collections import Counter

import pytest

from kvledger.geometry import Geometry
from kvledger.kinds import Kind
from kvledger.wire.requests import Describe, Evict
from support.layouts import compressed, golden, indexer, window
from support.world import World, layout

PROMPT = list(range(600))


def kept(*, all_pages: bool):
    """A world in which 600 tokens are cached: both blocks are boundaries."""
    world = World(check=False)
    user = world.engine()
    number = user.register(golden())
    user.store(number, PROMPT, 256, all_pages=all_pages)
    user.store(number, PROMPT, 512, all_pages=all_pages)
    return world, user, number


def entries(user, number):
    """Every object of the prompt as (block, group name, page)."""
    groups = user.world.state.layouts[number].layout.groups
    described = user.ok(Describe(number, user.boundary(number, PROMPT, 512)))
    return [(o.block, groups[o.group].name, o.page) for o in described.objects]


def hits(user, number):
    """What the rows alone would give, and what is usable."""
    acquired = user.acquire(number, PROMPT)
    return acquired.coverage, acquired.usable_tokens


@pytest.mark.parametrize(("all_pages", "counts"), [(False, (22, 2, 22)), (True, (22, 2, 186))])
def test_each_single_eviction_of_600_tokens(all_pages, counts):
    """Of all single evictions 22 leave the rows at 512 and the usable hit at 256, 2 shrink both, the rest is unfelt."""
    outcome = Counter()
    _, user, number = kept(all_pages=all_pages)
    names = entries(user, number)
    assert len(names) == sum(counts)
    for block, name, page in names:
        _, user, number = kept(all_pages=all_pages)
        assert user.evict(number, PROMPT, 512, name, block=block, page=page).dropped == 1
        coverage, usable = hits(user, number)
        outcome[coverage[0], usable] += 1
    assert outcome[512, 256] == counts[0]
    assert outcome[256, 256] + outcome[0, 0] == counts[1]
    assert outcome[512, 512] == counts[2]


def test_600_tokens_give_512():
    """Under block alignment a look-up of the same 600 tokens gives 512, and every group says so."""
    _, user, number = kept(all_pages=True)
    assert hits(user, number) == ([512] * 5, 512)


def test_the_last_page_of_four_tokens():
    """Losing the one 4-token page that ends at 512 gives 512, 512, 512, 256, 512 and a usable hit of 256."""
    _, user, number = kept(all_pages=True)
    user.evict(number, PROMPT, 512, "t4", block=1, page=63)
    assert hits(user, number) == ([512, 512, 512, 256, 512], 256)


def test_rows_indexer_and_two_pages_of_a_window():
    """Rows on 8 pages, keys on 6 and window pages 2 and 3 with two needed: exactly 4 pages are restorable."""
    user = World().engine()
    parts = (compressed(block=4, per_row=4), indexer(block=4, per_row=4), window(page=4, span=8))
    number = user.register(layout(*parts, block_tokens=4))
    tokens = list(range(33))
    user.store(number, tokens, 32, boundary=False)
    user.store(number, tokens, 16, first_block=4)
    for block in (6, 7):
        user.evict(number, tokens, 32, "X", block=block)
    acquired = user.acquire(number, tokens)
    assert acquired.restorable == [16]
    assert acquired.coverage == [32, 24, 16]


@pytest.mark.parametrize(
    ("span", "page", "tokens", "pages"), [(4096, 32, 98_012, 129), (4096, 32, 98_016, 128), (128, 64, 512, 2)]
)
def test_pages_that_a_window_touches(span, page, tokens, pages):
    """A window that does not start on a page touches one page more than its length divided by the page."""
    geometry = Geometry(layout(window(page=page, span=span), block_tokens=page))
    assert len(geometry.window_pages(0, tokens)) == pages


def test_a_page_named_by_kind_goes_alone():
    """Evicting one page of one group touches no page of a group beside it."""
    _, user, number = kept(all_pages=True)
    at = user.boundary(number, PROMPT, 512)
    before = entries(user, number)
    user.ok(Evict(Kind.SWA_WINDOW, number, at, "a64", block=1, page=3))
    assert set(before) - set(entries(user, number)) == {(1, "a64", 3)}
