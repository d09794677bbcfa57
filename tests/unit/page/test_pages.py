"""The page as pure functions: what stands on it, that it can be read by everybody, and that nothing in it can run."""

from __future__ import annotations

import pytest

from kvledger.kinds import Kind
from kvledger.verdict import Code, Layer
from kvledger.wire.quotas import QuotaInfo
from kvledger.wire.replies import StatusReport
from kvledger.wire.tenants import TenantInfo
from kvledgerd.audit.questions.boundaries import Boundary
from kvledgerd.audit.questions.engines import EngineLife, EngineRecord
from kvledgerd.audit.questions.finding import Found
from kvledgerd.audit.questions.kept import Kept, KeptObject
from kvledgerd.audit.questions.leases import LeaseLife, LeaseObject, OfferView
from kvledgerd.audit.questions.lives import Entry, ObjectLife
from kvledgerd.audit.questions.prefixes import PrefixLife, PrefixRecord
from kvledgerd.audit.questions.reads import ReadRecord
from kvledgerd.audit.questions.stream import CutView, Offered, StreamedVerdict, VerdictPage
from kvledgerd.audit.questions.tree import Branch, Level, Place
from kvledgerd.core.transitions import ObjectState
from kvledgerd.page import pages
from kvledgerd.page.frame import Frame
from kvledgerd.page.linking import linked
from kvledgerd.page.live import Now
from kvledgerd.page.occupancy import occupied
from kvledgerd.page.rendering import ENTRIES
from kvledgerd.page.words import KINDS, LAYERS, REASONS, STATES
from kvledgerd.top.overview import Look, overview
from support.html import Page

EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>{{ 7*7 }}</td>\x00\u202e"
COUNTERS = {
    "arena_bytes": 48 << 20,
    "memory_cap_bytes": 64 << 20,
    "disk_bytes": 1 << 30,
    "disk_cap_bytes": 16 << 30,
    "disk_dead_bytes": 0,
    **dict.fromkeys(("objects", "engines", "connections", "leases", "units", "topologies", "topologies_broken"), 3),
    **dict.fromkeys(("queue_commands", "queue_parked", "decisions", "decision_faults", "stored_unusable"), 0),
    "log_written_seq": 40,
    "log_spares": 2,
    "live_bytes.COMPRESSED_KV": 16 << 20,
    "free_bytes.COMPRESSED_KV": 16 << 20,
    "live_bytes.SWA_WINDOW": 16 << 20,
    "free_bytes.SWA_WINDOW": 0,
    "device_live_bytes.SWA_WINDOW": 1 << 20,
    "device_free_bytes.SWA_WINDOW": 3 << 20,
}


def now() -> Now:
    """Return a daemon with two kinds in memory and one on a device."""
    quotas = [
        QuotaInfo(Kind.COMPRESSED_KV, 8 << 20, fixed=False, held_bytes=32 << 20, live_bytes=16 << 20, missed_tokens=0),
        QuotaInfo(Kind.SWA_WINDOW, 4 << 20, fixed=True, held_bytes=16 << 20, live_bytes=16 << 20, missed_tokens=0),
    ]
    look = Look(1.0, StatusReport(7, 41, "00", COUNTERS), quotas)
    tenants = [TenantInfo(name, 1, 0, 1, 5, 8 << 20, 32 << 20, 1 << 30, 4 << 30) for name in (EVIL, "team-b")]
    return Now(overview(None, look), look, tenants=tenants)


def verdict(name: str, *, lease: int = 0) -> StreamedVerdict:
    """Return a verdict in which every text is `name`, that claims 512 of 600 tokens by hash and offers 256 of them."""
    cuts = [
        CutView(256, 512, 3, "tail_missing", name, "UNCOMPRESSED_TAIL", name),
        CutView(512, 600, 1, "below_block", "", "", "a block is 256 tokens"),
    ]
    return StreamedVerdict(40, 1_000, 3, name, 1, name, 600, 512, 256 if lease else 0, lease, cuts)


FRAME = Frame("/verdicts", 40, 41, 7)
ENGINE = EngineRecord(3, EVIL, EVIL, 0, 1, 5, 1_000, 50, 2_000, EVIL)
OBJECT = KeptObject("4.1", 4, 1, EVIL, EVIL, "UNCOMPRESSED_TAIL", 1, "boundary at 600", 4096, "MIRRORED")
ENTRIES_OF_EVIL = [
    Entry(9, 1_000, EVIL, EVIL, EVIL),
    Entry(10, 2_000, "engine:3", "read", "under lease 17 of engine 3"),
]
READ = ReadRecord(40, 1_000, EVIL, 3, EVIL, 0, 1, 17, 600, 0, is_only=True, how=EVIL)
BRANCH = Branch(
    1,
    9,
    9,
    9,
    144,
    "ab" * 32,
    goes_on=True,
    kept=[Kept("COMPRESSED_KV", 1, 1, 2, 9000), Kept(EVIL, 0, 1, 1, 1)],
    boundaries=[Boundary(4, 9, 1, EVIL, 150, 6, 1, 2, ["SWA_WINDOW"], resumes=False)] * 8,
)  # fmt: skip  a record
LEASE = LeaseLife(
    17,
    3,
    EVIL,
    0,
    1,
    EVIL,
    600,
    [OfferView(0, 256, 0, ready=True, kept=True, approx=True)],
    ENTRIES_OF_EVIL,
    [LeaseObject("4.1", EVIL, 0, "boundary at 600", 4096, 9, 3, EVIL, "ff")],
)  # fmt: skip  a record


