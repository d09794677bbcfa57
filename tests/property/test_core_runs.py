"""Room that is found step by step is the room that a search from scratch finds."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvledger.kinds import Kind
from kvledgerd.core.config import PAGE
from kvledgerd.core.placement.pools import Arena, Pool
from kvledgerd.core.placement.runs import Runs
from support.soon import soon

PAGES = 48


def pool_of(pages: int, kept: list[int]) -> Pool:
    """A pool of two arenas of which these pages are taken; pages from `pages` on lie in the second."""
    pool = Pool()
    for number in range(2):
        pool.add(Arena(number, "default", Kind.COMPRESSED_KV, pages * PAGE))
        for page in range(pages):
            pool.take(number, page * PAGE, PAGE)
    for page in range(2 * pages):
        if page not in kept:
            pool.give(*extent(page, pages)[:2], PAGE)
    return pool


def extent(page: int, pages: int) -> tuple[int, int, int]:
    """The extent of one page."""
    return page // pages, page % pages * PAGE, PAGE


def searched(pool: Pool, freed: list[int], sizes: list[int]) -> bool:
    """Tell whether objects fit, placed in their order into runs of free pages, longest first."""
    free = {a * PAGES + o // PAGE + i for a, o, n in pool.extents() for i in range(n // PAGE)} | set(freed)
    runs, length = [], 0
    for page in range(2 * PAGES + 1):
        if page in free and page != PAGES:
            length += 1
        else:
            runs.append(length)
            length = int(page in free)
    runs.sort()
    room = 0
    for size in sizes:
        while room < size:
            if not runs:
                return False
            room = runs.pop()
        room -= size
    return True


@given(st.lists(st.integers(0, 2 * PAGES - 1), unique=True), st.lists(st.integers(1, 6), min_size=1, max_size=12))
@settings(max_examples=200, deadline=None)
def test_places_are_found_where_a_search_from_scratch_finds_them(kept, sizes):
    """Whatever is freed in whatever order: places are found if and only if there are any, and none overlap."""
    pool = pool_of(PAGES, kept)
    runs = Runs(pool, [size * PAGE for size in sizes], [])
    for freed in range(len(kept) + 1):
        places = runs.plan()
        assert (places is not None) == searched(pool, kept[:freed], sizes)
        taken = [
            (a, o // PAGE + i) for (a, o), size in zip(places or [], sizes, strict=bool(places)) for i in range(size)
        ]
        assert len(taken) == len(dict.fromkeys(taken))
        if freed < len(kept):
            runs.free(extent(kept[freed], PAGES))


@given(
    st.lists(st.integers(0, 2 * PAGES - 1), unique=True, min_size=1),
    st.integers(1, 6),
    st.integers(min_value=1, max_value=9),
)
@settings(max_examples=200, deadline=None)
def test_objects_of_one_size_are_placed_as_soon_as_they_fit(kept, size, count):
    """Not one copy goes in vain where all objects have one size."""
    pool = pool_of(PAGES, kept)
    runs = Runs(pool, [size * PAGE] * count, [])
    for freed, page in enumerate(kept, 1):
        runs.free(extent(page, PAGES))
        assert (runs.plan_if_due() is not None) == searched(pool, kept[:freed], [size] * count)


@pytest.mark.parametrize("pages", [[4000], [4000] + [1] * 9000], ids=["one large object", "large and small ones"])
def test_room_in_fragments_is_found_soon(pages):
    """Ten thousand copies let go one by one, each between two free pages, take no search each."""
    half = 10_000
    pool = pool_of(half, range(0, 2 * half, 2))

    def let_go():
        runs = Runs(pool, [n * PAGE for n in pages], [])
        for page in range(0, half - 4000, 8):
            runs.free(extent(page, half))
            assert runs.plan_if_due() is None
        for page in range(half, 2 * half, 2):
            runs.free(extent(page, half))
            if runs.plan_if_due() is not None:
                return
        raise AssertionError("ten thousand free pages in one piece, and no place for four thousand")

    soon(let_go, 1)
