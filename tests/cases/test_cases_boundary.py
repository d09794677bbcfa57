"""Field cases about where a request may resume: intersection of groups, blocks, windows and states.

Each test carries the id of its case. A case stands for a kind of fault, so it runs over other orders and sizes too.
"""

from itertools import permutations

import pytest

from kvledger.kinds import Form, Kind
from kvledger.verdict import Code, Exactness, Layer
from kvledger.wire.replies import Failed
from kvledger.wire.requests import Commit, Reserve
from support.layouts import HYBRID, compressed, pick, recurrent, tail, window
from support.world import World, group, layout

LONG = list(range(20_000))
ORDERS = ["".join(p) for p in permutations(HYBRID)]


def fresh(what):
    """A user with a registered layout."""
    user = World().engine()
    return user, user.register(what)


def cuts_of(acquired):
    """The cuts as (layer, group, code)."""
    return [(c.layer, c.group, c.code) for c in acquired.cuts]


@pytest.mark.parametrize("order", ["CM", "MC"])
@pytest.mark.parametrize("block", [4, 32, 256])
def test_v01_rows_end_before_a_state(order, block):
    """A state behind rows that are gone is never offered; one where the rows still reach is."""
    user, number = fresh(pick(order, block=block))
    user.store(number, LONG, 4 * block)
    user.evict(number, LONG, 4 * block, "C", block=1)
    gone = user.acquire(number, LONG[: 4 * block + block // 2])
    assert (gone.usable_tokens, gone.lease, gone.restorable) == (0, 0, [])
    assert (Layer.STATE, "C", Code.ROWS_MISSING) in cuts_of(gone)
    user.store(number, LONG, block)
    user.evict(number, LONG, 4 * block, "C", block=1)
    again = user.acquire(number, LONG[: 4 * block + block // 2])
    assert (again.usable_tokens, again.restorable) == (block, [block])


@pytest.mark.parametrize("spare", [0, 1])
def test_v03_a_speculative_group_needs_its_unit_once(spare):
    """A speculative group makes one page more needed, and each dense group's handles cover exactly the boundary."""
    user, number = fresh(layout(compressed(), window("S", 64, 128, speculative_units=1), recurrent()))
    user.store(number, LONG, 512)
    if spare == 0:
        user.evict(number, LONG, 512, "S", block=1, page=1)
    acquired = user.acquire(number, LONG[:600])
    assert acquired.usable_tokens == (512 if spare else 0)
    for index, spec in enumerate(user.world.state.layouts[number].layout.groups):
        if spec.form is Form.ROWS and acquired.lease:
            assert sum(run.count * run.tokens for run in acquired.rows if run.group == index) == 512


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_v04_speculation_is_applied_once_for_each_candidate(groups):
    """Several speculative groups over a whole prefix leave a hit of all blocks, not of none."""
    parts = [window(f"S{i}", 64, 128, speculative_units=1) for i in range(groups)]
    user, number = fresh(layout(compressed(), *parts))
    for end in (256, 512, 768):
        user.store(number, LONG, end)
    assert user.acquire(number, LONG[:768]).restorable == [256, 512]
    assert user.acquire(number, LONG[:769]).restorable == [256, 512, 768]


@pytest.mark.parametrize(("coarse", "tokens"), [(4096, 2048), (512, 300), (256, 129)])
def test_v06_p05_shorter_than_a_block_is_said_so(coarse, tokens):
    """A prompt below the common block is cut as such, naming the group that stores so much at once."""
    user, number = fresh(layout(compressed("big", coarse, 128), window(), block_tokens=coarse))
    user.store(number, LONG, coarse)
    short = user.acquire(number, LONG[:tokens])
    assert cuts_of(short) == [(Layer.BLOCK, "", Code.BELOW_BLOCK)]
    assert f"a block is {coarse} tokens, as big stores them" in short.cuts[0].detail
    assert user.acquire(number, LONG[: coarse + 1]).usable_tokens == coarse


def test_p05_a_group_that_is_not_cached_makes_no_block_coarser():
    """A group that is not cacheable takes no part in blocks, needs or units."""
    odd = tail("odd", 3, 6, cacheable=False)
    user, number = fresh(layout(compressed(), odd))
    user.store(number, LONG, 256)
    acquired = user.acquire(number, LONG[:300])
    assert (acquired.usable_tokens, {run.group for run in acquired.rows}) == (256, {0})


@pytest.mark.parametrize("order", ["CM", "MC", "CXST", "TSXC"])
@pytest.mark.parametrize("blocks", [2, 3, 5])
def test_v09_l11_a_prompt_of_whole_blocks_sent_again(order, blocks):
    """At least one token is left to compute, so the same prompt needs the state one block before; a longer one not."""
    user, number = fresh(pick(order))
    end = 256 * blocks
    user.store(number, LONG, end)
    same = user.acquire(number, LONG[:end])
    assert same.usable_tokens == 0
    assert (Layer.BLOCK, "", Code.LEAVE) in cuts_of(same)
    assert any(end - 256 <= position < end for position in same.wanted)
    assert user.acquire(number, LONG[: end + 1]).usable_tokens == end
    user.store(number, LONG, end - 256)
    assert user.acquire(number, LONG[:end]).usable_tokens == end - 256
    assert user.acquire(number, LONG[:end], leave=0).usable_tokens == end


@pytest.mark.parametrize("end", [255, 257, 300, 510])
@pytest.mark.parametrize("what", ["window", "tail"])
def test_v10_a_unit_that_nobody_could_use_is_refused(end, what):
    """What a writer may commit is what a reader can use: an end inside a page of any group is refused by name."""
    part = window("S", 64, 128) if what == "window" else tail("T", 8, 16)
    user, number = fresh(layout(compressed(), part))
    refused = user.ask(Reserve(number, user.boundary(number, LONG, end)))
    assert isinstance(refused, Failed)
    assert refused.code == "commit_refused"
    assert f"no look-up could resume at {end}" in refused.message


@pytest.mark.parametrize("units", [0, 1, 2, 3])
def test_v10_writer_and_reader_agree_on_speculative_pages(units):
    """A unit holds as many window pages as a look-up of its boundary needs, whatever the engine speculates."""
    user, number = fresh(layout(compressed(), window("S", 32, 128, speculative_units=units)))
    user.store(number, LONG, 1024)
    acquired = user.acquire(number, LONG[:1025])
    assert acquired.usable_tokens == 1024
    pages = [run.count for run in acquired.offers[0].runs if run.group == 1]
    assert sum(pages) == 4 + units


@pytest.mark.parametrize("allow", [False, True])
@pytest.mark.parametrize("span", [64, 128])
def test_v12_p12_a_window_that_was_never_committed(allow, span):
    """Without the window nothing is usable but by a declared replay; a short one only where layout and caller say."""
    # The window lived in a ring of one request, so it could not be shared.
    exact = {"exact_replay_tokens": 3 * span, "approx_replay_tokens": span}
    ring = group("S", Kind.SWA_WINDOW, Form.SNAPSHOT, window=span, layers=(0, 1, 2), **exact)
    user, number = fresh(layout(compressed(), ring, allow_approx=allow))
    user.store(number, LONG, 512, boundary=False)
    assert user.acquire(number, LONG[:600]).usable_tokens == 0
    replayed = user.acquire(number, LONG[:600], replay=True).offers[0]
    assert (replayed.position, replayed.replay, replayed.exactness) == (512, 3 * span, Exactness.REPLAY)
    short = user.acquire(number, LONG[:600], replay=True, approx=True).offers[0]
    wanted = (span, Exactness.APPROX) if allow else (3 * span, Exactness.REPLAY)
    assert (short.replay, short.exactness) == wanted


@pytest.mark.parametrize("order", ["CM", "MC"])
def test_v14_nothing_counts_as_cached_but_what_was_committed(order):
    """Of four blocks only the last has a state: three placeholders count for nothing."""
    user, number = fresh(pick(order, block=32))
    user.store(number, LONG, 128)
    acquired = user.acquire(number, LONG[:129])
    assert acquired.restorable == [128]
    assert user.acquire(number, LONG[:128]).restorable == []
    assert acquired.coverage == [128, 128]


@pytest.mark.parametrize("name", ["S", "T"])
def test_v14_a_reservation_is_no_placeholder(name):
    """Blocks that are only reserved count neither as hash hit nor as usable."""
    user, number = fresh(pick("CST"))
    reserved = user.reserve(number, LONG, 512)
    user.fill(reserved, skip=(name,))
    acquired = user.acquire(number, LONG[:600])
    assert (acquired.hash_tokens, acquired.usable_tokens, acquired.lease) == (0, 0, 0)
    assert user.ask(Commit(reserved.unit)).code == "commit_refused"


@pytest.mark.parametrize("span", [64, 100, 128])
@pytest.mark.parametrize("hole", [0, 1, 2])
def test_p06_a_hole_in_a_window_is_not_passed_over(span, hole):
    """Live pages, a tombstone, live pages: what lies behind the hole makes nothing usable before a whole window."""
    user, number = fresh(layout(compressed("C", 32, 4), window("S", 32, span), block_tokens=32))
    user.store(number, LONG, 320, all_pages=True)
    user.evict(number, LONG, 320, "S", block=3 + hole)
    first, last = 32 * (3 + hole), 32 * (4 + hole)
    restorable = user.acquire(number, LONG[:321]).restorable
    expected = [p for p in range(32, 321, 32) if p <= first or p - (span - 1) >= last]
    assert restorable == expected


def test_p06_the_run_after_the_hole_is_shorter_than_the_window():
    """Fewer live tokens than the window needs after a hole give nothing past it."""
    user, number = fresh(layout(compressed("C", 100, 4), window("S", 100, 128), block_tokens=100))
    user.store(number, LONG, 300, all_pages=True)
    user.evict(number, LONG, 300, "S", block=1)
    assert user.acquire(number, LONG[:301]).restorable == [100]


@pytest.mark.parametrize(("page", "span"), [(256, 128), (64, 8), (32, 128)])
def test_p08_what_a_unit_keeps_is_the_larger_of_window_and_page(page, span):
    """A page larger than the window is kept whole, so that its boundary stays usable."""
    user, number = fresh(layout(compressed(), window("S", page, span)))
    user.store(number, LONG, 512)
    acquired = user.acquire(number, LONG[:513])
    assert acquired.usable_tokens == 512
    (kept,) = [run for run in acquired.offers[0].runs if run.group == 1]
    assert kept.count * kept.tokens >= max(page, span - 1)


@pytest.mark.parametrize("order", ORDERS[::5])
def test_l14_rows_without_their_states_are_worth_nothing(order):
    """Rows of every group present and states absent: nothing is usable, whatever the order of groups."""
    user, number = fresh(pick(order))
    user.store(number, LONG, 512, boundary=False)
    acquired = user.acquire(number, LONG[:600])
    assert (acquired.hash_tokens, acquired.usable_tokens) == (512, 0)
    assert {c.layer for c in acquired.cuts} == {Layer.STATE, Layer.BLOCK}


@pytest.mark.parametrize("order", ORDERS[::3])
@pytest.mark.parametrize("name", HYBRID)
def test_l14_each_group_alone_cuts(order, name):
    """Dropping any one group's share of a boundary cuts there and names the group, its kind and the layer."""
    user, number = fresh(pick(order))
    user.store(number, LONG, 512)
    user.evict(number, LONG, 512, name, block=1)
    acquired = user.acquire(number, LONG[:600])
    code = {"C": Code.ROWS_MISSING, "X": Code.INDEXER_MISSING, "S": Code.WINDOW_MISSING, "T": Code.TAIL_MISSING}[name]
    assert acquired.usable_tokens == 0
    cut = next(c for c in acquired.cuts if c.end == 512)
    assert (cut.layer, cut.group, cut.code) == (Layer.STATE, name, code)
    assert cut.kind is user.world.state.layouts[number].layout.group(name).kind


@pytest.mark.parametrize("end", [255, 257, 258, 511])
def test_l11_a_state_is_no_tail_of_rows_that_it_does_not_continue(end):
    """Beside rows of 4 tokens a recurrent state makes no boundary inside a row: the tokens after it lie nowhere."""
    user, number = fresh(pick("CM"))
    refused = user.ask(Reserve(number, user.boundary(number, LONG, end)))
    assert isinstance(refused, Failed)
    assert refused.code == "commit_refused"
    user, number = fresh(layout(compressed(), recurrent(coupled_to="C")))
    user.store(number, LONG, end)
    assert user.acquire(number, LONG[: end + 1]).offers[0].position == end


@pytest.mark.parametrize("local", [0, 1, 255, 256, 300, 511, 513])
@pytest.mark.parametrize("align", [1, 256, 512])
@pytest.mark.parametrize("order", ["CM", "MC", "CXST"])
def test_v13_what_is_loaded_begins_at_a_block_behind_what_the_caller_has(order, local, align):
    """A caller that has tokens already is offered boundaries behind them, and no handle lies on both sides."""
    user, number = fresh(pick(order))
    for end in (256, 512, 768):
        user.store(number, LONG, end)
    found = user.acquire(number, LONG[:800], minimum=local + 1, align=align)
    for offer in found.offers:
        assert offer.position > local
        assert offer.position % align == 0
    for run in [*found.rows, *(run for offer in found.offers for run in offer.runs)]:
        starts = [run.first_token + i * run.step for i in range(run.count)]
        assert all(start % max(run.tokens, 1) == 0 for start in starts)
        edge = -(-local // 256) * 256
        assert all(start >= edge or start + run.tokens <= edge for start in starts)
    assert bool(found.offers) == (local < {1: 768, 256: 768, 512: 512}[align])


@pytest.mark.parametrize("first", [0, 1, 2])
@pytest.mark.parametrize("order", ["CM", "TSXC"])
def test_v13_a_unit_brings_nothing_before_its_first_block(order, first):
    """A writer whose own tokens begin at a block hands in the rows behind it, and those before stay as they are."""
    user, number = fresh(pick(order))
    user.store(number, LONG, 512)
    reserved = user.reserve(number, LONG, 768, first_block=first)
    unit = user.world.state.units[reserved.unit]
    groups = user.world.state.layouts[number].layout.groups
    rows = [item.first_token for item in unit.objects if groups[item.group].form is Form.ROWS]
    assert min(rows) == 256 * first
    user.fill(reserved, seed=8)
    user.commit(reserved)
    acquired = user.acquire(number, LONG[:800])
    assert acquired.usable_tokens == 768
    marks = {at[2]: data.split(b";")[0][-2:] for at, data in user.read(acquired).items() if groups[at[0]].name == "C"}
    assert marks == {0: b"/0", 256: b"/0", 512: b"/8"}
