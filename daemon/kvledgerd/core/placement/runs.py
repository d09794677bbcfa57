"""Free memory as it would be if more of it were freed: tried out by a decision that looks for room.

A decision lets copies go one by one, oldest first, until its objects fit. Each step merges one extent with its
neighbours and tells in constant time whether a search can succeed, so that the whole is linear in what goes; a search
after each of them took half a minute for one object in fragmented memory.
"""

from kvledgerd.core.placement.pools import Extent, Pool, fill

__all__ = ["Runs"]


class Runs:
    """A pool's free extents with more of them freed, and objects that look for a place there.

    Attributes:
        freed_bytes: Bytes that were added to what the pool has free.
    """

    def __init__(self, pool: Pool, lengths: list[int], freed: list[Extent]) -> None:
        self._sizes = [pool.paged(length) for length in lengths]
        self._least, self._most, self._total = min(self._sizes), max(self._sizes), sum(self._sizes)
        self._starts = {(arena, offset): length for arena, offset, length in pool.extents()}
        self._ends = {(arena, offset + length): offset for (arena, offset), length in self._starts.items()}
        self._certain = sum(length // self._most for length in self._starts.values())
        self._pool_bytes = pool.free_bytes
        self._again = 0
        self.freed_bytes = 0
        for extent in freed:
            self.free(extent)

    def free(self, extent: Extent) -> None:
        """Add an extent, and merge it with its free neighbours."""
        arena, offset, length = extent
        start, end = offset, offset + length
        before = self._ends.pop((arena, start), None)
        if before is not None:
            self._certain -= (start - before) // self._most
            start = before
        after = self._starts.pop((arena, end), None)
        if after is not None:
            self._certain -= after // self._most
            end += after
        self._starts[arena, start] = end - start
        self._ends[arena, end] = start
        self._certain += (end - start) // self._most
        self.freed_bytes += length

    def plan(self, without: int = 0) -> list[tuple[int, int]] | None:
        """Return (arena, offset) of each object in order, largest extents first; None if they do not fit.

        Args:
            without: An arena that takes none of them; 0 for none, since arenas are counted from 1.
        """
        if self._pool_bytes + self.freed_bytes < self._total:
            return None
        extents = [(arena, offset, length) for (arena, offset), length in self._starts.items() if length >= self._least]
        if without:
            extents = [extent for extent in extents if extent[0] != without]
        return fill(self._sizes, sorted(extents, key=lambda e: (-e[2], e[0], e[1])))

    def plan_if_due(self) -> list[tuple[int, int]] | None:
        """Return the places once they are certain; while they are only possible, look now and then.

        An extent takes at least as many objects as the largest of them fits into it: when these add up to all, `plan`
        succeeds, and for objects of one size not earlier. For others it may, and is asked again whenever the freed
        bytes have grown by a quarter, so that little goes in vain and the number of searches stays small.
        """
        if self._certain < len(self._sizes):
            if self._least == self._most or not self._certain or self.freed_bytes < self._again:
                return None
            self._again = self.freed_bytes + self.freed_bytes // 4
        return self.plan()
