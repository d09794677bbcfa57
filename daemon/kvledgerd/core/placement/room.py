"""Room: what one decision lets go, kind by kind and in the order of each, never what is leased, pinned or built upon.

Nothing is changed here. A decision asks for candidates, lets them go one by one, and states what went in its events.
"""

from collections.abc import Iterator

from kvledger.errors import CapacityError
from kvledger.kinds import Kind
from kvledgerd.core.holdings import KnownLayout
from kvledgerd.core.index import ARENA, OFFSET, Cell
from kvledgerd.core.kinds import RULES
from kvledgerd.core.kinds.rules import MEMORY, Copy, Gone
from kvledgerd.core.placement.aging import is_leaf_bound
from kvledgerd.core.placement.orders import Order
from kvledgerd.core.placement.pools import Extent, paged
from kvledgerd.core.state import State

__all__ = ["VICTIMS_MAX", "Room"]

VICTIMS_MAX = 65_536
"""Copies that make room in one decision, which is one turn of the event loop and one event of the log."""


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
        self.freed: dict[Kind, list[Extent]] = {kind: [] for kind in Kind}
        self.freed_bytes = dict.fromkeys(Kind, 0)
        self.ending = 0
        self._protect = protect

    def order(self, kind: Kind) -> Order:
        """Return the eviction order of a kind, an empty one for a tenant that is not known."""
        orders = self.state.orders.get(self.tenant)
        return orders[kind] if orders is not None else Order()

    def oldest(self, kind: Kind) -> Iterator[Cell]:
        """Yield the cells that may give up copies of a kind, in their order, while the caller lets them go."""
        later: list[Cell] = []
        for cell in self.order(kind):
            yield from self._upwards(kind, cell, later)
        for cell in later:
            yield from self._upwards(kind, cell, later)

    def _upwards(self, kind: Kind, cell: Cell, later: list[Cell]) -> Iterator[Cell]:
        """Yield a cell, and if its rows go then the block before it, a leaf by now; what was revisited comes later."""
        yield cell
        while is_leaf_bound(cell, kind) and not cell.memory & ~self.gone.get(cell.id, 0):
            before = cell.node.parent.cell(cell.layout) if cell.node.parent is not None else None
            if before is None:
                return
            if before.revisited:
                later.append(before)
                return
            yield before
            cell = before

    def let_go(self, kind: Kind, cell: Cell) -> list[Extent]:
        """Let a cell's copies of a kind go with all that goes with them; return the extents of this kind.

        Raises:
            CapacityError: More would go than one decision may drop.
        """
        known = self.state.layouts[cell.layout]
        chosen = [(copy, known.kind_of(*copy)) for copy in RULES[kind].victims(known, cell, self.gone, MEMORY)]
        if not any(other is kind for _, other in chosen) or any(self._protects(copy) for copy, _ in chosen):
            return []
        if len(self.victims) + len(chosen) > VICTIMS_MAX:
            raise CapacityError(
                f"more than {VICTIMS_MAX} copies would have to make room for {kind.name} in one decision",
                field="unit",
                remedy="commit smaller units, or evict prefixes that nobody needs",
            )
        already = len(self.freed[kind])
        for copy, other in chosen:
            self._drop(known, copy, other)
        return self.freed[kind][already:]

    def _protects(self, copy: Copy) -> bool:
        return bool(self._protect.get(copy[0].id, 0) >> copy[1] & 1)

    def _drop(self, known: KnownLayout, copy: Copy, kind: Kind) -> None:
        cell, slot = copy
        self.gone[cell.id] = self.gone.get(cell.id, 0) | 1 << slot
        self.ending += not cell.disk >> slot & 1
        size = paged(known.length_of(cell, slot))
        self.freed[kind].append((cell.word(slot, ARENA), cell.word(slot, OFFSET), size))
        self.freed_bytes[kind] += size
        self.victims.append(copy)
