"""What has become of a prefix as a whole, derived from the copies of its objects and from what it was before.

Nothing of this is stored: a state that could disagree with the objects would be wrong just when somebody asks. What is
brought back from quantised records lies in memory again as anything else does; that it is an approximation since, its
exactness tells.
"""

import enum

from kvledger.verdict import Exactness
from kvledgerd.core.copies.parts import BoundaryPath, find_parts
from kvledgerd.core.copies.precisions import QUANTISED
from kvledgerd.core.known_layout import KnownLayout

__all__ = ["PrefixState", "exactness_of", "prefix_state"]


class PrefixState(enum.StrEnum):
    """Where a boundary with all that a resume there needs is kept."""

    FULL = "full"
    """All of it lies in memory, and always did."""
    COMPRESSED = "compressed"
    """All of it is kept, and of a part nothing but quantised records is left, on disk."""
    PARTIAL_OFFLOAD = "partial_offload"
    """All of it is kept, a part of it, or the whole, on disk alone."""
    FULL_RESTORE = "full_restore"
    """All of it lies in memory again."""
    GONE = "gone"
    """Something of it is kept nowhere; nothing can resume there."""


def prefix_state(known: KnownLayout, at: BoundaryPath, before: PrefixState | None) -> PrefixState:
    """Return the state of a boundary.

    Args:
        known: Its layout.
        at: The boundary as the index has it.
        before: The state that it was in before; None if it was in none.
    """
    parts = find_parts(known, at)
    if parts.lacking or not parts.found:
        return PrefixState.GONE
    away = [(cell, slot) for cell, slot in parts.found if not cell.memory >> slot & 1]
    if any(cell.precision(slot) in QUANTISED for cell, slot in away):
        return PrefixState.COMPRESSED
    if away:
        return PrefixState.PARTIAL_OFFLOAD
    if before in {PrefixState.COMPRESSED, PrefixState.PARTIAL_OFFLOAD, PrefixState.FULL_RESTORE}:
        return PrefixState.FULL_RESTORE
    return PrefixState.FULL


def exactness_of(known: KnownLayout, at: BoundaryPath) -> Exactness:
    """Return whether something of a boundary is kept as an approximation alone."""
    approx = any(cell.approx >> slot & 1 for cell, slot in find_parts(known, at).found)
    return Exactness.APPROX if approx else Exactness.EXACT
