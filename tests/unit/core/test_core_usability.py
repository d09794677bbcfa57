"""A boundary that no look-up could use is refused with its reason, and counted."""

import pytest

from kvledger.kinds import Form, Kind
from kvledger.wire.replies import Failed
from kvledger.wire.requests import Abort, Commit, Evict
from kvledger_storage.events import BoundaryRefused, decode
from kvledgerd.core.config import PAGE, CoreConfig
from support.layouts import compressed, indexer, pick, recurrent, tail, window
from support.world import World, group, layout

PROMPT = list(range(1200))
OTHER = [token + 5000 for token in PROMPT]


def fresh(what, config=None):
    """A user with a registered layout."""
    user = World(config).engine()
    return user, user.register(what)


def reasons(user):
    """The reason of every boundary that was refused, as the log has it; the counter agrees, live and replayed."""
    found = [decode(raw).event for raw in user.world.log]
    told = [event.reason for event in found if isinstance(event, BoundaryRefused)]
    assert user.counters()["stored_unusable"] == len(told) == user.world.replayed().stored_unusable
    return told


def refused(reply):
    """Code and message of a refusal."""
    assert isinstance(reply, Failed), reply
    return reply.code, reply.message


UNEVEN = {
    "window": (layout(compressed(), window("S", 64, 128)), 300, "S (SWA_WINDOW) keeps units of 64 tokens"),
    "speculative": (layout(compressed(), window("S", 32, 64, speculative_units=2)), 300, "S (SWA_WINDOW) keeps"),
    "paged tail": (layout(compressed(), tail("T", 8, 16)), 260, "T (UNCOMPRESSED_TAIL) keeps units of 8 tokens"),
    "rows": (layout(compressed(), recurrent()), 257, "C (COMPRESSED_KV) keeps units of 4 tokens"),
    "keys": (layout(compressed(per_row=1), indexer(per_row=4)), 258, "X (INDEXER_STATE) keeps units of 4 tokens"),
    "paged tail shorter than a row": (
        layout(compressed(per_row=128), tail("T", 4, 124, coupled_to="C")),
        132,
        "C (COMPRESSED_KV) keeps units of 128 tokens",
    ),
    "paged tail without room for its halo": (
        layout(compressed(per_row=128), tail("T", 4, 131, coupled_to="C", halo_rows=4)),
        132,
        "C (COMPRESSED_KV) keeps units of 128 tokens",
    ),
    "tail of others": (
        layout(compressed(), compressed("D"), recurrent(coupled_to="C")),
        257,
        "D (COMPRESSED_KV) keeps units of 4 tokens",
    ),
    "tail that is not kept": (
        layout(compressed(), recurrent(coupled_to="C", cacheable=False)),
        257,
        "C (COMPRESSED_KV) keeps units of 4 tokens",
    ),
}


@pytest.mark.parametrize("name", UNEVEN)
@pytest.mark.parametrize("turned", [False, True])
def test_an_end_inside_a_unit(name, turned):
    """No group may stand in the middle of what it stores as a unit, in whatever order the groups are."""
    what, end, why = UNEVEN[name]
    if turned:
        what = layout(*what.groups[::-1], block_tokens=what.block_tokens)
    user, number = fresh(what)
    code, message = refused(user.ask_reserve(number, PROMPT, end))
    assert (code, f"no look-up could resume at {end}: " in message) == ("commit_refused", True)
    assert turned or why in message
    assert reasons(user) == [message]
    assert user.world.state.objects == 0


@pytest.mark.parametrize(("span", "halo"), [(128, 0), (132, 4), (256, 4)])
def test_a_paged_tail_that_reaches_over_a_row_continues_it(span, halo):
    """Where the window spans a whole row and the halo before it, a boundary may stand inside the row."""
    user, number = fresh(layout(compressed(per_row=128), tail("T", 4, span, coupled_to="C", halo_rows=halo)))
    user.store(number, PROMPT, 508)
    offer = user.acquire(number, PROMPT[:509]).offers[0]
    assert offer.position == 508
    first = min(run.first_token for run in offer.runs if run.group == 1)
    assert first <= 508 - 508 % 128 - halo
    assert reasons(user) == []


def test_a_group_that_is_not_kept_makes_no_end_uneven():
    """Groups that are not cacheable take no part: an end inside their units is as good as any."""
    odd = [window("S", 64, 128, cacheable=False), tail("T", 8, 16, cacheable=False)]
    user, number = fresh(layout(compressed(), *odd))
    user.store(number, PROMPT, 300)
    assert user.acquire(number, PROMPT[:301]).offers[0].position == 300
    assert reasons(user) == []


@pytest.mark.parametrize("letters", ["CXST", "TSXC", "CM", "MC"])
def test_nothing_can_resume_at_zero(letters):
    """A boundary at no token is refused."""
    user, number = fresh(pick(letters))
    assert refused(user.ask_reserve(number, PROMPT, 0)) == ("commit_refused", "nothing can resume at 0")
    assert reasons(user) == ["nothing can resume at 0"]


