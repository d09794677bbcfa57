"""Hits counted apart, in tokens: what a hash cache would have claimed, what was recoverable, and what lay ready.

Counted from the very events that go into the log, so that the log can always be added up to the same numbers.
"""

from typing import Final

from kvledger.kinds import Kind
from kvledger_storage.events import LookedUp

__all__ = ["HitTokens"]


_NAMES: Final = ("hash", "recoverable", "ready")


class HitTokens:
    """Sums over the look-ups of one incarnation."""

    def __init__(self) -> None:
        self._sums: Final[dict[int, list[int]]] = {0: [0, 0, 0]}

    def count(self, event: LookedUp) -> None:
        """Take in one look-up."""
        for kind, recoverable, ready in event.reach:
            sums = self._sums.setdefault(kind, [0, 0, 0])
            sums[0] += event.hash_tokens
            sums[1] += recoverable
            sums[2] += ready

    def counters(self) -> dict[str, int]:
        """Return the sums by name: of whole hits, and of each kind taken alone."""
        found: dict[str, int] = {}
        for kind, sums in sorted(self._sums.items()):
            end = f".{Kind(kind).name}" if kind else ""
            found |= {f"{name}_hit_tokens{end}": count for name, count in zip(_NAMES, sums, strict=True)}
        return found
