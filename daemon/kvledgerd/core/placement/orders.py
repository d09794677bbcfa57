"""The order in which copies go: one for each tenant and kind, so that looking for victims meets no other kind.

What goes *first* has proven no use yet: material that no boundary stands on, pages of a window that no boundary has
asked for, copies of an epoch that drains; the least recently used before the others. Everything else, the *usual*,
waits behind it: least recently used first as well, until something has to go for want of memory. From then on it waits
in queues, one for each octave of uses and half octave of age, and the queue whose copies are worth least goes next
(`kvledgerd.core.placement.reuse`). A queue is found in one step and a cell moves to the next one as it ages, some dozen
times in a long life, so that a victim costs the same however many cells there are. Entries are cells;
`kvledgerd.core.placement.aging` says when one enters, is used and leaves.
"""

from collections import OrderedDict
from collections.abc import Iterator
from itertools import islice

from kvledgerd.core.index import Cell
from kvledgerd.core.placement.reuse import BUCKETS, Reuse, time_of

__all__ = ["Order"]

_LEAST_RECENT = -1
"""The one queue of what is not told apart."""
_TOLD_APART = 4096
"""Cells that leave it in one step: there may be a million when something has to go for the first time."""


class Order:
    """The cells whose copies of one tenant and kind may go, in order.

    Args:
        reuse: What is known about how soon they are wanted again; None if they always go least recently used first.

    Attributes:
        first: Cells that go before all others, by number, oldest first.
        marks: Of each cell when it was used last, and how often.
    """

    __slots__ = ("_at", "_queues", "first", "marks", "reuse")

    def __init__(self, reuse: Reuse | None = None) -> None:
        self.reuse = reuse
        self.first: OrderedDict[int, Cell] = OrderedDict()
        self.marks: dict[int, int] = {}
        self._queues: dict[int, OrderedDict[int, Cell]] = {}
        self._at: dict[int, int] = {}

    def __contains__(self, number: object) -> bool:
        return number in self.marks

    def __iter__(self) -> Iterator[Cell]:
        """Yield the cells, first to go first."""
        yield from self.first.values()
        for _, queue in self.queues():
            yield from queue.values()

    def __reversed__(self) -> Iterator[Cell]:
        """Yield the cells, last to go first."""
        for _, queue in reversed(self.queues()):
            yield from reversed(queue.values())
        yield from reversed(self.first.values())

    def __len__(self) -> int:
        return len(self.marks)

    @property
    def usual(self) -> list[int]:
        """Numbers of the cells that do not go first, in the order in which they go."""
        return [number for _, queue in self.queues() for number in queue]

    def queues(self) -> list[tuple[int, OrderedDict[int, Cell]]]:
        """Return the queues of the usual, those that go first before the others, each with its rank."""
        return sorted(((self._rank(index), queue) for index, queue in self._queues.items()), key=lambda found: found[0])

    def put(self, cell: Cell, mark: int, *, first: bool, oldest: bool = False) -> None:
        """Let a cell enter, or move it: to the young end of a queue, or with `oldest` to the end that goes next.

        One that enters and was not used since the oldest of its queue was goes to that end as well.
        """
        number = cell.id
        index = self._index(mark)
        queue = self.first if first else self._queues.get(index)
        if number not in self.marks or queue is None or number not in queue:
            self.remove(number)
            queue = self.first if first else self._queues.setdefault(index, OrderedDict())
            older = bool(queue) and time_of(mark) < time_of(self.marks[next(iter(queue))]) and index != _LEAST_RECENT
            queue[number] = cell
            if not first:
                self._at[number] = index
            if oldest or older:
                queue.move_to_end(number, last=False)
        else:
            queue.move_to_end(number, last=not oldest)
        self.marks[number] = mark

    def remove(self, number: int) -> None:
        """Let a cell leave, if it is there."""
        if self.marks.pop(number, None) is None:
            return
        index = self._at.pop(number, None)
        if index is None:
            del self.first[number]
            return
        del self._queues[index][number]
        if not self._queues[index]:
            del self._queues[index]

    def tell_apart(self) -> None:
        """Let the oldest of what was not told apart so far, since nothing had to go, wait where they belong."""
        for cell in list(islice(self._queues[_LEAST_RECENT].values(), _TOLD_APART)):
            self.put(cell, self.marks[cell.id], first=False)

    def grow_older(self) -> None:
        """Let cells that have reached the next age wait there."""
        reuse = self.reuse
        if reuse is None or not reuse.active:
            return
        if _LEAST_RECENT in self._queues:
            self.tell_apart()
        for index in sorted(self._queues, key=lambda index: index % BUCKETS):
            if index % BUCKETS < BUCKETS - 1:
                self._pass_on(index, reuse.age_limit(index))

    def _pass_on(self, index: int, limit: int) -> None:
        queue = self._queues[index]
        while queue:
            number, cell = next(iter(queue.items()))
            mark = self.marks[number]
            if time_of(mark) > limit:
                return
            self.put(cell, mark, first=False)

    def _index(self, mark: int) -> int:
        return self.reuse.index(mark) if self.reuse is not None and self.reuse.active else _LEAST_RECENT

    def _rank(self, index: int) -> int:
        if self.reuse is None or not self.reuse.active:
            return 0
        return self.reuse.ranks[index] if index >= 0 else len(self.reuse.ranks)

    def is_misplaced(self, number: int) -> bool:
        """Tell whether a cell waits in the queue of another number of uses, or of a greater age, than its own."""
        at = self._at.get(number, _LEAST_RECENT)
        if at == _LEAST_RECENT:
            return False
        meant = self._index(self.marks[number])
        return at // BUCKETS != meant // BUCKETS or at > meant

    def packed(self) -> tuple[list[tuple[int, int]], list[tuple[int, list[tuple[int, int]]]]]:
        """Return numbers with marks: what goes first, and the usual queue by queue, each with its index."""
        marked = [(index, [(number, self.marks[number]) for number in queue]) for index, queue in self._queues.items()]
        return [(number, self.marks[number]) for number in self.first], marked

    def unpack(self, first: list[tuple[Cell, int]], usual: list[tuple[int, list[tuple[Cell, int]]]]) -> None:
        """Fill an empty order with what was packed."""
        for cell, mark in first:
            self.first[cell.id] = cell
            self.marks[cell.id] = mark
        for index, entries in usual:
            self._queues[index] = OrderedDict((cell.id, cell) for cell, _ in entries)
            self._at.update((cell.id, index) for cell, _ in entries)
            self.marks.update((cell.id, mark) for cell, mark in entries)
