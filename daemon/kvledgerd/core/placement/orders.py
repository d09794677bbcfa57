"""The order in which copies go: one for each tenant and kind, so that looking for victims meets no other kind.

Two queues, each least recently used first. What goes *first* has proven no use yet: material that no boundary stands
on, pages of a window that no boundary has asked for, copies of an epoch that drains. Everything else waits in the
*usual* queue behind it. Entries are cells; `kvledgerd.core.placement.aging` says when one enters, is used and leaves.
"""

from collections import OrderedDict
from collections.abc import Iterator

from kvledgerd.core.index import Cell

__all__ = ["Order"]


class Order:
    """The cells whose copies of one tenant and kind may go, in order.

    Attributes:
        first: Cells that go before all others, by number, oldest first.
        usual: All others, oldest first.
    """

    __slots__ = ("first", "usual")

    def __init__(self) -> None:
        self.first: OrderedDict[int, Cell] = OrderedDict()
        self.usual: OrderedDict[int, Cell] = OrderedDict()

    def __contains__(self, number: object) -> bool:
        return number in self.usual or number in self.first

    def __iter__(self) -> Iterator[Cell]:
        """Yield the cells, first to go first."""
        yield from self.first.values()
        yield from self.usual.values()

    def __len__(self) -> int:
        return len(self.first) + len(self.usual)

    def put(self, cell: Cell, *, first: bool, oldest: bool = False) -> None:
        """Let a cell enter, or move it: to the young end of a queue, or with `oldest` to the end that goes next."""
        here, there = (self.first, self.usual) if first else (self.usual, self.first)
        number = cell.id
        if number not in here:
            there.pop(number, None)
            here[number] = cell
            if oldest:
                here.move_to_end(number, last=False)
        else:
            here.move_to_end(number, last=not oldest)

    def remove(self, number: int) -> None:
        """Let a cell leave, if it is there."""
        if self.usual.pop(number, None) is None:
            self.first.pop(number, None)
