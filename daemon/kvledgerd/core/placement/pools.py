"""Placement: one pool for each tenant and kind, with free extents over its arenas, and for each region on a device.

Extents are whole pages, since the generation table has one entry a page. They merge with their neighbours when freed,
and a unit's objects of one kind are placed in one extent where one is large enough, so that handles travel as few
runs. Finding a place (`plan`) changes nothing; the event that names the place takes it (`take`).
"""

from bisect import bisect_left, insort
from collections.abc import Iterable

from kvledger.kinds import Kind
from kvledgerd.core.config import PAGE

__all__ = ["Arena", "Extent", "Pool", "fill", "paged", "stretches"]

Extent = tuple[int, int, int]
"""Arena, offset and length, bytes."""


def paged(length: int) -> int:
    """Return `length` rounded up to whole pages, bytes."""
    return -(-length // PAGE) * PAGE


class Arena:
    """A shared-memory region of one tenant and kind; `live` counts its allocated bytes."""

    __slots__ = ("bytes", "id", "kind", "live", "ready", "tenant")

    def __init__(self, number: int, tenant: str, kind: Kind, size: int) -> None:
        self.id = number
        self.tenant = tenant
        self.kind = kind
        self.bytes = size
        self.live = 0
        self.ready = False


class Pool:
    """Free extents of one tenant and kind, or of one region of a device pool; and how much is allocated of them.

    Args:
        page: Bytes of a page; extents are whole pages.
    """

    def __init__(self, page: int = PAGE) -> None:
        self.page = page
        self.arenas: dict[int, Arena] = {}
        self._by_size: list[tuple[int, int, int]] = []  # (length, arena, offset), ascending
        self._starts: dict[tuple[int, int], int] = {}  # (arena, offset) to length
        self._ends: dict[tuple[int, int], int] = {}  # (arena, end) to offset
        self.free_bytes = 0
        self.live_bytes = 0
        self.entries = 0

    def paged(self, length: int) -> int:
        """Return `length` rounded up to whole pages, bytes."""
        return -(-length // self.page) * self.page

    def add(self, arena: Arena) -> None:
        """Let an arena join."""
        self.arenas[arena.id] = arena
        self._insert(arena.id, 0, arena.bytes)

    def remove(self, arena_id: int) -> None:
        """Take an arena out; nothing may be allocated in it any more."""
        arena = self.arenas.pop(arena_id)
        self._extract(arena.id, 0, arena.bytes)

    def plan(self, lengths: list[int]) -> list[tuple[int, int]] | None:
        """Return (arena, offset) of each object, given the bytes of each in order; None if they do not fit."""
        sizes = [self.paged(length) for length in lengths]
        total = sum(sizes)
        if total > self.free_bytes:
            return None
        at = bisect_left(self._by_size, (total, 0, 0))
        candidates = self._by_size[at : at + 1] or reversed(self._by_size)
        return fill(sizes, [(a, o, n) for n, a, o in candidates])

    def unplaced(self, lengths: list[int]) -> list[int]:
        """Return the lengths that find no free extent when the largest are placed first, largest first."""
        free = [length for length, _, _ in self._by_size]
        left = []
        for length in sorted(lengths, reverse=True):
            at = bisect_left(free, self.paged(length))
            if at == len(free):
                left.append(length)
            else:
                insort(free, free.pop(at) - self.paged(length))
        return left

    def take(self, arena: int, offset: int, length: int, entries: int = 1) -> None:
        """Allocate exactly this extent for so many objects; raises ValueError if it is not free."""
        size = self.paged(length)
        start, free = self._containing(arena, offset)
        if offset + size > start + free:
            raise ValueError(f"arena {arena} is not free at {offset} for {size} bytes")
        self._extract(arena, start, free)
        if start < offset:
            self._insert(arena, start, offset - start)
        if offset + size < start + free:
            self._insert(arena, offset + size, start + free - offset - size)
        self.live_bytes += size
        self.entries += entries
        self.arenas[arena].live += size

    def give(self, arena: int, offset: int, length: int, entries: int = 1) -> None:
        """Free an extent of so many objects and merge it with its free neighbours."""
        size = self.paged(length)
        self.live_bytes -= size
        self.entries -= entries
        self.arenas[arena].live -= size
        start, end = offset, offset + size
        if (arena, start) in self._ends:
            before = self._ends[arena, start]
            self._extract(arena, before, start - before)
            start = before
        if (arena, end) in self._starts:
            after = self._starts[arena, end]
            self._extract(arena, end, after)
            end += after
        self._insert(arena, start, end - start)

    def extents(self) -> list[Extent]:
        """Return all free extents, smallest first."""
        return [(arena, offset, length) for length, arena, offset in self._by_size]

    def _containing(self, arena: int, offset: int) -> tuple[int, int]:
        length = self._starts.get((arena, offset))
        if length is not None:
            return offset, length
        for (other, start), size in self._starts.items():
            if other == arena and start < offset < start + size:
                return start, size
        raise ValueError(f"arena {arena} is not free at {offset}")

    def _insert(self, arena: int, offset: int, length: int) -> None:
        insort(self._by_size, (length, arena, offset))
        self._starts[arena, offset] = length
        self._ends[arena, offset + length] = offset
        self.free_bytes += length

    def _extract(self, arena: int, offset: int, length: int) -> None:
        at = bisect_left(self._by_size, (length, arena, offset))
        if at == len(self._by_size) or self._by_size[at] != (length, arena, offset):
            raise ValueError(f"arena {arena} has no free extent of {length} bytes at {offset}")
        del self._by_size[at]
        del self._starts[arena, offset]
        del self._ends[arena, offset + length]
        self.free_bytes -= length


def stretches(extents: Iterable[Extent]) -> list[tuple[int, int, int, int]]:
    """Return what extents cover: arena, start and length of each stretch, and of how many extents it is made.

    Neighbours come and go together, so there are few stretches, however many extents.
    """
    found: list[tuple[int, int, int, int]] = []
    last, start, end, count = 0, 0, 0, 0
    for arena, offset, length in sorted(extents):
        if count and (arena, offset) != (last, end):
            found.append((last, start, end - start, count))
            count = 0
        if not count:
            last, start = arena, offset
        end, count = offset + length, count + 1
    return [*found, (last, start, end - start, count)] if count else found


def fill(sizes: list[int], extents: list[Extent]) -> list[tuple[int, int]] | None:
    """Place objects of whole pages in order into extents in order; None if one does not fit."""
    places: list[tuple[int, int]] = []
    left, arena, at, end = iter(extents), 0, 0, -1
    for size in sizes:
        while at + size > end:
            extent = next(left, None)
            if extent is None:
                return None
            arena, at, end = extent[0], extent[1], extent[1] + extent[2]
        places.append((arena, at))
        at += size
    return places
