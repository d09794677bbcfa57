"""From an image to device pools, and what is being filled there; see `kvledgerd.snapshots.decode`.

Pages are taken one by one as events took them, and copies are added by the call that adds them, so that free pages,
masks and the digest follow. Pins follow from leases and asked pages, so these are made before.
"""

from kvledgerd.core.device_pools.device import Asked, DevicePool
from kvledgerd.core.device_pools.device_structure import add_copy, pin_in, toggle_pool
from kvledgerd.core.state import State
from kvledgerd.core.structure import find_node
from kvledgerd.snapshots.plain import PlainAsked, PlainDevicePool, ReadImage

__all__ = ["make_devices"]


def make_devices(state: State, image: ReadImage) -> None:
    """Make device pools and asked pages; cells and leases are there already."""
    for plain in image.device_pools:
        _make_pool(state, plain)
    for one in image.asked:
        _make_asked(state, one)
    for lease in state.leases.values():
        # A lease may outlive a pool that it names: that of weights that were retired.
        pools = [state.device_pools[number] for number in lease.pools if number in state.device_pools]
        pin_in(pools, lease.cells() if pools else [])


def _make_pool(state: State, plain: PlainDevicePool) -> None:
    pool = DevicePool(plain.added, state.layouts[plain.added.layout], plain.key)
    pool.engine = plain.engine
    state.device_pools[pool.id] = pool
    toggle_pool(state, pool)
    for (number, slot), copy in plain.copies:
        cell = state.cells[number]
        pool.take(pool.known.slot_groups[slot], copy.offset, pool.known.length_of(cell, slot))
        add_copy(state, pool, cell, slot, copy)
    for number in plain.order:
        pool.cells.move_to_end(number)


def _make_asked(state: State, plain: PlainAsked) -> None:
    pool = state.device_pools[plain.pool]
    node = find_node(state, pool.known.tree, plain.node)
    asked = state.asked[plain.id] = Asked(plain.id, plain.engine, plain.pool, plain.layout, node)
    asked.first_block, asked.boundary = plain.first_block, plain.boundary
    asked.residue, asked.residue_hash = plain.residue, plain.residue_hash
    asked.objects, asked.offsets = plain.objects, plain.offsets
    asked.pinned = [state.cells[number] for number in plain.pinned]
    for item, offset in zip(asked.objects, asked.offsets, strict=True):
        if offset is not None:
            pool.take(item.group, offset, item.length)
    pin_in((pool,), asked.pinned)
