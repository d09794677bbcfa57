"""Room: what one decision lets go, kind by kind and in the order of each, never what is leased, pinned or built upon.

Nothing is changed here. A decision asks for candidates, lets them go one by one, and states what went in its events.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import NamedTuple

from kvledger.errors import CapacityError
from kvledger.geometry import bits
from kvledger.kinds import Kind
from kvledgerd.core.index import Cell, Copy
from kvledgerd.core.kinds import RULES
from kvledgerd.core.kinds.rules import MEMORY, Gone
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.placement.aging import is_leaf_bound
from kvledgerd.core.placement.orders import Order
from kvledgerd.core.placement.pools import Extent
from kvledgerd.core.placement.reuse import carried
from kvledgerd.core.state import State

__all__ = ["VICTIMS_MAX", "Room"]

VICTIMS_MAX = 65_536
"""Copies that make room in one decision, which is one turn of the event loop and one event of the log."""


_KINDS = tuple(Kind)
_FIRST = -1
_LAST = 1 << 30


class _Later(NamedTuple):
    """A block that became a leaf and goes when the order has come to its rank."""

    rank: int
    number: int
    cell: Cell
    mark: int


class Room:
    """Copies of one tenant that go.

    Args:
        state: The cache; not changed.
        tenant: Whose copies may go.
        protect: What must not go: cells, each with a mask of slots.

    Attributes:
        victims: What goes.
        gone: The same as cells, each with a mask of slots.
        freed: Of each kind the extents that become free.
        freed_bytes: Their sum.
        ending: How many objects end, since they lie nowhere else.
    """

    def __init__(self, state: State, tenant: str, protect: dict[int, int]) -> None:
        self.state = state
        self.tenant = tenant
        self.victims: list[Copy] = []
        self.gone: Gone = {}
        self.freed: dict[Kind, list[Extent]] = {kind: [] for kind in _KINDS}
        self.freed_bytes = dict.fromkeys(_KINDS, 0)
        self.ending = 0
        self._protect = protect

    def order(self, kind: Kind) -> Order:
        """Return the eviction order of a kind, an empty one for a tenant that is not known."""
        orders = self.state.orders.get(self.tenant)
        return orders[kind] if orders is not None else Order()

    def oldest(self, kind: Kind) -> Iterator[Cell]:
        """Yield the cells that may give up copies of a kind, in their order, while the caller lets them go."""
        order = self.order(kind)
        later: list[_Later] = []
        for cell in order.first.values():
            yield from self._upwards(order, kind, _Later(_FIRST, cell.id, cell, order.marks[cell.id]), later)
        for rank, queue in order.queues():
            while later and later[0].rank < rank:
                yield from self._upwards(order, kind, heappop(later), later)
            for cell in queue.values():
                yield from self._upwards(order, kind, _Later(rank, cell.id, cell, order.marks[cell.id]), later)
        while later:
            yield from self._upwards(order, kind, heappop(later), later)

    def _upwards(self, order: Order, kind: Kind, at: "_Later", later: list["_Later"]) -> Iterator[Cell]:
        """Yield a cell, and if its rows go then the block before it, a leaf by now; what is worth more comes later."""
        rank, _, cell, mark = at
        reuse = order.reuse if order.reuse is not None and order.reuse.active else None
        yield cell
        bound = is_leaf_bound(cell, kind)  # as all blocks before it are
        while bound and not cell.memory & ~self.gone.get(cell.id, 0):
            parent = cell.node.parent
            before = parent.cell(cell.layout) if parent is not None else None
            if before is None:
                return
            cell, mark, rank_after = before, carried(before.usage, mark), rank
            rank = reuse.rank(mark) if reuse is not None else _LAST if cell.revisited else _FIRST
            if rank > rank_after:
                heappush(later, _Later(rank, cell.id, cell, mark))
                return
            yield cell

    def let_go(self, kind: Kind, cell: Cell) -> list[Extent]:
        """Let a cell's copies of a kind go with all that goes with them; return the extents of this kind.

        Raises:
            CapacityError: More would go than one decision may drop.
        """
        known = self.state.layouts[cell.layout]
        going = RULES[kind].victims(known, cell, self.gone, MEMORY)
        count, wanted = 0, False
        for other, mask in going:
            if self._protect.get(other.id, 0) & mask:
                return []
            count, wanted = count + mask.bit_count(), wanted or known.mask_of(other, kind) & mask != 0
        if not wanted:
            return []
        if len(self.victims) + count > VICTIMS_MAX:
            raise CapacityError(
                f"more than {VICTIMS_MAX} copies would have to make room for {kind.name} in one decision",
                field="unit",
                remedy="commit smaller units, or evict prefixes that nobody needs",
            )
        already = len(self.freed[kind])
        for other, mask in going:
            self._drop(known, other, mask)
        return self.freed[kind][already:]

    def _drop(self, known: KnownLayout, cell: Cell, mask: int) -> None:
        self.gone[cell.id] = self.gone.get(cell.id, 0) | mask
        self.ending += (mask & ~cell.disk).bit_count()
        for slot in bits(mask):
            (arena, offset, _), kind, size = cell.place(slot), known.slot_kinds[slot], known.size_of(cell, slot)
            self.freed[kind].append((arena, offset, size))
            self.freed_bytes[kind] += size
            self.victims.append((cell, slot))
