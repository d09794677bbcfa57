"""S3-FIFO (Yang and others, SOSP 2023): a small queue in front of a main one, and names of what left the small one.

What was used while it waited in the small queue, a tenth of the cache, moves to the main queue; else it goes and its
name is kept, five times as many names as the cache holds blocks. Who comes back while its name is known enters the main
queue at once. The main queue gives another round for each use, three at most.
"""

from collections import OrderedDict

__all__ = ["S3Fifo"]

_SMALL_PART = 10
_GHOSTS = 5
_USES_MAX = 3


class S3Fifo:
    """A cache of `capacity` blocks."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._small_capacity = max(1, capacity // _SMALL_PART)
        self._small: OrderedDict[int, None] = OrderedDict()
        self._main: OrderedDict[int, None] = OrderedDict()
        self._ghosts: OrderedDict[int, None] = OrderedDict()
        self._uses: dict[int, int] = {}

    def __contains__(self, block: object) -> bool:
        return block in self._uses

    def touch(self, block: int) -> None:
        """Use a block, or let it in and others go."""
        if block in self._uses:
            self._uses[block] = min(_USES_MAX, self._uses[block] + 1)
            return
        while len(self._uses) >= self._capacity:
            self._evict()
        known = block in self._ghosts
        if known:
            del self._ghosts[block]
        (self._main if known else self._small)[block] = None
        self._uses[block] = 0

    def _evict(self) -> None:
        if len(self._small) < self._small_capacity and self._main:
            self._evict_main()
            return
        while self._small:
            block, _ = self._small.popitem(last=False)
            if not self._uses[block]:
                self._let_go(block)
                return
            self._main[block], self._uses[block] = None, 0
        self._evict_main()

    def _let_go(self, block: int) -> None:
        del self._uses[block]
        self._ghosts[block] = None
        if len(self._ghosts) > _GHOSTS * self._capacity:
            self._ghosts.popitem(last=False)

    def _evict_main(self) -> None:
        while True:
            block, _ = self._main.popitem(last=False)
            if not self._uses[block]:
                del self._uses[block]
                return
            self._uses[block] -= 1
            self._main[block] = None
