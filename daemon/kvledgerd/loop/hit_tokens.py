"""Hits counted apart, in tokens: what a hash cache would have claimed, what was recoverable, and what lay ready.

All three end with a block. Whether a boundary inside one fits a prompt only its client knows, who keeps it by a settle:
what that adds to what lay ready is counted for itself.

Counted from the very events that go into the log, so that the log can always be added up to the same numbers.
"""

from typing import Final

from kvledger.kinds import Kind
from kvledger_storage.events import LookedUp

__all__ = ["HitTokens"]


_OPEN_MAX: Final = 65_536
"""Leases whose settle is waited for; a client that never sends one must not cost memory for ever."""
_NAMES: Final = ("hash", "recoverable", "ready")


class HitTokens:
    """Sums over the look-ups of one incarnation, by tenant."""

    def __init__(self) -> None:
        self._sums: Final[dict[str, dict[int, list[int]]]] = {}
        self._inside: Final[dict[str, int]] = {}
        # Lease to what lay ready, of look-ups that offered something inside a block
        self._open: Final[dict[int, int]] = {}

    def count(self, event: LookedUp, tenant: str) -> None:
        """Take in one look-up of a tenant."""
        mine = self._sums.get(tenant)
        if mine is None:
            mine = self._sums[tenant] = {0: [0, 0, 0]}
        for kind, recoverable, ready in event.reach:
            sums = mine.get(kind) or mine.setdefault(kind, [0, 0, 0])
            sums[0] += event.hash_tokens
            sums[1] += recoverable
            sums[2] += ready
        if event.lease and any(offer.residue for offer in event.offers):
            self._open[event.lease] = next((ready for kind, _, ready in event.reach if not kind), 0)
            if len(self._open) > _OPEN_MAX:
                del self._open[next(iter(self._open))]

    def settled(self, lease: int, position: int, tenant: str) -> None:
        """Take in that a ready boundary inside a block was kept; `position` is where it lies, tokens."""
        ready = self._open.pop(lease, position)
        self._inside[tenant] = self._inside.get(tenant, 0) + max(0, position - ready)

    def counters(self, tenant: str = "") -> dict[str, int]:
        """Return the sums by name, of one tenant or of all: of whole hits, and of each kind taken alone."""
        chosen = [self._sums.get(tenant, {})] if tenant else list(self._sums.values())
        found: dict[str, int] = {}
        for kind in sorted({0, *(kind for mine in chosen for kind in mine)}):
            end = f".{Kind(kind).name}" if kind else ""
            for place, name in enumerate(_NAMES):
                found[f"{name}_hit_tokens{end}"] = sum(mine[kind][place] for mine in chosen if kind in mine)
        found["residue_hit_tokens"] = self._inside.get(tenant, 0) if tenant else sum(self._inside.values())
        return found
