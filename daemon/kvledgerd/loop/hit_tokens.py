"""Hits counted apart, in tokens: what a hash cache would have claimed, what was recoverable, and what lay ready.

Counted from the very events that go into the log, so that the log can always be added up to the same numbers.
"""

from typing import Final

from kvledger.kinds import Kind
from kvledger_storage.events import LookedUp

__all__ = ["HitTokens"]


_NAMES: Final = ("hash", "recoverable", "ready")


class HitTokens:
    """Sums over the look-ups of one incarnation, by tenant."""

    def __init__(self) -> None:
        self._sums: Final[dict[str, dict[int, list[int]]]] = {}

    def count(self, event: LookedUp, tenant: str) -> None:
        """Take in one look-up of a tenant."""
        mine = self._sums.get(tenant)
        if mine is None:
            mine = self._sums[tenant] = {0: [0, 0, 0]}
        for kind, recoverable, ready in event.reach:
            sums = mine.setdefault(kind, [0, 0, 0])
            sums[0] += event.hash_tokens
            sums[1] += recoverable
            sums[2] += ready

    def counters(self, tenant: str = "") -> dict[str, int]:
        """Return the sums by name, of one tenant or of all: of whole hits, and of each kind taken alone."""
        chosen = [self._sums.get(tenant, {})] if tenant else list(self._sums.values())
        found: dict[str, int] = {}
        for kind in sorted({0, *(kind for mine in chosen for kind in mine)}):
            end = f".{Kind(kind).name}" if kind else ""
            for place, name in enumerate(_NAMES):
                found[f"{name}_hit_tokens{end}"] = sum(mine[kind][place] for mine in chosen if kind in mine)
        return found
