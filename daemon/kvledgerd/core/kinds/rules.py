"""What each kind answers, and the answers that two kinds share because they share a form."""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from kvledger.kinds import Form, Kind
from kvledger.verdict import Code
from kvledgerd.core.index import Cell, Copies
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.lookup.look import Look

__all__ = [
    "MEMORY",
    "Candidate",
    "Gone",
    "KindRules",
    "Place",
    "Shortfall",
    "boundary_victims",
    "copies_in",
    "rows_short",
    "state_short",
    "state_victims",
]

Gone = dict[int, int]
"""Cell number to the mask of slots whose copies are going."""


class Place(Protocol):
    """Where copies lie that may have to make room: memory, or a device pool. The same rules hold in both."""

    def resident(self, cell: Cell) -> int:
        """Return the mask of a cell's slots that have a copy there."""

    def beyond(self, cell: Cell) -> int:
        """Return the mask of a cell's slots that have a copy further down, which this place losing its own leaves."""

    def is_pinned(self, cell: Cell) -> bool:
        """Tell whether something keeps a cell's copies where they are."""


class _Memory:
    """The arenas; further down is the disk."""

    def resident(self, cell: Cell) -> int:
        return cell.memory

    def beyond(self, cell: Cell) -> int:
        return cell.disk

    def is_pinned(self, cell: Cell) -> bool:
        return cell.pins > 0


MEMORY: Place = _Memory()


class Candidate(NamedTuple):
    """A boundary to be judged: tokens, blocks before it, and the cell of the boundary itself if there is one."""

    position: int
    depth: int
    cell: Cell | None


class Shortfall(NamedTuple):
    """Why a group is not recoverable at a candidate."""

    code: Code
    detail: str


class KindRules(NamedTuple):
    """The rules of one kind.

    Attributes:
        shortfall: (look, group index, candidate) to why the group is not recoverable there, None if it is.
        victims: (layout, cell, gone, place) to the copies in that place that go together when this kind's copies in the
            cell are dropped, cell by cell; empty if they can not go now. `gone` maps cells to slots that are going
            already.
    """

    shortfall: Callable[[Look, int, Candidate], Shortfall | None]
    victims: Callable[[KnownLayout, Cell, Gone, Place], list[Copies]]


def copies_in(place: Place, cell: Cell, mask: int, gone: Gone) -> list[Copies]:
    """Return the copies of a cell's masked slots that lie there and are not going already; an empty list for none."""
    left = place.resident(cell) & mask & ~gone.get(cell.id, 0)
    return [(cell, left)] if left else []


def boundary_victims(cell: Cell, gone: Gone, place: Place) -> list[Copies]:
    """Return all copies of an unpinned boundary: each is worth nothing without the others."""
    return [] if place.is_pinned(cell) else copies_in(place, cell, -1, gone)


def state_victims(known: KnownLayout, cell: Cell, gone: Gone, place: Place, kind: Kind) -> list[Copies]:
    """Drop a whole boundary, or all window pages of one kind in a block."""
    if place.is_pinned(cell):
        return []
    if not cell.is_block:
        return boundary_victims(cell, gone, place)
    masks = [known.geometry.block_masks[g] for g in known.geometry.windows if known.geometry.groups[g].kind is kind]
    return copies_in(place, cell, sum(masks), gone)


def rows_short(look: Look, group: int, at: Candidate, code: Code) -> Shortfall | None:
    """Judge a group of form `rows`: every whole block, and the whole rows of the residue."""
    covered = look.covered[group]
    if covered < at.depth:
        start = covered * look.block_tokens
        return Shortfall(code, f"rows end at {start}")
    need = look.geometry.boundary_need(group, at.position)
    if need and (at.cell is None or look.has(at.cell) & need != need):
        return Shortfall(code, f"rows of the residue before {at.position} are missing")
    return None


def state_short(look: Look, group: int, at: Candidate, code: Code) -> Shortfall | None:
    """Judge a window or tail: its snapshot at exactly this boundary, or every page that touches what it needs."""
    if look.geometry.groups[group].form is Form.SNAPSHOT:
        need = look.geometry.boundary_need(group, at.position)
        if need and (at.cell is None or look.has(at.cell) & need != need):
            return Shortfall(code, f"no snapshot at {at.position}")
        return None
    return _pages_short(look, group, at, code)


def _pages_short(look: Look, group: int, at: Candidate, code: Code) -> Shortfall | None:
    geometry, spec = look.geometry, look.geometry.groups[group]
    need = geometry.boundary_need(group, at.position)
    if need and (at.cell is None or look.has(at.cell) & need != need):
        return Shortfall(code, f"a page of the residue before {at.position} is missing")
    pages = geometry.window_pages(group, at.position)
    missing = at.depth * look.block_tokens - pages.start * spec.page_tokens if pages else 0
    run = look.runs[group][at.depth]
    if missing > run:
        gap = at.depth * look.block_tokens - run - spec.page_tokens
        return Shortfall(code, f"page [{gap}, {gap + spec.page_tokens}) of the window is missing")
    return None
