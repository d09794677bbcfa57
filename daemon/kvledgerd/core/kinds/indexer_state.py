"""INDEXER_STATE: routing keys of a compressed group. Needed: all of [0, P), each from the commit of its rows."""

from kvledger.verdict import Code
from kvledgerd.core.kinds.compressed_kv import leaf_victims
from kvledgerd.core.kinds.rules import Candidate, KindRules, Shortfall, rows_short
from kvledgerd.core.lookup.look import Look

__all__ = ["RULES"]


def _shortfall(look: Look, group: int, at: Candidate) -> Shortfall | None:
    short = rows_short(look, group, at, Code.INDEXER_MISSING)
    if short is not None:
        return short
    if look.coupled[group] < at.depth:
        start = look.coupled[group] * look.block_tokens
        return Shortfall(Code.INDEXER_UNCOUPLED, f"keys from {start} on belong to another commit than their rows")
    mask = look.geometry.boundary_masks[group]
    if at.cell is not None and look.uncoupled(at.cell) & mask:
        return Shortfall(Code.INDEXER_UNCOUPLED, "keys of the residue belong to another commit than their rows")
    return None


RULES = KindRules(_shortfall, leaf_victims)