@pytest.mark.parametrize("gone", ["C", "X"])
@pytest.mark.parametrize("first", [2, 3])
def test_rows_before_the_unit_that_are_nowhere(gone, first):
    """A unit that starts behind a hole, in the rows or in their keys, is refused and told from where to start."""
    user, number = fresh(pick("CXS"))
    user.store(number, PROMPT, 256 * first)
    user.evict(number, PROMPT, 256 * first, gone, block=1)
    reply = user.ask_reserve(number, PROMPT, 256 * first + 256, first_block=first)
    kind = {"C": "COMPRESSED_KV", "X": "INDEXER_STATE"}[gone]
    why = f"no look-up could use it: {gone} ({kind}) lacks the rows of block 1"
    assert (refused(reply), reply.remedy) == (("commit_refused", why), "let the unit start at block 1")
    assert reasons(user) == [why]
    user.store(number, PROMPT, 256 * first + 256, first_block=1)
    assert user.acquire(number, PROMPT[: 256 * first + 257]).usable_tokens == 256 * first + 256


@pytest.mark.parametrize("gone", ["C", "X"])
def test_rows_that_go_before_the_commit(gone):
    """What a unit stands on and was dropped on request meanwhile is named by its commit, which publishes nothing."""
    user, number = fresh(pick("CXS"))
    user.store(number, PROMPT, 768)
    reserved = user.reserve(number, PROMPT, 1024, first_block=3)
    user.fill(reserved)
    user.evict(number, PROMPT, 768, gone, block=1)
    code, message = refused(user.ask(Commit(reserved.unit)))
    kind = {"C": "COMPRESSED_KV", "X": "INDEXER_STATE"}[gone]
    assert (code, message) == ("commit_refused", f"{gone} ({kind}) lost the rows of block 1")
    assert reasons(user) == [message]
    user.ok(Abort(reserved.unit))
    user.store(number, PROMPT, 1024)
    assert user.acquire(number, PROMPT[:1025]).usable_tokens == 1024


def test_an_object_that_goes_before_the_commit():
    """What was there at the reservation is needed at the commit; a unit without a boundary is refused uncounted."""
    for boundary in (True, False):
        user, number = fresh(pick("CM"))
        user.store(number, PROMPT, 256)
        reserved = user.reserve(number, PROMPT, 512, boundary=boundary)
        user.fill(reserved)
        cell = next(c for c in user.world.state.cells.values() if c.is_block)
        user.world.drop(cell, 0)
        why = "C (COMPRESSED_KV) shard 0 of [0, 256) was there and is gone"
        assert refused(user.ask(Commit(reserved.unit))) == ("commit_refused", why)
        assert reasons(user) == [why] * boundary


def test_what_a_unit_stands_on_is_kept_while_it_is_filled():
    """Others that need room do not take the rows before a unit, though the unit does not bring them itself."""
    config = CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, kind_bytes={Kind.COMPRESSED_KV: 4 * PAGE})
    user, number = fresh(pick("CM"), config)
    user.store(number, PROMPT, 512)
    reserved = user.reserve(number, PROMPT, 768, first_block=2)
    user.fill(reserved)
    assert refused(user.world.engine("other").ask_reserve(number, OTHER, 512))[0] == "capacity"
    user.ok(Commit(reserved.unit))
    assert user.acquire(number, PROMPT[:769]).usable_tokens == 768


def test_keys_of_other_rows_are_no_rows_to_stand_on():
    """A block whose keys come from another commit than its rows is as good as one without keys."""
    user, number = fresh(layout(compressed(), indexer()))
    user.store(number, PROMPT, 512)
    cell = next(c for c in user.world.state.cells.values() if c.is_block and c.node.depth == 1)
    cell.uncoupled = 0b10
    user.world.check = False
    code, message = refused(user.ask_reserve(number, PROMPT, 768, first_block=2))
    assert (code, message) == ("commit_refused", "no look-up could use it: X (INDEXER_STATE) lacks the rows of block 0")


@pytest.mark.parametrize("what", ["incomplete", "nothing", "size"])
def test_other_refusals_are_not_counted(what):
    """What a writer can still put right, or asked for wrongly, is no boundary stored in vain."""
    ring = group("S", Kind.SWA_WINDOW, Form.SNAPSHOT, window=64)
    user, number = fresh(layout(compressed(), ring))
    if what == "incomplete":
        reserved = user.reserve(number, PROMPT, 512)
        user.fill(reserved, skip=("S",))
        assert refused(user.ask(Commit(reserved.unit)))[0] == "commit_refused"
    elif what == "nothing":
        assert refused(user.ask_reserve(number, PROMPT, 0, boundary=False))[0] == "commit_refused"
    else:
        assert refused(user.ask_reserve(number, PROMPT, 512, first_block=9))[0] == "caller"
    assert reasons(user) == []


def test_a_prefix_on_disk_is_something_to_stand_on():
    """Rows that lie on disk only are restored before they are read, so a unit may go on behind them."""
    user, number = fresh(pick("CM"))
    user.store(number, PROMPT, 512)
    user.offload(number, PROMPT, 512)
    user.store(number, PROMPT, 768, first_block=2)
    assert reasons(user) == []
    offer = user.acquire(number, PROMPT[:769]).offers[0]
    assert (offer.position, offer.ready) == (768, False)


def test_refusals_are_counted_each_time():
    """An engine that stores in vain again and again is seen as one."""
    user, number = fresh(pick("CS"))
    for end in (255, 300, 301):
        user.ask_reserve(number, PROMPT, end)
    user.ask(Evict(Kind.COMPRESSED_KV, number, user.boundary(number, PROMPT, 0)))
    assert len(reasons(user)) == 3
