"""GDSF (Cherkasova, 1998): what has the least uses over size goes, and all that stays ages by what went.

Blocks of a trace are of one size and cost, so the value is the number of uses plus the age at the last use.
"""

from heapq import heappop, heappush

__all__ = ["Gdsf"]


class Gdsf:
    """A cache of `capacity` blocks."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._age = self._turn = 0
        self._uses: dict[int, int] = {}
        self._values: dict[int, tuple[int, int]] = {}
        self._heap: list[tuple[int, int, int]] = []

    def __contains__(self, block: object) -> bool:
        return block in self._uses

    def touch(self, block: int) -> None:
        """Use a block, or let it in and the least valuable go."""
        if block not in self._uses:
            while len(self._uses) >= self._capacity:
                self._evict()
        self._turn += 1
        uses = self._uses[block] = self._uses.get(block, 0) + 1
        self._values[block] = value, turn = self._age + uses, self._turn
        heappush(self._heap, (value, turn, block))

    def _evict(self) -> None:
        value, turn, block = heappop(self._heap)
        if self._values.get(block) == (value, turn):
            self._age = value
            del self._values[block], self._uses[block]
