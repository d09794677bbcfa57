"""UNCOMPRESSED_TAIL: raw rows after the last whole row with their halo, and recurrent state. Needed at exactly P."""

from kvledger.kinds import Kind
from kvledger.verdict import Code
from kvledgerd.core.index import Cell, Copies
from kvledgerd.core.kinds.rules import Candidate, Gone, KindRules, Place, Shortfall, state_short, state_victims
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.lookup.look import Look

__all__ = ["RULES"]


def _shortfall(look: Look, group: int, at: Candidate) -> Shortfall | None:
    halo = look.geometry.groups[group].halo_rows
    return state_short(look, group, at, Code.HALO_MISSING if halo else Code.TAIL_MISSING)


def _victims(known: KnownLayout, cell: Cell, gone: Gone, place: Place) -> list[Copies]:
    return state_victims(known, cell, gone, place, Kind.UNCOMPRESSED_TAIL)


RULES = KindRules(_shortfall, _victims)
