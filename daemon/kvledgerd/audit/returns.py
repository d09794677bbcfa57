"""Which prefixes lie in memory again, told while a log is replayed, of whichever boundary is asked about in the end.

A boundary was last gone just before the youngest of its objects came. If one of them came back into memory since, the
whole is a full restore, just as `kvledger audit states` finds it by watching that one boundary all along.
"""

from collections.abc import Iterable

from kvledger.geometry import bits
from kvledgerd.core.index import Cell, Copy
from kvledgerd.core.state import State

__all__ = ["Returns"]


class Returns:
    """By object the event with which it came, and the latest with which it came back from disk alone.

    Args:
        state: The state that is replayed; what it keeps already came before all else.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        state.changed_cells()
        self._masks = {cell.id: (cell.memory, cell.disk) for cell in state.cells.values()}
        self._came: dict[int, dict[int, int]] = {}
        self._back: dict[int, dict[int, int]] = {}

    def note(self, seq: int) -> None:
        """Take in what the event that was applied last has changed."""
        for cell in self._state.changed_cells():
            memory, disk = self._masks.get(cell.id, (0, 0))
            if cell.id not in self._state.cells:
                for kept in (self._masks, self._came, self._back):
                    kept.pop(cell.id, None)
                continue
            self._masks[cell.id] = cell.memory, cell.disk
            had, has = memory | disk, cell.memory | cell.disk
            _mark(self._came, cell, has & ~had, seq)
            _mark(self._back, cell, cell.memory & ~memory & had, seq)

    def are_back(self, objects: Iterable[Copy]) -> bool:
        """Tell of all objects of a boundary, each kept now, whether one came back since the last of them came."""
        named = [(cell.id, slot) for cell, slot in objects]
        came = max((self._came.get(cell, {}).get(slot, 0) for cell, slot in named), default=0)
        return any(self._back.get(cell, {}).get(slot, 0) > came for cell, slot in named)


def _mark(seqs: dict[int, dict[int, int]], cell: Cell, slots: int, seq: int) -> None:
    if slots:
        seqs.setdefault(cell.id, {}).update(dict.fromkeys(bits(slots), seq))
