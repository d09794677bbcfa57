"""SWA_WINDOW: keys and values of the last W tokens. A resume at P needs the window that ends at P, or a replay."""

from kvledger.kinds import Kind
from kvledger.verdict import Code
from kvledgerd.core.index import Cell, Copies
from kvledgerd.core.kinds.rules import Candidate, Gone, KindRules, Place, Shortfall, state_short, state_victims
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.lookup.look import Look

__all__ = ["RULES"]


def _shortfall(look: Look, group: int, at: Candidate) -> Shortfall | None:
    return state_short(look, group, at, Code.WINDOW_MISSING)


def _victims(known: KnownLayout, cell: Cell, gone: Gone, place: Place) -> list[Copies]:
    return state_victims(known, cell, gone, place, Kind.SWA_WINDOW)


RULES = KindRules(_shortfall, _victims)