def all_pages() -> dict[str, str]:
    """Return every page, each text on it as evil as an engine could make it."""
    one, wish = verdict(EVIL), pages.StreamWish(misses=True, engine=3)
    life = ObjectLife("4.1", EVIL, EVIL, EVIL, EVIL, ENTRIES_OF_EVIL)
    prefix = PrefixLife(PrefixRecord(4, EVIL, 1, 600, 6, "ab" * 32), ENTRIES_OF_EVIL)
    level = Level([BRANCH], 9)
    offers = [Offered(0, 4, 9, 256, 0, 0, ready=True, kept=True, approx=True)]
    return {
        "now": pages.now_page(FRAME, now(), [one]),
        "no daemon": pages.now_page(Frame("/", why_not=EVIL), Now(None, None, EVIL), [], EVIL),
        "verdicts": pages.verdicts_page(FRAME, wish, [one, verdict(EVIL, lease=17)]),
        "verdict": pages.verdict_page(FRAME, VerdictPage(one, 9, 0, 0, offers, EVIL, EVIL)),
        "root": pages.tree_page(FRAME, None, level, [], []),
        "block": pages.tree_page(FRAME, Place(9, 9, 144, "ab" * 32, [(1, 1)]), level, BRANCH.boundaries, [OBJECT]),
        "object": pages.object_page(FRAME, 4, life, OBJECT, [READ]),
        "prefix": pages.prefix_page(FRAME, 9, prefix, [OBJECT]),
        "lease": pages.lease_page(FRAME, LEASE),
        "engines": pages.engines_page(FRAME, [ENGINE]),
        "engine": pages.engine_page(FRAME, EngineLife(ENGINE, 1, 1, 600, 512, 0, {EVIL: 1}), [one]),
        "search": pages.search_page(FRAME, EVIL, [Found("model", EVIL, EVIL), Found("engine", "3", EVIL)]),
        "problem": pages.problem_page(FRAME, EVIL, EVIL, EVIL),
    }


@pytest.mark.parametrize("name", all_pages())
def test_nothing_that_an_engine_says_becomes_markup(name):
    """Each page is well formed, has no element, attribute or address of an engine's making, and shows its words."""
    page = Page(all_pages()[name])
    assert page.faults() == []
    assert name == "root" or "<script>alert(1)</script>" in page.text
    assert "{{ 7*7 }}" in page.text or "49" not in page.text


def test_a_level_that_is_put_into_a_page_is_escaped_as_well():
    """The branches that are fetched alone hold no element of an engine's making."""
    page = Page(pages.level_part(9, Level([BRANCH], 0)))
    assert {name for name, _ in page.elements} <= {"ul", "li", "div", "button", "a", "span", "abbr", "small"}
    assert "<script>alert(1)</script>" in page.text


def test_a_boundary_says_what_it_is_made_of_and_why_nothing_resumes_there():
    """Kinds of its own states, or blocks alone; a broken edge where a state, or something of its blocks, has gone."""
    shown = [
        Boundary(1, 9, 1, "m", 64, 0, 2, 2, ["SWA_WINDOW", "UNCOMPRESSED_TAIL"], resumes=True),
        Boundary(2, 9, 1, "m", 80, -1, 0, 0, [], resumes=True),
        Boundary(3, 9, 1, "m", 96, -1, 0, 0, [], resumes=False),
        Boundary(4, 9, 1, "m", 99, 3, 1, 2, ["UNCOMPRESSED_TAIL"], resumes=False),
        Boundary(5, 9, 1, "m", 111, 3, 1, 1, ["UNCOMPRESSED_TAIL"], resumes=None),
    ]
    page = Page(pages.tree_page(FRAME, None, Level([], 0), shown, []))
    said = "64 SWA TAIL m 80 m, on blocks alone 96 m, on blocks alone, of its blocks some lack 99 TAIL m, 1 of 2 kept"
    assert f"{said} 111 TAIL m" in page.text
    assert sum(one.get("class") == "gone" for one in page.all("li")) == 2


def test_the_stream_says_why_in_words():
    """A line names who asked, the three numbers of tokens, and layer, reason, kind and group of what cut the rest."""
    page = Page(pages.verdicts_page(FRAME, pages.StreamWish(), [verdict("swa", lease=17), verdict("swa")]))
    assert "600 512 256" in page.text
    assert "600 512 miss" in page.text
    assert "3 the tail or recurrent state at this boundary is missing TAIL swa" in page.text
    assert {"/verdicts/40", "/engines/3"} <= set(page.links)


