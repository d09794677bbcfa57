"""What has become of a prefix as a whole, derived from the copies of its objects and from what it was before.

Nothing of this is stored: a state that could disagree with the objects would be wrong just when somebody asks. There is
no state for a prefix whose dense form was dropped for a quantised one, since no tier here is lossy: whatever is kept of
an object is the bytes that were committed.
"""

import enum

from kvledgerd.core.copies.parts import BoundaryPath, find_parts
from kvledgerd.core.holdings import KnownLayout

__all__ = ["PrefixState", "prefix_state"]


class PrefixState(enum.StrEnum):
    """Where a boundary with all that a resume there needs is kept."""

    FULL = "full"
    """All of it lies in memory, and always did."""
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
    if any(not cell.memory >> slot & 1 for cell, slot in parts.found):
        return PrefixState.PARTIAL_OFFLOAD
    if before in {PrefixState.PARTIAL_OFFLOAD, PrefixState.FULL_RESTORE}:
        return PrefixState.FULL_RESTORE
    return PrefixState.FULL
