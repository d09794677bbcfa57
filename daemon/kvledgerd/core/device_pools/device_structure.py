"""Changes of structure in device pools that several events share: pins, holds, and the end of a copy.

Called by `apply` alone.
"""

from collections.abc import Iterable

from kvledger.geometry import bits
from kvledgerd.core.device_pools.device import Asked, DeviceCopy, DevicePool
from kvledgerd.core.index import Cell
from kvledgerd.core.state import State
from kvledgerd.core.structure import prune, settle_cell
from kvledgerd.core.transitions import DeviceHappening, DeviceState, follow_on_device

__all__ = [
    "add_copy",
    "drop_copy",
    "end_pool",
    "forget_asked",
    "forget_pool",
    "give_up_asked",
    "hold",
    "pin_in",
    "release_hold",
    "retire_pool",
    "toggle_pool",
    "unpin_in",
]


def pin_in(pools: Iterable[DevicePool], cells: list[Cell]) -> None:
    """Keep what lies in these pools of these cells where it is."""
    for pool in pools:
        for cell in cells:
            pool.pins[cell.id] = pool.pins.get(cell.id, 0) + 1


def unpin_in(state: State, pools: Iterable[int], cells: Iterable[Cell]) -> None:
    """Take one pin away from each of these cells, in those of the pools that are still there."""
    there = [state.device_pools[number] for number in pools if number in state.device_pools]
    for cell in cells if there else ():
        for pool in there:
            pool.pins[cell.id] -= 1
            if not pool.pins[cell.id]:
                del pool.pins[cell.id]
                _drop_ended(state, pool, cell)


def _drop_ended(state: State, pool: DevicePool, cell: Cell) -> None:
    """Drop what neither pin nor hold keeps any more, of a pool that has ended; whichever went last asks."""
    if pool.engine or cell.id in pool.pins:
        return
    for slot in bits(pool.resident(cell)):
        if (cell.id, slot) not in pool.held:
            drop_copy(state, pool, cell, slot, DeviceHappening.LOSE)
    if not pool.copies and pool.id in state.device_pools:
        forget_pool(state, pool)


def hold(pool: DevicePool, cell: Cell, slot: int) -> None:
    """Keep one copy where it is, even when its engine or the incarnation ends."""
    pool.held[cell.id, slot] = pool.held.get((cell.id, slot), 0) + 1


def release_hold(state: State, pool: DevicePool, cell: Cell, slot: int) -> None:
    """Take one hold away; a copy that only the hold kept after the end of its engine goes with it."""
    pool.held[cell.id, slot] -= 1
    if not pool.held[cell.id, slot]:
        del pool.held[cell.id, slot]
        _drop_ended(state, pool, cell)


def add_copy(state: State, pool: DevicePool, cell: Cell, slot: int, copy: DeviceCopy) -> None:
    """Make a copy resident; its pages are taken already.

    Raises:
        TransitionError: the pool has one of this object.
    """
    name = (cell.id, slot)
    follow_on_device(DeviceState.RESIDENT if name in pool.copies else DeviceState.ASKED, DeviceHappening.FILL)
    pool.copies[name] = copy
    before = pool.cells.get(cell.id, 0)
    cell.pooled += not before
    pool.cells[cell.id] = before | 1 << slot
    _toggle(state, pool, cell, slot, copy)


def drop_copy(state: State, pool: DevicePool, cell: Cell, slot: int, happening: DeviceHappening) -> None:
    """End a copy and free its pages; a cell that keeps nothing else goes too.

    Raises:
        TransitionError: the pool has none of this object.
    """
    name = (cell.id, slot)
    follow_on_device(DeviceState.RESIDENT if name in pool.copies else DeviceState.VACANT, happening)
    copy = pool.copies.pop(name)
    pool.give(pool.known.slot_groups[slot], copy.offset, pool.known.length_of(cell, slot))
    left = pool.cells[cell.id] & ~(1 << slot)
    if left:
        pool.cells[cell.id] = left
    else:
        del pool.cells[cell.id]
        cell.pooled -= 1
    _toggle(state, pool, cell, slot, copy)
    settle_cell(state, cell)


def give_up_asked(state: State, asked: Asked) -> None:
    """Free the pages of what was asked for and not filled."""
    follow_on_device(DeviceState.ASKED, DeviceHappening.GIVE_UP)
    pool = state.device_pools[asked.pool]
    for index in asked.missing():
        item, offset = asked.objects[index], asked.offsets[index]
        assert offset is not None
        pool.give(item.group, offset, item.length)
    forget_asked(state, asked)


def forget_asked(state: State, asked: Asked) -> None:
    """Let go of what asked pages kept: their pins and their path."""
    del state.asked[asked.id]
    unpin_in(state, (asked.pool,), asked.pinned)
    asked.node.holds -= 1
    prune(state, state.layouts[asked.layout].tree, asked.node)


def end_pool(state: State, pool: DevicePool) -> None:
    """Drop what nothing holds; what a lease covers goes with it, and what a topology holds waits for the engine."""
    for asked in [one for one in state.asked.values() if one.pool == pool.id]:
        give_up_asked(state, asked)
    for name in [name for name in pool.copies if name not in pool.held and name[0] not in pool.pins]:
        drop_copy(state, pool, state.cells[name[0]], name[1], DeviceHappening.LOSE)
    engine = state.engines.get(pool.engine)
    if engine is not None:
        del engine.pools[pool.id]
    pool.engine = 0
    if not pool.copies:
        forget_pool(state, pool)


def retire_pool(state: State, pool: DevicePool) -> None:
    """End a pool whose layout was retired: what a lease or topology still reads stays, and nobody takes it back."""
    toggle_pool(state, pool)
    pool.key = b""
    toggle_pool(state, pool)
    end_pool(state, pool)


def forget_pool(state: State, pool: DevicePool) -> None:
    """Remove a pool in which nothing lies any more."""
    del state.device_pools[pool.id]
    toggle_pool(state, pool)


def toggle_pool(state: State, pool: DevicePool) -> None:
    """Add a pool to the digest, or take it out."""
    one = pool.added
    state.toggle("device pool", one.pool, pool.key, one.layout, one.device, one.memory, one.bytes, one.rank)


def _toggle(state: State, pool: DevicePool, cell: Cell, slot: int, copy: DeviceCopy) -> None:
    state.toggle("device", pool.id, cell.id, slot, copy.offset, copy.generation, copy.fp64, copy.commit)
