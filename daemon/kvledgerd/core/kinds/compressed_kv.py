"""COMPRESSED_KV: one row per `tokens_per_row` tokens. A resume at P needs all rows of [0, P).

A row is worth nothing without those before it, and states behind it are worth nothing without it: leaves go first, and
whole. A child whose copies lie on disk only keeps its parent where this would end, since its restore needs it; a parent
that lies on disk too goes, else what was written to disk once would fill the memory that it was to free.
"""

from kvledger.verdict import Code
from kvledgerd.core.index import Cell, Copies
from kvledgerd.core.kinds.rules import (
    Candidate,
    Gone,
    KindRules,
    Place,
    Shortfall,
    boundary_victims,
    copies_in,
    rows_short,
)
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.lookup.look import Look

__all__ = ["RULES", "leaf_victims"]


def _shortfall(look: Look, group: int, at: Candidate) -> Shortfall | None:
    return rows_short(look, group, at, Code.ROWS_MISSING)


def leaf_victims(known: KnownLayout, cell: Cell, gone: Gone, place: Place) -> list[Copies]:
    """Drop a block with the boundaries that stand on it, if no later block of this layout does."""
    if not cell.is_block:
        return boundary_victims(cell, gone, place)
    if place.is_pinned(cell):
        return []
    layout, needed = known.number, False
    for child in cell.node.children:
        after = child.cell(layout)
        if after is not None:
            if place.resident(after) & ~gone.get(after.id, 0):
                return []
            needed = needed or place.beyond(after) != 0
    if needed and place.resident(cell) & ~place.beyond(cell) & known.rows_mask:
        return []
    going: list[Copies] = []
    for boundary in cell.node.boundaries:
        if boundary.layout == layout:
            if place.is_pinned(boundary):
                return []
            going += copies_in(place, boundary, -1, gone)
    return going + copies_in(place, cell, -1, gone)


RULES = KindRules(_shortfall, leaf_victims)
