"""Compaction: which objects are to move where, so that what is free lies together.

Two wishes. A request may find enough free bytes and no place among them: then the window of memory is looked for that
is cleared by moving the least. And arenas may be so empty that one of them could be spared: then its objects move to
the others, so that it can become one of another kind. Nothing here looks at the whole cache: candidates are what would
be evicted soonest, and a window that can not be cleared by moving some of these is left to the eviction.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple

from kvledger.geometry import bits
from kvledger.kinds import Kind
from kvledgerd.core.epoch.epochs import FULL_SHARE
from kvledgerd.core.index import Cell, Copy
from kvledgerd.core.placement.aging import is_leaf_bound
from kvledgerd.core.placement.caps import Amount, Scopes, first_passed
from kvledgerd.core.placement.pools import Arena, Extent, Pool, paged
from kvledgerd.core.state import State
from kvledgerd.core.transitions import AT_REST

__all__ = ["Move", "fragmentation", "moves_for", "moves_to_spare"]

CELLS_LOOKED_AT = 4096
"""Cells among which candidates are looked for: one decision is one turn of the event loop."""
MOVES_MAX = 1024
MOVED_BYTES_MAX = 64 << 20
"""Bytes of one job, some ten milliseconds of copying."""
_WINDOWS_TRIED = 8
_ARENAS_TRIED = 8
_THOUSAND = 1000


class Move(NamedTuple):
    """One object, and arena and offset of its new place."""

    copy: Copy
    place: tuple[int, int]


class _Piece(NamedTuple):
    """A stretch of memory that is free, or holds one object that may move."""

    arena: int
    start: int
    length: int
    copy: Copy | None

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def moved(self) -> int:
        """Bytes that have to move so that it is free."""
        return self.length if self.copy is not None else 0


def fragmentation(pools: Iterable[Pool]) -> int:
    """Return 1 - live / allocated of pools, thousandths; 0 if nothing is allocated."""
    live = free = 0
    for pool in pools:
        live, free = live + pool.live_bytes, free + pool.free_bytes
    return _THOUSAND * free // (live + free) if live + free else 0


def moves_for(state: State, tenant: str, kind: Kind, lengths: list[int]) -> list[Move] | None:
    """Return what has to move so that new objects lie side by side; None if that is not possible, or too dear.

    Args:
        state: The cache; not changed.
        tenant: Whose objects they are.
        kind: Their kind.
        lengths: Bytes of each.
    """
    pool = state.pool(tenant, kind)
    wanted = sum(map(paged, lengths))
    if pool.free_bytes < wanted or all(arena.bytes < wanted for arena in pool.arenas.values()):
        return None
    extents, movable = pool.extents(), _candidates(state, tenant, kind)
    longest = extents[-1][2] if extents else 0
    if all(piece.length > longest for piece in movable):
        return None  # none of them could move anywhere, as mostly where all are of one size
    free = [_Piece(arena, start, length, None) for arena, start, length in extents]
    pieces = sorted([*free, *movable], key=lambda piece: (piece.arena, piece.start))
    for _, first, end in nsmallest(_WINDOWS_TRIED, _windows(pieces, wanted)):
        window = pieces[first:end]
        moves = _placed(window, extents, window)
        if moves is not None and _fits(state, tenant, kind, moves):
            return moves
    return None


def moves_to_spare(state: State, percent: int) -> tuple[Kind, list[Move]] | None:
    """Return what moves next so that an arena becomes empty, where more than `percent` of a kind's memory is free."""
    for (tenant, kind), pool in state.pools.items():
        if not pool.live_bytes or 100 * pool.free_bytes <= percent * (pool.live_bytes + pool.free_bytes):
            continue
        going: dict[int, list[_Piece]] = {}
        for piece in _candidates(state, tenant, kind):
            going.setdefault(piece.arena, []).append(piece)
        for arena in _to_empty(pool, going):
            moves = _out_of(state, tenant, kind, arena, going[arena.id])
            if moves:
                return kind, moves
    return None


def _to_empty(pool: Pool, going: dict[int, list[_Piece]]) -> list[Arena]:
    """Return the arenas worth trying, emptiest first: those of which all may move, and the emptiest in any case.

    Another one of which something stays would not be empty afterwards, and what moved out of it might move back.

    Args:
        pool: The kind's memory.
        going: What may move, by arena.
    """
    held = sorted((arena for arena in pool.arenas.values() if arena.live), key=lambda arena: (arena.live, arena.id))
    whole = {number: sum(piece.length for piece in pieces) for number, pieces in going.items()}
    found = [arena for at, arena in enumerate(held) if arena.id in whole and whole[arena.id] >= arena.live * (at > 0)]
    return found[:_ARENAS_TRIED]


