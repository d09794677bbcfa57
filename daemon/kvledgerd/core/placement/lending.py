"""Lending: what the kinds of one request may take from each other, and whether taking could ever be enough.

A request is decided anew after each arena that it got, so two of its kinds could hand one arena to and fro for ever. So
a kind gives to another of the same request only what it does not need for its own part, and a request that could not
fit with all that may be lent takes nothing at all.
"""

from kvledger.errors import CapacityError
from kvledger.kinds import Kind
from kvledgerd.core.placement.pools import Arena, Extent, fill
from kvledgerd.core.placement.room import Room
from kvledgerd.core.placement.runs import Runs
from kvledgerd.core.state import State

__all__ = ["emptiable_bytes", "still_free", "still_placed"]


def still_free(state: State, arena: Arena, lengths: list[int]) -> bool:
    """Tell whether objects of an arena's kind find free places outside of it; `lengths` are their bytes."""
    pool = state.pool(arena.tenant, arena.kind)
    extents = [extent for extent in pool.extents() if extent[0] != arena.id]
    sizes = [pool.paged(length) for length in lengths]
    return fill(sizes, sorted(extents, key=lambda e: (-e[2], e[0], e[1]))) is not None


def still_placed(state: State, arena: Arena, lengths: list[int], protect: dict[int, int]) -> bool:
    """Tell whether objects of an arena's kind find places outside of it once all goes that may."""
    freed = _evictable(state, arena.tenant, arena.kind, protect)
    if freed is None:
        return False
    runs = Runs(state.pool(arena.tenant, arena.kind), lengths, freed)
    return runs.plan(without=arena.id) is not None


def emptiable_bytes(state: State, tenant: str, kind: Kind, protect: dict[int, int]) -> int:
    """Return the bytes of the arenas of a kind that could be emptied, all of them together."""
    arenas = [arena for arena in state.arenas.values() if (arena.tenant, arena.kind) == (tenant, kind)]
    freed = _evictable(state, tenant, kind, protect)
    if freed is None:  # more than one decision may drop, so more than any request would need
        return sum(arena.bytes for arena in arenas)
    left = {arena.id: arena.live for arena in arenas}
    for number, _, length in freed:
        left[number] -= length
    return sum(arena.bytes for arena in arenas if arena.ready and not left[arena.id])


def _evictable(state: State, tenant: str, kind: Kind, protect: dict[int, int]) -> list[Extent] | None:
    """Return the extents of all copies of a kind that may go; None if they are more than one decision may drop."""
    room = Room(state, tenant, protect)
    try:
        for cell in room.oldest(kind):
            room.let_go(kind, cell)
    except CapacityError:
        return None
    return room.freed[kind]
