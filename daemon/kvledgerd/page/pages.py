"""The pages as pure functions: from what was asked of daemon and database to HTML."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

from kvledgerd.audit.questions.boundaries import Boundary
from kvledgerd.audit.questions.engines import EngineLife, EngineRecord
from kvledgerd.audit.questions.finding import HASH_DIGITS, Found
from kvledgerd.audit.questions.kept import KeptObject
from kvledgerd.audit.questions.leases import LeaseLife
from kvledgerd.audit.questions.lives import ObjectLife
from kvledgerd.audit.questions.prefixes import PrefixLife
from kvledgerd.audit.questions.reads import ReadRecord
from kvledgerd.audit.questions.stream import StreamedVerdict, VerdictPage
from kvledgerd.audit.questions.tree import Level, Place
from kvledgerd.page.frame import Frame
from kvledgerd.page.linking import PLACES
from kvledgerd.page.live import Now
from kvledgerd.page.occupancy import occupied
from kvledgerd.page.rendering import render

__all__ = [
    "ENGINES",
    "VERDICTS",
    "StreamWish",
    "engine_page",
    "engines_page",
    "lease_page",
    "level_part",
    "now_page",
    "object_page",
    "prefix_page",
    "problem_page",
    "search_page",
    "tree_page",
    "verdict_page",
    "verdicts_page",
]

VERDICTS: Final = 50
"""Verdicts of one page."""
ENGINES: Final = 100
"""Engines of one page."""


class StreamWish(NamedTuple):
    """Which verdicts somebody wants to see.

    Attributes:
        misses: Only misses, and what got less than its hash hit.
        engine: Only this engine's, 0 for all.
        before: Only those before this event, 0 for the newest.
    """

    misses: bool = False
    engine: int = 0
    before: int = 0

    def link(self, before: int = 0) -> str:
        """Return where the same wish, begun before another event, is answered."""
        said = {"misses": int(self.misses), "engine": self.engine, "before": before}
        query = urlencode({name: value for name, value in said.items() if value})
        return f"/verdicts?{query}" if query else "/verdicts"


def now_page(frame: Frame, now: Now, stream: Sequence[StreamedVerdict], problem: str = "") -> str:
    """Return the first page: occupancy and the latest verdicts."""
    overview = now.overview
    return render(
        "now.html",
        frame=frame,
        live=True,
        occupied=occupied(now),
        counts=overview.counts if overview is not None else {},
        warnings=overview.warnings if overview is not None else [],
        stream=stream,
        problem=problem,
    )


def verdicts_page(frame: Frame, wish: StreamWish, stream: Sequence[StreamedVerdict]) -> str:
    """Return the verdict stream; it goes on by itself as long as it shows the newest."""
    full = len(stream) == VERDICTS
    return render(
        "verdicts.html",
        frame=frame,
        live=not wish.before,
        misses=wish.misses,
        engine=wish.engine,
        before=wish.before,
        newest=wish.link(),
        older=wish.link(stream[-1].seq) if full else "",
        stream=stream,
    )


def verdict_page(frame: Frame, page: VerdictPage) -> str:
    """Return one verdict."""
    return render("verdict.html", frame=frame, live=False, page=page)


def tree_page(
    frame: Frame,
    place: Place | None,
    level: Level,
    boundaries: Sequence[Boundary],
    objects: Sequence[KeptObject],
) -> str:
    """Return the tree behind a block with what the block itself keeps; of the root there is no `place`."""
    return render(
        "tree.html", frame=frame, live=False, place=place, level=level, boundaries=boundaries, objects=objects
    )


def level_part(node: int, level: Level) -> str:
    """Return the branches behind a block alone, to be put into a page that is open."""
    return render("level.html", node=node, level=level)


def object_page(frame: Frame, cell: int, life: ObjectLife, now: KeptObject | None, reads: Sequence[ReadRecord]) -> str:
    """Return an object's life and its readers."""
    return render("object.html", frame=frame, live=False, cell=cell, life=life, now=now, reads=reads)


def prefix_page(frame: Frame, node: int, life: PrefixLife, objects: Sequence[KeptObject]) -> str:
    """Return a boundary or block: what it keeps and what happened to it."""
    return render("prefix.html", frame=frame, live=False, node=node, life=life, objects=objects)


def lease_page(frame: Frame, life: LeaseLife) -> str:
    """Return a lease and what was read under it."""
    return render("lease.html", frame=frame, live=False, life=life)


def engines_page(frame: Frame, engines: Sequence[EngineRecord]) -> str:
    """Return the list of engines."""
    older = f"/engines?before={engines[-1].engine}" if len(engines) == ENGINES else ""
    return render("engines.html", frame=frame, live=False, engines=engines, older=older)


def engine_page(frame: Frame, life: EngineLife, stream: Sequence[StreamedVerdict]) -> str:
    """Return an engine with its latest verdicts."""
    return render("engine.html", frame=frame, live=False, life=life, stream=stream)


def search_page(frame: Frame, text: str, found: Sequence[Found]) -> str:
    """Return what a search has found."""
    places = [(one, PLACES[one.sort] + quote(one.name) if one.sort in PLACES else "") for one in found]
    return render("search.html", frame=frame, live=False, q=text, found=places, digits=HASH_DIGITS)


def problem_page(frame: Frame, says: str, why: str, remedy: str = "") -> str:
    """Return what is said in the place of a page."""
    return render("problem.html", frame=frame, live=False, says=says, why=why, remedy=remedy)