def _out_of(state: State, tenant: str, kind: Kind, arena: Arena, pieces: list[_Piece]) -> list[Move] | None:
    """Return moves out of an arena into others that hold something; None if what is in it does not fit there."""
    pool = state.pool(tenant, kind)
    elsewhere = [extent for extent in pool.extents() if extent[0] != arena.id and pool.arenas[extent[0]].live]
    if sum(length for _, _, length in elsewhere) < arena.live:
        return None
    moves = _placed(_bounded(pieces), elsewhere, [])
    return moves if moves is not None and _fits(state, tenant, kind, moves) else None


def _bounded(pieces: Iterable[_Piece]) -> Iterator[_Piece]:
    """Yield as many pieces as one job moves."""
    size = 0
    for piece in islice(pieces, MOVES_MAX):
        size += piece.length
        if size > MOVED_BYTES_MAX:
            return
        yield piece


def _candidates(state: State, tenant: str, kind: Kind) -> list[_Piece]:
    """Return what may move of a kind: at rest, held by nobody, and free to take two places for a while."""
    found = []
    for cell in islice(_coldest(state, tenant, kind), CELLS_LOOKED_AT):
        known = state.layouts[cell.layout]
        if cell.pins or known.epoch.share != FULL_SHARE:
            continue
        for slot in bits(cell.memory & known.mask_of(cell, kind)):
            if cell.state(slot) in AT_REST:
                arena, offset, _ = cell.place(slot)
                found.append(_Piece(arena, offset, known.size_of(cell, slot), (cell, slot)))
    return found


def _coldest(state: State, tenant: str, kind: Kind) -> Iterator[Cell]:
    """Yield cells with copies of a kind as they would be evicted; behind the end of a path the blocks before it."""
    seen: dict[int, None] = {}
    orders = state.orders.get(tenant)
    for end in orders[kind] if orders is not None else ():
        cell: Cell | None = end
        while cell is not None and cell.id not in seen:
            seen[cell.id] = None
            yield cell
            before = cell.node.parent if is_leaf_bound(cell, kind) else None
            cell = before.cell(cell.layout) if before is not None else None


def _windows(pieces: list[_Piece], wanted: int) -> Iterator[tuple[int, int, int]]:
    """Yield the shortest runs of neighbouring pieces that are long enough, one for each piece that one ends with.

    Each is what has to move (bytes), its first piece, and the one behind its last.
    """
    first = size = dear = 0
    for at, piece in enumerate(pieces):
        if at and (pieces[at - 1].arena, pieces[at - 1].end) != (piece.arena, piece.start):
            first, size, dear = at, 0, 0
        size, dear = size + piece.length, dear + piece.moved
        while size - pieces[first].length >= wanted:
            size, dear = size - pieces[first].length, dear - pieces[first].moved
            first += 1
        if size >= wanted:
            yield dear, first, at + 1


def _placed(pieces: Iterable[_Piece], free: Iterable[Extent], without: list[_Piece]) -> list[Move] | None:
    """Return a place for each object of some pieces, the tightest that is free, the largest object first.

    Args:
        pieces: What is to move.
        free: Extents that are free.
        without: Pieces that stay free.
    """
    kept = {(piece.arena, piece.start): None for piece in without}
    room = sorted((length, arena, start) for arena, start, length in free if (arena, start) not in kept)
    moves = []
    going = [piece for piece in pieces if piece.copy is not None]
    if len(going) > MOVES_MAX or sum(piece.length for piece in going) > MOVED_BYTES_MAX:
        return None
    for piece in sorted(going, key=lambda one: (-one.length, one.arena, one.start)):
        at = bisect_left(room, (piece.length, 0, 0))
        if at == len(room) or piece.copy is None:
            return None
        length, arena, start = room.pop(at)
        moves.append(Move(piece.copy, (arena, start)))
        if length > piece.length:
            insort(room, (length - piece.length, arena, start + piece.length))
    return moves


def _fits(state: State, tenant: str, kind: Kind, moves: list[Move]) -> bool:
    """Tell whether the caps hold while each object takes two places."""
    lengths = [paged(state.layouts[cell.layout].length_of(cell, slot)) for (cell, slot), _ in moves]
    entries = Amount(0, len(moves))
    more = Scopes(Amount(sum(lengths), len(moves)), entries, entries)
    return first_passed(state.config.memory(), kind, state.memory_use(tenant, kind), more) is None