@pytest.mark.parametrize(
    ("ends", "shown"),
    [
        ([("leave", 0, 600), ("abi_mismatch", 256, 300)], "abi_mismatch"),
        ([("window_missing", 0, 400), ("bytes_damaged", 400, 512)], "bytes_damaged"),
        ([("below_block", 512, 600), ("halo_missing", 256, 512)], "halo_missing"),
        ([("rows_missing", 0, 256), ("no_match", 512, 590), ("below_block", 590, 600)], "no_match"),
        ([("leave", 256, 600)], "leave"),
        ([], None),
    ],
)
def test_a_line_shows_what_cut_deepest_in_the_hash_hit(ends, shown):
    """Of several cuts behind what was offered it is the one at the hash hit's end, and a wish of the engine last."""
    cuts = [CutView(start, end, 1, code, "", "", "") for code, start, end in ends]
    one = StreamedVerdict(1, 1, 1, "", 1, "", 600, 512, 256, 17, cuts)
    assert (one.shown and one.shown.code) == shown


def test_a_stream_is_paged_by_events():
    """A full page leads to the older ones with the same wish, and one of the past does not go on by itself."""
    full = [verdict("swa")] * pages.VERDICTS
    page = Page(pages.verdicts_page(FRAME, pages.StreamWish(misses=True, engine=3), full))
    assert "/verdicts?misses=1&engine=3&before=40" in page.links
    assert any("data-live" in one for one in page.all("div"))
    past = Page(pages.verdicts_page(FRAME, pages.StreamWish(before=99), full[:1]))
    assert "/verdicts" in past.links
    assert not any("data-live" in one for one in past.all("div"))


def test_occupancy_is_shown_against_the_cap():
    """Of a cap of 64 MiB, 32 set aside and 16 in use are half and a quarter of the bar."""
    found = occupied(now())
    assert found.kinds[0][:4] == ("COMPRESSED_KV", 16 << 20, 32 << 20, 64 << 20)
    assert [bar.name for bar in found.devices] == ["SWA_WINDOW"]
    page = Page(pages.now_page(FRAME, now(), []))
    bars = [one for one in page.all("svg") if one.get("role") == "img"]
    assert bars[0]["aria-label"] == "16 MiB in use, 32 MiB set aside of a cap of 64 MiB"
    assert [one["width"] for one in page.all("rect") if one.get("class") in {"held", "live"}][:2] == ["50.00", "25.00"]


def test_tenants_are_shown_where_there_are_several():
    """Each of two has its memory and disk against its own caps, and whose sureness that is; one is the whole."""
    page = Page(pages.now_page(FRAME, now(), []))
    assert "of the page's own tenant alone" in pages.now_page(FRAME, now(), [])
    labels = [one["aria-label"] for one in page.all("svg") if one.get("role") == "img"]
    assert labels[-4:] == ["8 MiB of 32 MiB", "1 GiB of 4 GiB"] * 2
    alone = now()
    alone = alone._replace(tenants=alone.tenants[:1])
    assert occupied(alone).tenants == []
    assert "own tenant" not in pages.now_page(FRAME, alone, [])


def test_what_is_too_much_for_a_page_is_counted():
    """Of a long life the latest entries are shown, and the command that lists all is named."""
    many = [Entry(seq, 1, "daemon", "read", "") for seq in range(ENTRIES + 7)]
    page = Page(pages.object_page(FRAME, 4, ObjectLife("4.1", "m", "g", "SWA_WINDOW", "p", many), None, []))
    assert "7 earlier entries are left out; kvledger audit object 4.1 lists all" in page.text
    assert len(page.all("tr")) == ENTRIES + 1


def test_what_is_told_links_to_what_it_names():
    """Leases, engines and prefixes in a text are links, and nothing else of it comes into an address."""
    pieces = list(linked("to engine 3 under lease 17, not lease 1/../x nor engine javascript:1"))
    assert (
        "".join(piece.text for piece in pieces)
        == "to engine 3 under lease 17, not lease 1/../x nor engine javascript:1"
    )
    assert [piece.to for piece in pieces if piece.to] == ["/engines/3", "/leases/17", "/leases/1"]


def test_a_page_that_lags_says_so():
    """Tables that are far behind the daemon are named, with by how much."""
    assert "2,000 behind" in Page(pages.engines_page(Frame("/engines", 1, 2001, 7), [ENGINE])).text
    assert "behind" not in Page(pages.engines_page(FRAME, [])).text


def test_everything_has_its_words():
    """Each kind, layer, reason and state that the daemon knows has words on the page."""
    assert list(KINDS) == [kind.name for kind in Kind]
    assert set(LAYERS) == {layer.value for layer in Layer}
    assert set(REASONS) == {code.value for code in Code}
    assert set(STATES) == {state.name for state in ObjectState}
