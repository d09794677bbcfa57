"""Applying events about device pools: registration, pages that are asked for, filled and freed, and the end."""

from kvledger_storage.device_events import (
    DeviceFreed,
    DevicePoolAdded,
    DevicePoolEnded,
    DevicePoolTaken,
    PagesAsked,
    PagesFilled,
    PagesGivenUp,
)
from kvledgerd.core.device_pools.device import Asked, DeviceCopy, DevicePool
from kvledgerd.core.device_pools.device_structure import (
    add_copy,
    drop_copy,
    end_pool,
    forget_asked,
    give_up_asked,
    pin_in,
    toggle_pool,
)
from kvledgerd.core.index import Cell
from kvledgerd.core.state import State
from kvledgerd.core.structure import blocks_of, ensure_cell, extend_path
from kvledgerd.core.transitions import DeviceHappening, DeviceState, follow_on_device
from kvledgerd.core.units.material import note_stored

__all__ = [
    "device_freed",
    "pages_asked",
    "pages_filled",
    "pages_given_up",
    "pool_added",
    "pool_ended",
    "pool_taken",
]


def pool_added(state: State, event: DevicePoolAdded) -> None:
    """Let an engine's pages join."""
    engine = state.engines[event.engine]
    pool = DevicePool(event, state.layouts[event.layout], engine.key)
    state.next_arena = event.pool + 1
    state.device_pools[pool.id] = pool
    engine.pools[pool.id] = None
    toggle_pool(state, pool)


def pool_taken(state: State, event: DevicePoolTaken) -> None:
    """Give a pool of which something was kept back to its engine."""
    state.device_pools[event.pool].engine = event.engine
    state.engines[event.engine].pools[event.pool] = None


def pool_ended(state: State, event: DevicePoolEnded) -> None:
    """End a pool that its engine took back."""
    end_pool(state, state.device_pools[event.pool])


def pages_asked(state: State, event: PagesAsked) -> None:
    """Take the pages, and pin what was resident already."""
    pool = state.device_pools[event.pool]
    known = pool.known
    node = extend_path(state, known.tree, event.parent, event.fresh)
    asked = Asked(event.unit, event.engine, event.pool, known.number, node)
    asked.first_block, asked.boundary = event.first_block, event.boundary
    asked.residue, asked.residue_hash = event.residue, event.residue_hash
    end = len(asked.path) * known.layout.block_tokens + event.residue
    objects = known.geometry.unit_objects(event.first_block, end, boundary=event.boundary, all_pages=event.all_pages)
    asked.objects = pool.own(objects)
    asked.offsets = list(event.offsets)
    _take_pages(pool, asked)
    node.holds += 1
    state.serial = max(state.serial, event.unit + 1)
    state.asked[asked.id] = asked


def _take_pages(pool: DevicePool, asked: Asked) -> None:
    pinned: dict[int, Cell] = {}
    for item, offset in zip(asked.objects, asked.offsets, strict=True):
        cell = asked.cell_of(item)
        if offset is not None:
            resident = cell is not None and pool.resident(cell) >> item.slot & 1
            follow_on_device(DeviceState.RESIDENT if resident else DeviceState.VACANT, DeviceHappening.ASK)
            pool.take(item.group, offset, item.length)
        elif cell is not None:
            pinned[cell.id] = cell
    asked.pinned = list(pinned.values())
    pin_in((pool,), asked.pinned)


def pages_filled(state: State, event: PagesFilled) -> None:
    """Make what was filled resident."""
    asked = state.asked[event.unit]
    pool, dropped = state.device_pools[asked.pool], dict.fromkeys(event.dropped)
    published: dict[int, Cell] = {}
    for order, index in enumerate(asked.missing()):
        item, offset = asked.objects[index], asked.offsets[index]
        assert offset is not None
        if index in dropped:
            pool.give(item.group, offset, item.length)
            continue
        cell = asked.cell_of(item)
        if cell is None:
            residue = (-1, b"") if item.block >= 0 else (asked.residue, asked.residue_hash)
            cell = ensure_cell(state, pool.known, asked.node_of(item), *residue)
        fp64 = int.from_bytes(event.prints[8 * order : 8 * order + 8], "little")
        add_copy(state, pool, cell, item.slot, DeviceCopy(offset, asked.id, fp64, event.commit_id))
        published[cell.id] = cell
    state.serial = max(state.serial, event.commit_id + 1)
    blocks = blocks_of(asked.node, asked.layout)
    boundary = asked.boundary or pool.known.rows_suffice
    note_stored(state, pool.known, blocks, list(published.values()), boundary=boundary)
    _touch(pool, asked, blocks)
    forget_asked(state, asked)


def _touch(pool: DevicePool, asked: Asked, blocks: list[Cell]) -> None:
    """Make the path the most recently used, its root last, so that leaves grow old before what they stand on."""
    cell = asked.node.boundary(asked.layout, asked.residue, asked.residue_hash)
    boundary = [cell] if cell is not None else []
    pool.touch([*boundary, *reversed(blocks)])


def pages_given_up(state: State, event: PagesGivenUp) -> None:
    """Free pages that were not filled."""
    give_up_asked(state, state.asked[event.unit])


def device_freed(state: State, event: DeviceFreed) -> None:
    """End copies."""
    pool = state.device_pools[event.pool]
    for number, slot in event.objects:
        drop_copy(state, pool, state.cells[number], slot, DeviceHappening.FREE)
