"""Material: blocks on which no boundary stands yet.

Blocks that were committed without a boundary make nothing restorable by themselves, so they are the first to make room,
and those that are dropped before anything used them were written for nothing: they are counted. A block is used from
the moment at which a boundary is committed that stands on it, or a look-up hands it out. Where rows alone are all that
a resume at the end of a block needs, whole blocks are boundaries already, and never material.

A used block stands on used blocks; so of a path it is enough to look at the last one. Called by `apply` alone.
"""

from kvledgerd.core.index import Cell
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.placement.aging import prove
from kvledgerd.core.state import State

__all__ = ["note_stored", "note_used"]


def note_used(state: State, blocks: list[Cell]) -> None:
    """Note that a lease names these blocks, or a disk prefix stands on them; root first."""
    if blocks and not blocks[-1].used:
        _use(state, blocks)


def note_stored(state: State, known: KnownLayout, blocks: list[Cell], published: list[Cell], *, boundary: bool) -> None:
    """Note what a commit makes used.

    Args:
        state: The cache.
        known: The layout of the unit.
        blocks: What the layout keeps along the unit's path, root first.
        published: Cells into which the unit brought something.
        boundary: Whether the unit made its end a boundary.
    """
    if boundary or (known.rows_suffice and _is_whole(known, blocks)):
        _use(state, blocks)
        return
    # A block that was dropped and comes back may find the boundaries that stood on it still there.
    deepest = max((cell.node.depth for cell in published if cell.is_block and _bears(known, cell)), default=0)
    _use(state, [cell for cell in blocks if cell.node.depth <= deepest])


def _use(state: State, blocks: list[Cell]) -> None:
    for cell in blocks:
        if not cell.used:
            cell.used = True
            prove(state, cell)
            state.touch(cell)


def _is_whole(known: KnownLayout, blocks: list[Cell]) -> bool:
    mask = known.rows_mask
    whole = all((cell.memory | cell.disk) & mask == mask and not cell.uncoupled & mask for cell in blocks)
    return whole and bool(blocks) and len(blocks) == blocks[-1].node.depth


def _bears(known: KnownLayout, cell: Cell) -> bool:
    """Tell whether a boundary stands on a block: at its end, or on a block behind it."""
    if any(boundary.layout == known.number for boundary in cell.node.boundaries):
        return True
    below = (child.cell(known.number) for child in cell.node.children)
    return any(child is not None and child.used for child in below)
