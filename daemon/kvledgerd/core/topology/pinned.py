"""What topologies pin, in bytes: a walk over their cells, for decisions that are rare or about to be refused anyway.

A pin keeps a whole cell where it is, so all of the cell's memory counts, and so does what left the cell and may not be
reused before the last pin goes.
"""

from collections.abc import Iterable

from kvledger.geometry import bits
from kvledger.kinds import Kind
from kvledgerd.core.index import Cell
from kvledgerd.core.placement.pools import paged
from kvledgerd.core.state import State

__all__ = ["pinned_bytes", "pinned_cells", "pinned_objects"]


def pinned_cells(state: State) -> dict[int, Cell]:
    """Return every cell that a topology pins, by number."""
    return {cell.id: cell for topology in state.topologies.values() for cell in topology.cells()}


def pinned_bytes(state: State, cells: Iterable[Cell], kind: Kind | None = None, tenant: str | None = None) -> int:
    """Return the memory that cells keep, bytes of whole pages; of one kind or tenant only if it is given."""
    return sum(
        paged(length)
        for cell in cells
        if tenant in {None, state.layouts[cell.layout].tenant}
        for length, other in _extents(state, cell)
        if kind in {None, other}
    )


def _extents(state: State, cell: Cell) -> list[tuple[int, Kind]]:
    known = state.layouts[cell.layout]
    found = [(known.length_of(cell, slot), known.slot_kinds[slot]) for slot in bits(cell.memory)]
    return found + [(length, Kind(kind)) for _, _, length, kind in cell.limbo or ()]


def pinned_objects(state: State) -> int:
    """Return how many objects lie in cells that topologies pin."""
    return sum((cell.memory | cell.disk).bit_count() for cell in pinned_cells(state).values())
