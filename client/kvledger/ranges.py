"""Which parts of a stretch of bytes are free: first fit by address, neighbours joined when they come back."""

import bisect

__all__ = ["FreeRanges"]


class FreeRanges:
    """The free ranges of [0, size), kept sorted by address; not thread-safe.

    First fit keeps the low addresses warm. The ranges of a ring live as long as one round trip, so there are few of
    them and a linear search costs less than any index would.

    Args:
        size: Bytes that are free at first.
    """

    __slots__ = ("_ranges", "total")

    def __init__(self, size: int) -> None:
        self._ranges = [(0, size)]
        self.total = size

    @property
    def longest(self) -> int:
        """Length of the longest free range, 0 if there is none."""
        return max((length for _, length in self._ranges), default=0)

    def take(self, length: int) -> int | None:
        """Return the lowest offset at which ``length`` bytes were free and now are not, or None."""
        for index, (offset, free) in enumerate(self._ranges):
            if free >= length:
                rest = [(offset + length, free - length)] if free > length else []
                self._ranges[index : index + 1] = rest
                self.total -= length
                return offset
        return None

    def give_back(self, offset: int, length: int) -> None:
        """Make [offset, offset + length) free again; the caller knows that it was taken whole."""
        index = bisect.bisect(self._ranges, (offset, length))
        self.total += length
        if index < len(self._ranges) and offset + length == self._ranges[index][0]:
            length += self._ranges.pop(index)[1]
        if index and sum(self._ranges[index - 1]) == offset:
            index -= 1
            before, free = self._ranges.pop(index)
            offset, length = before, free + length
        self._ranges.insert(index, (offset, length))
