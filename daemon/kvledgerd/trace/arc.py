"""ARC (Megiddo and Modha, FAST 2003): what was seen once and what was seen more often, and names of what left either.

A name that comes back moves the border between the two lists towards the list that lost it.
"""

from collections import OrderedDict

__all__ = ["Arc"]

_Queue = OrderedDict[int, None]


class Arc:
    """A cache of `capacity` blocks."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._wanted_once = 0
        self._once: _Queue = OrderedDict()
        self._often: _Queue = OrderedDict()
        self._left_once: _Queue = OrderedDict()
        self._left_often: _Queue = OrderedDict()

    def __contains__(self, block: object) -> bool:
        return block in self._once or block in self._often

    def touch(self, block: int) -> None:
        """Use a block, or let it in and another go."""
        if block in self:
            self._once.pop(block, None)
            self._often.pop(block, None)
        elif block in self._left_once:
            step = max(1, len(self._left_often) // len(self._left_once))
            self._wanted_once = min(self._capacity, self._wanted_once + step)
            self._replace(from_often=False)
            del self._left_once[block]
        elif block in self._left_often:
            step = max(1, len(self._left_once) // len(self._left_often))
            self._wanted_once = max(0, self._wanted_once - step)
            self._replace(from_often=True)
            del self._left_often[block]
        else:
            self._make_room()
            self._once[block] = None
            return
        self._often[block] = None

    def _make_room(self) -> None:
        seen_once = len(self._once) + len(self._left_once)
        known = seen_once + len(self._often) + len(self._left_often)
        if seen_once == self._capacity:
            if len(self._once) == self._capacity:
                self._once.popitem(last=False)
                return
            self._left_once.popitem(last=False)
            self._replace(from_often=False)
        elif known >= self._capacity:
            if known == 2 * self._capacity:
                self._left_often.popitem(last=False)
            self._replace(from_often=False)

    def _replace(self, *, from_often: bool) -> None:
        more = len(self._once) > self._wanted_once or (from_often and len(self._once) == self._wanted_once)
        source, names = (self._once, self._left_once) if self._once and more else (self._often, self._left_often)
        block, _ = source.popitem(last=False)
        names[block] = None
