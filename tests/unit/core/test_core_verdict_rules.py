"""The rules of a verdict, one by one: what each group needs at a boundary, and whose step or wish cut."""

import pytest

from kvledger.kinds import Form, Kind
from kvledger.verdict import Code
from kvledger.wire.requests import Release
from kvledger_storage.events import ObjectsVerified, VerifyStarted, decode
from kvledgerd.core.lookup.cuts import CUTS_SENT
from support.layouts import compressed, golden, indexer, pick, recurrent, window
from support.refused import REFUSED, cut_of
from support.world import World, group, layout

PROMPT = list(range(1200))


def fresh(*parts, **fields):
    """An engine with a layout of these groups."""
    user = World().engine()
    return user, user.register(layout(*parts, **fields))


def look(user, number, tokens, **asked):
    """What a look-up is answered; its lease is given back, so that what it named may be dropped."""
    answer = user.acquire(number, tokens, **asked)
    if answer.lease:
        user.ok(Release(answer.lease))
    return answer


def reasons(answer):
    """Start, end, code and group of each cut, in the order of the prompt."""
    return sorted((cut.start, cut.end, cut.code, cut.group) for cut in answer.cuts)


@pytest.mark.parametrize(("span", "pages"), [(65, 1), (66, 2), (129, 2), (130, 3)])
def test_a_window_needs_all_of_its_tokens_but_one(span, pages):
    """The next query brings the last token of its window itself, so W - 1 are needed, and every page they touch."""
    user, number = fresh(compressed(), window(page=64, span=span))
    user.store(number, PROMPT, 512, all_pages=True)
    for gone in range(1, 4):
        user.evict(number, PROMPT, 512, "S", block=1, page=4 - gone)
        assert (512 in look(user, number, PROMPT).restorable) == (gone > pages)
        user.store(number, PROMPT, 512, all_pages=True)


