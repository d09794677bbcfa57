"""DISK_PREFIX: the manifest of a boundary whose objects lie on disk; offload, restore, scrub and quota act on it alone.

No group of a layout is of this kind, so no verdict asks it; a boundary that lies on disk is judged through its objects.
"""

from kvledger.verdict import Code
from kvledgerd.core.index import Cell, Copies
from kvledgerd.core.kinds.rules import Candidate, Gone, KindRules, Place, Shortfall, boundary_victims
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.lookup.look import Look

__all__ = ["RULES"]


def _shortfall(look: Look, group: int, at: Candidate) -> Shortfall | None:
    del look, group
    if at.cell is None or at.cell.manifest is None:
        return Shortfall(Code.ON_DISK, f"no disk prefix ends at {at.position}")
    return None


def _victims(known: KnownLayout, cell: Cell, gone: Gone, place: Place) -> list[Copies]:
    del known
    return boundary_victims(cell, gone, place)


RULES = KindRules(_shortfall, _victims)
