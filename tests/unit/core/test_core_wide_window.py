"""A wide window that lacks pages: the right reason at every block, found in one pass over the path."""

from kvledger.kinds import Form, Kind
from kvledger.verdict import Code
from kvledger.wire.replies import Failed
from support.soon import soon
from support.world import User, World, group, layout

SIZE = 4
PROMPT = list(range(10 * SIZE))
BLOCKS = 8000
SOON = 0.5
"""Processor seconds; looking at the whole window for every block took twenty times as long."""


def windowed(window):
    """Rows and a window of one page a block."""
    return layout(
        group("R", Kind.COMPRESSED_KV),
        group("W", Kind.SWA_WINDOW, Form.PAGED_WINDOW, window=window, rows_per_page=SIZE),
        block_tokens=SIZE,
    )


def test_a_damaged_page_is_named_where_the_window_touches_it():
    """Three boundaries need the page that came off disk wrong; before and behind them a resume is possible."""
    user = World().engine()
    number = user.register(windowed(3 * SIZE + 1))
    user.store(number, PROMPT, 10 * SIZE, all_pages=True)
    user.offload(number, PROMPT, 5 * SIZE)
    pages = [at for at, data in user.world.disk.items() if data.startswith(b"W/")]
    user.world.disk[max(pages)] = b"rotten"
    assert isinstance(user.restore(number, PROMPT, 5 * SIZE), Failed)

    answer = user.acquire(number, PROMPT[: 7 * SIZE + 1])
    cuts = [(c.start, c.end, c.group) for c in answer.cuts if c.code is Code.BYTES_DAMAGED]
    assert cuts == [(4 * SIZE, 7 * SIZE, "W")]
    assert user.acquire(number, PROMPT).restorable == [n * SIZE for n in (1, 2, 3, 4, 8, 9)]


def test_a_wide_window_without_pages_is_judged_soon():
    """What lacks at thousands of blocks costs one pass, since other engines wait for the answer too."""

    def stored():
        user = World(check=False).engine()
        number, prompt = user.register(windowed(BLOCKS * SIZE)), list(range(BLOCKS * SIZE))
        user.store(number, prompt, boundary=False)
        return user, number, prompt

    answer = soon(User.acquire, SOON, stored)
    assert [c.code for c in answer.cuts][:1] == [Code.WINDOW_MISSING]
