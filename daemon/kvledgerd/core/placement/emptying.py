"""Emptying an arena: which copies have to go so that another kind can have it, or that it can not be done.

Whatever stands on a copy in the arena goes with it, also where that lies elsewhere: a block behind a block that went
could be used by nobody. An arena with a leased or pinned copy, a reservation or a restore in it stays as it is.
"""

from collections.abc import Iterator

from kvledger.errors import CapacityError
from kvledger.geometry import bits
from kvledgerd.core.index import ARENA, Cell, Copy
from kvledgerd.core.placement.pools import Arena
from kvledgerd.core.placement.room import Room
from kvledgerd.core.state import State

__all__ = ["emptied"]


def emptied(state: State, arena: Arena, protect: dict[int, int]) -> list[Copy] | None:
    """Return the copies that have to go so that an arena is empty; None if one of them has to stay.

    Args:
        state: The cache.
        arena: The arena.
        protect: What must not go: cells, each with a mask of slots.
    """
    room, freed = Room(state, arena.tenant, protect), 0
    try:
        for cell in _cells_in(state, arena):
            for other in _from_the_end(cell):
                room.let_go(arena.kind, other)
    except CapacityError:
        return None
    freed = sum(length for number, _, length in room.freed[arena.kind] if number == arena.id)
    return room.victims if freed == arena.live else None


def _cells_in(state: State, arena: Arena) -> Iterator[Cell]:
    """Yield the cells that have copies in an arena; a walk over all cells, for decisions that are rare."""
    bit = 1 << arena.kind
    for cell in state.cells.values() if arena.live else ():
        if cell.kinds & bit and any(cell.word(slot, ARENA) == arena.id for slot in bits(cell.memory)):
            yield cell


def _from_the_end(cell: Cell) -> list[Cell]:
    """Return a cell and, for a block, what its layout keeps behind it, the deepest first."""
    found, at = [cell], 0
    while cell.is_block and at < len(found):
        children = found[at].node.children if found[at].is_block else ()
        found += [after for child in children if (after := child.cell(cell.layout)) is not None and after.memory]
        at += 1
    return found[::-1]