@pytest.mark.parametrize("units", [0, 1, 2])
def test_a_speculative_group_needs_each_unit_once(units):
    """A boundary is usable with the window and so many pages more, and no page before these is asked for."""
    user, number = fresh(compressed(), window(page=64, span=65, speculative_units=units))
    user.store(number, PROMPT, 768, all_pages=True)
    for page in range(11 - units):
        user.evict(number, PROMPT, 768, "S", block=page // 4, page=page % 4)
    assert look(user, number, PROMPT).restorable == [768]
    user.evict(number, PROMPT, 768, "S", block=(11 - units) // 4, page=(11 - units) % 4)
    assert look(user, number, PROMPT).restorable == []


def test_a_halo_is_needed_where_the_tail_is_empty():
    """At a multiple of the row size no raw rows are left over, and the compressor still needs those before."""
    tail = {"coupled_to": "C", "halo_rows": 4}
    user, number = fresh(compressed(), group("T", Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT, **tail))
    user.store(number, PROMPT, 512, boundary=False)
    assert reasons(look(user, number, PROMPT[:513]))[0] == (0, 512, Code.HALO_MISSING, "T")
    user.store(number, PROMPT, 512)
    assert look(user, number, PROMPT[:513]).restorable == [512]


def test_keys_of_another_commit_cut():
    """Rows and keys are all there, and the second block's keys index rows of another commit: it can not be used."""
    world = REFUSED[Code.INDEXER_UNCOUPLED]()
    cut = cut_of(world, Code.INDEXER_UNCOUPLED)
    assert (cut.start, cut.end, cut.group) == (256, 512, "X")


def test_keys_without_their_rows_are_no_longer_of_another_commit():
    """When the rows of such a block go, what lacks is said to be the rows, whatever order the groups stand in."""
    user, number = fresh(indexer(), compressed())
    user.store(number, PROMPT, 512, boundary=False)
    cell = next(c for c in user.world.state.cells.values() if c.node.depth == 2)
    cell.uncoupled = 1
    user.evict(number, PROMPT, 512, "C", block=1)
    assert reasons(look(user, number, PROMPT[:600]))[0] == (256, 512, Code.ROWS_MISSING, "C")


def test_a_block_that_is_stored_anew_is_of_one_commit():
    """Keys of another commit that were damaged with their rows, while somebody held the block, are forgotten."""
    world = REFUSED[Code.INDEXER_UNCOUPLED]()
    cell = next(cell for cell in world.state.cells.values() if cell.uncoupled)
    both, job = ((cell.id, 0), (cell.id, 1)), world.state.serial
    world.record([VerifyStarted(job, both), VerifyStarted(job + 1, both), ObjectsVerified(job, (), both)])
    user = world.engine("next")
    number = user.register(pick("CX"))
    user.store(number, PROMPT[:600], 512)
    assert look(user, number, PROMPT[:600]).restorable == [256, 512]


@pytest.mark.parametrize(("tokens", "leave", "usable"), [(512, 1, 256), (513, 1, 512), (512, 0, 512), (700, 189, 256)])
def test_what_is_left_to_the_caller_is_never_handed_out(tokens, leave, usable):
    """No boundary behind tokens - leave is offered, and what lies there is cut for that reason."""
    user, number = fresh(compressed(), recurrent())
    for end in (256, 512):
        user.store(number, PROMPT, end)
    answer = look(user, number, PROMPT[:tokens], leave=leave)
    assert (answer.usable_tokens, answer.restorable[-1]) == (usable, usable)
    if usable == 256:
        assert (256, 512, Code.LEAVE, "") in reasons(answer)


def test_layout_and_caller_are_told_apart_where_a_step_cuts():
    """Both steps stand in the detail; the code says whose it is, and where both cut together what they share."""
    user, number = fresh(compressed(per_row=64), window(page=64, span=65))
    user.store(number, PROMPT, 512, all_pages=True)
    assert reasons(look(user, number, PROMPT[:560])) == [(512, 560, Code.UNEVEN, "C")]
    caller = look(user, number, PROMPT[:600], align=384)
    assert reasons(caller) == [(0, 512, Code.ALIGNMENT, ""), (512, 600, Code.ALIGNMENT, "")]
    both = look(user, number, PROMPT[:600], align=20)
    assert (512, 600, Code.ALIGNMENT, "") in reasons(both)
    assert both.cuts[0].detail == "the layout allows a boundary every 64 tokens, the caller every 20, both every 320"


def test_a_group_that_is_not_cacheable_takes_no_part():
    """It makes no step coarser, lacks nothing, has no objects and its coverage is the whole path."""
    odd = window("odd", page=100, span=300, cacheable=False)
    user, number = fresh(compressed(), odd)
    user.store(number, PROMPT, 512)
    answer = look(user, number, PROMPT[:516])
    assert (answer.usable_tokens, answer.coverage) == (512, [512, 512])
    assert {run.group for run in (*answer.rows, *answer.offers[0].runs)} == {0}
    assert reasons(answer) == [(512, 516, Code.LEAVE if answer.offers[0].position > 515 else Code.UNEVEN, "C")]


def test_an_owner_serves_all_its_layers():
    """Four layers of which two keep the state make objects of two pages, and one object serves all four."""
    shared = compressed(layers=(0, 1, 2, 3), owner_layers=(1, 3), page_bytes=4096)
    user, number = fresh(shared)
    user.store(number, PROMPT, 512, boundary=True)
    (run,) = look(user, number, PROMPT[:600]).rows
    assert (run.count, run.length) == (2, 2 * 4096)


def test_the_boundary_of_another_layout_is_not_ours():
    """A state that another layout keeps at the same place is neither offered nor taken for one of this layout."""
    user, number = fresh(compressed(), recurrent())
    user.store(number, PROMPT, 512, boundary=False)
    other = user.register(layout(compressed(), recurrent(), weights_digest="w2"))
    user.store(other, PROMPT, 512)
    user.store(other, PROMPT, 300)
    answer = look(user, number, PROMPT[:600])
    assert (answer.offers, answer.restorable) == ([], [])
    assert (0, 512, Code.TAIL_MISSING, "M") in reasons(answer)


def test_a_cut_names_the_first_group_that_lacks():
    """Of several groups that lack something rows are named first, then paged windows, then snapshots."""
    user, number = fresh(recurrent(), window(), compressed())
    user.store(number, PROMPT, 512)
    user.store(number, PROMPT, 256)
    named = []
    for name, where in (("M", {"block": -1}), ("S", {"block": 1, "page": 3}), ("C", {"block": 1})):
        user.evict(number, PROMPT, 512, name, **where)
        named += [cut.group for cut in look(user, number, PROMPT[:600]).cuts if cut.end == 512]
    assert named == ["M", "S", "C"]


def test_thirty_two_runs_are_told_and_the_rest_is_counted():
    """Of what forty prompts left in one block the longest 32 runs are told, longest first; the event keeps four."""
    user, number = fresh(recurrent(), block_tokens=64)
    for end in range(1, 41):
        user.store(number, PROMPT, end)
    answer = look(user, number, PROMPT[:41], leave=41)
    assert (len(answer.cuts), answer.cuts_more) == (CUTS_SENT, 1)
    lengths = [cut.end - cut.start for cut in answer.cuts]
    assert lengths == sorted(lengths, reverse=True)
    event = decode(user.world.log[-1]).event
    assert list(event.cuts) == answer.cuts[:4]


def test_each_refused_boundary_of_the_golden_layout_is_in_one_run():
    """Without the rows of the first block nothing is usable, and one run says so of both boundaries."""
    user = World().engine()
    number = user.register(golden())
    for end in (256, 512):
        user.store(number, PROMPT, end)
    user.evict(number, PROMPT, 512, "rows", block=0)
    assert reasons(look(user, number, PROMPT[:600]))[0] == (0, 512, Code.ROWS_MISSING, "rows")


def test_a_minimum_is_told_where_less_is_usable():
    """What would have been usable stands in the cut, also where it lies inside a block."""
    user = World().engine()
    number = user.register(pick("CM"))
    user.store(number, PROMPT, 100)
    answer = look(user, number, PROMPT[:200], minimum=150)
    assert (answer.lease, answer.offers) == (0, [])
    assert (0, 100, Code.MINIMUM, "") in reasons(answer)
