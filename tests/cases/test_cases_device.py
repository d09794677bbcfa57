"""Field cases about memory of an engine's device: who may write where, and when a page is free.

Each test bears the number of its case in the collection of incidents; what is said there of an engine's blocks is true
here of the pages that it set aside, for every kind that it can happen to.
"""

import pytest

from kvledger.kinds import Form
from kvledger.wire.replies import Failed, PagesGiven
from kvledger.wire.requests import Offload, Release, ReportFilled
from support.devices import Pages, set_aside, wish
from support.layouts import compressed, indexer, pick, recurrent, tail, window
from support.world import World, layout

BLOCK = 32
STEM = list(range(64))
LONG = list(range(160))
OTHER = list(range(1000, 1160))
ROWS = {"C": compressed(block=BLOCK), "X": (compressed(block=BLOCK), indexer(block=BLOCK))}


def engine(*groups, pages, **fields) -> tuple[World, object, int, Pages]:
    """A world, an engine, its layout of 32-token blocks and its device pool."""
    world = World()
    user = world.engine()
    number = user.register(layout(*groups, block_tokens=BLOCK, **fields))
    return world, user, number, set_aside(user, number, pages)


@pytest.mark.parametrize("kind", ["C", "X"])
def test_v16_hits_are_pinned_before_pages_are_given(kind):
    """V16: of four cached pages two are hits, three more are wanted: refused, no hit goes, no page has two owners."""
    groups = ROWS[kind] if kind == "X" else (ROWS[kind],)
    world, user, number, pages = engine(*groups, pages=4)
    pages.put(STEM, 64)
    pages.put(OTHER, 64)
    hit = user.acquire(number, LONG)
    before = len(world.log)

    refused = pages.ask(LONG, 160)

    assert (refused.code, refused.field) == ("capacity", "pages")
    assert len(world.log) == before
    assert len(user.read(hit)) == 2 * len(groups)
    user.ok(Release(hit.lease))
    # Without the lease the hits are still what the unit builds on, and none of them makes room for it
    assert pages.ask(LONG, 160).code == "capacity"
    given = pages.ask(LONG, 128)
    assert isinstance(given, PagesGiven)
    assert len(given.offsets) == 2 * len(groups)
    owned = [copy.offset for copy in pages.pool.copies.values()] + given.offsets
    assert len(dict.fromkeys(owned)) == len(owned) == 4 * len(groups)


@pytest.mark.parametrize("case", ["V17", "V27"])
@pytest.mark.parametrize("paged", [window, tail], ids=["SWA_WINDOW", "UNCOMPRESSED_TAIL"])
def test_v17_v27_a_window_page_is_freed_on_settled_tokens_only(case, paged):
    """W=128, pages of 32, 159 computed: 158 settled free no page, as [31, 158) needs page 0; 159 free one."""
    del case  # the same scenario was met in two engines
    world, user, number, pages = engine(compressed(block=BLOCK), paged("S", BLOCK, 128), pages={"C": 8, "S": 4})
    pages.put(LONG, 128, all_pages=True)
    assert pages.resident() == {"C": 4, "S": 4}

    hit = user.acquire(number, LONG[:129])  # the step in flight reads under it

    unsettled = pages.free(LONG, 158, "S")
    refused = pages.ask(LONG, 160, first_block=4, all_pages=True)

    assert (refused.code, refused.field) == ("capacity", "pages")
    assert (unsettled.dropped, unsettled.kept) == (0, 0)
    assert pages.resident() == {"C": 4, "S": 4}
    early = pages.free(LONG, 159, "S")
    assert (early.dropped, early.kept) == (0, 1)
    user.ok(Release(hit.lease))
    assert pages.free(LONG, 159, "S").dropped == 1
    assert world.reasons("device_freed.1") == ["settled at 159"]
    assert isinstance(pages.ask(LONG, 160, first_block=4, all_pages=True), PagesGiven)


@pytest.mark.parametrize("letter", ["C", "S", "T", "M"])
def test_v20_pages_that_are_not_filled_are_nobodys(letter):
    """V20: what is asked for and not filled is neither written to disk nor handed out, and only its engine fills it."""
    world = World()
    user, other = world.engine(), world.engine("other")
    number = user.register(pick("C" + letter.replace("C", "X")))
    pages, prompt = set_aside(user, number, 64), list(range(600))
    given = pages.ask(prompt, 512)

    assert user.ask(Offload(number, user.boundary(number, prompt, 512))).code == "commit_refused"
    assert user.acquire(number, prompt).lease == 0
    assert other.ask(ReportFilled(given.unit, bytes(8 * len(given.offsets)), 512)).code == "generation"
    pages.fill(given)
    assert user.acquire(number, prompt).usable_tokens == 512
    # Disk takes bytes from memory, and what lies on a device alone is not there yet
    assert isinstance(user.ask(Offload(number, user.boundary(number, prompt, 512))), Failed)


@pytest.mark.parametrize("form", list(Form))
def test_v23_pages_never_change_their_kind_and_are_read_only_when_written_anew(form):
    """V23: each group has pages of its own; a freed page that is given again is no hit until it is filled again."""
    group = {Form.ROWS: compressed("D", BLOCK), Form.PAGED_WINDOW: tail(page=BLOCK, span=BLOCK)}.get(form, recurrent())
    world, user, number, pages = engine(compressed(block=BLOCK), group, pages=2)
    pages.put(STEM, 64)
    before = {name: copy for name, copy in pages.pool.copies.items() if owner(pages, name) == group.name}
    pages.free(STEM, 64, group.name, whole=True)
    pages.free(STEM, 64, "C", whole=True)

    given = pages.ask(OTHER, 64)

    asked = world.state.asked[given.unit]
    theirs = [o for item, o in zip(asked.objects, asked.offsets, strict=True) if item.group == 1]
    assert sorted(copy.offset for copy in before.values()) == sorted(theirs)
    assert user.acquire(number, OTHER[:65]).lease == 0
    pages.fill(given)
    hit = user.acquire(number, OTHER[:65])
    assert hit.usable_tokens == 64
    assert {run.generation for run in (*hit.rows, *hit.offers[0].runs)} == {given.unit}


def owner(pages: Pages, name: tuple[int, int]) -> str:
    """Return the group of a copy."""
    known = pages.pool.known
    return known.layout.groups[known.slot_groups[name[1]]].name


@pytest.mark.parametrize("same_engine", [True, False])
def test_v24_memory_has_one_layout(same_engine):
    """V24: the same memory under another layout is refused, and the field that differs is named."""
    world = World()
    user = world.engine()
    number = user.register(pick("CS"))
    set_aside(user, number, 8, memory=b"the buffer")
    again = user if same_engine else world.engine("other")
    differs = again.register(pick("CS", dtype="fp8"))

    refused = again.ask(wish(again, differs, 8, memory=b"the buffer"))

    assert (refused.code, refused.field) == ("caller", "memory")
    assert "under another layout (dtype: stored '', asked 'fp8')" in refused.message
    assert len(world.state.device_pools) == 1


def test_v24_addresses_of_one_engine_do_not_overlap():
    """V24: memory that begins inside another pool of the same engine is refused, whatever it is called."""
    world = World()
    user = world.engine()
    number = user.register(pick("C"))
    set_aside(user, number, 4, address=0x10000, size=0x8000)

    refused = user.ask(wish(user, number, 4, address=0x17000, size=0x8000, memory=b"another name"))

    assert (refused.code, refused.field) == ("caller", "memory")
    assert set_aside(user, number, 4, address=0x18000, size=0x8000, memory=b"behind it").number
