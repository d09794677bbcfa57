"""A census of prefixes: how many boundaries are whole in memory, away on disk, kept quantised, back again, or gone.

What has become of a boundary follows from all that it stands on, so it is nothing that an event could count. The census
looks at a few boundaries each second and never holds the loop for long: small caches are counted every second, very
large ones in minutes. What it tells is its latest whole pass. `kvledger audit states` tells the same of one boundary,
with all changes, from the log.
"""

from collections import Counter
from typing import Final

from kvledger.verdict import Exactness
from kvledgerd.core.config import DRILL_TENANT
from kvledgerd.core.copies.parts import path_to
from kvledgerd.core.copies.prefix_state import PrefixState, exactness_of, prefix_state
from kvledgerd.core.index import Cell
from kvledgerd.core.state import State

__all__ = ["PrefixCensus"]

_STEPS: Final = 20_000
"""What one look may cost, in numbers of cells passed over: about two milliseconds."""
_STEPS_A_BLOCK: Final = 16
"""What a boundary costs for each block that it stands on."""


class PrefixCensus:
    """Counts boundaries; used on the loop.

    Args:
        state: What is counted; never changed here.
    """

    def __init__(self, state: State) -> None:
        self._state: Final = state
        self._next = 1
        self._seen: dict[int, PrefixState] = {}
        self._before: dict[int, PrefixState] = {}
        self._approx = 0
        self._told: dict[PrefixState, int] = {}
        self._told_approx = 0

    def look(self) -> None:
        """Go on counting; the end of a pass is told, and the next look begins another."""
        left = _STEPS
        while left > 0:
            if self._next >= self._state.next_cell:
                self._tell()
                return
            cell = self._state.cells.get(self._next)
            self._next += 1
            left -= 1
            if cell is not None and not cell.is_block:
                self._count(cell)
                left -= _STEPS_A_BLOCK * (cell.node.depth + 1)

    def counters(self) -> dict[str, int]:
        """Return the latest whole pass, for status reports."""
        found = {f"prefixes_{state.value}": self._told.get(state, 0) for state in PrefixState}
        return found | {"prefixes_approx": self._told_approx}

    def _count(self, cell: Cell) -> None:
        known = self._state.layouts[cell.layout]
        if known.tenant == DRILL_TENANT:
            return
        at = path_to(known, cell.node, cell.residue, cell)
        self._seen[cell.id] = prefix_state(known, at, self._before.get(cell.id))
        self._approx += exactness_of(known, at) is Exactness.APPROX

    def _tell(self) -> None:
        self._told, self._told_approx = dict(Counter(self._seen.values())), self._approx
        self._before, self._seen = self._seen, {}
        self._next, self._approx = 1, 0
