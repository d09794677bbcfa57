"""LRU: what was used least recently goes."""

from collections import OrderedDict

__all__ = ["Lru"]


class Lru:
    """A cache of `capacity` blocks."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def __contains__(self, block: object) -> bool:
        return block in self._blocks

    def touch(self, block: int) -> None:
        """Use a block, or let it in and the oldest go."""
        self._blocks[block] = None
        self._blocks.move_to_end(block)
        if len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
