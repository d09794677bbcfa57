"""What holds of device pools after every event; see `kvledgerd.core.invariants`."""

from collections.abc import Iterator
from itertools import pairwise

from kvledger.device_regions import group_alignment
from kvledgerd.core.device_pools.device import DevicePool
from kvledgerd.core.device_pools.device_caps import device_use
from kvledgerd.core.index import Cell
from kvledgerd.core.placement.caps import Scopes, first_passed, scopes_of
from kvledgerd.core.state import State

__all__ = ["device_violations"]


def device_violations(state: State) -> Iterator[str]:
    """Yield every sentence about device pools that does not hold."""
    for pool in state.device_pools.values():
        for check in (_copies, _places, _pins, _couples, _owner):
            yield from (f"device pool {pool.id}: {text}" for text in check(state, pool))
    yield from _pooled(state)
    yield from _leased(state)
    yield from _caps(state)


def _copies(state: State, pool: DevicePool) -> Iterator[str]:
    """The masks say which copies there are; each bears a generation and has its cell, and what is held is there."""
    masks: dict[int, int] = {}
    for (number, slot), copy in pool.copies.items():
        masks[number] = masks.get(number, 0) | 1 << slot
        if not 0 < copy.generation < state.serial or not 0 < copy.commit < state.serial:
            yield f"cell {number} slot {slot} has generation {copy.generation} of commit {copy.commit}"
        if number not in state.cells or state.cells[number].layout != pool.known.number:
            yield f"cell {number} has a copy and is no cell of its layout"
    if masks != dict(pool.cells):
        yield "its masks say otherwise than its copies"
    lost = [name for name in pool.held if name not in pool.copies]
    if lost:
        yield f"{lost} are held and gone"


def _places(state: State, pool: DevicePool) -> Iterator[str]:
    """Pages in use and free ones are disjoint, fill each region, and lie where the group's alignment holds."""
    known = pool.known
    used: dict[int, list[tuple[int, int]]] = {group: [] for group in pool.places}
    for (number, slot), copy in pool.copies.items():
        cell = state.cells[number]
        used[known.slot_groups[slot]].append((copy.offset, known.length_of(cell, slot)))
    for asked in state.asked.values():
        if asked.pool == pool.id:
            for item, offset in zip(asked.objects, asked.offsets, strict=True):
                used[item.group] += [] if offset is None else [(offset, item.length)]
    for group, taken in used.items():
        places, start = pool.places[group], pool.starts[group]
        if pool.counts[group] != len(taken):
            yield f"{pool.counts[group]} objects of group {group} are counted, {len(taken)} are there"
        if any((pool.added.address + offset) % group_alignment(known.layout, group) for offset, _ in taken):
            yield f"an object of group {group} is not aligned"
        extents = sorted([(o - start, places.paged(n)) for o, n in taken] + [(o, n) for _, o, n in places.extents()])
        if any(one[0] + one[1] > other[0] for one, other in pairwise(extents)):
            yield f"extents of group {group} overlap"
        if sum(n for _, n in extents) != sum(arena.bytes for arena in places.arenas.values()):
            yield f"not all bytes of group {group} are accounted for"


def _pins(state: State, pool: DevicePool) -> Iterator[str]:
    """Every pin has a holder and every holder its pins."""
    expected: dict[int, int] = {}
    for lease in state.leases.values():
        for cell in lease.cells() if pool.id in lease.pools else ():
            expected[cell.id] = expected.get(cell.id, 0) + 1
    for asked in state.asked.values():
        for cell in asked.pinned if asked.pool == pool.id else ():
            expected[cell.id] = expected.get(cell.id, 0) + 1
    if expected != pool.pins:
        yield f"its pins are {pool.pins}, its holders {expected}"


def _couples(state: State, pool: DevicePool) -> Iterator[str]:
    """Keys and the rows that they index lie there together, from one commit, or not at all."""
    for number, mask in pool.cells.items():
        cell = state.cells[number]
        for slot, other in pool.known.couples_of(cell):
            needed = cell.is_block or pool.known.length_of(cell, other) > 0
            if mask >> slot & 1 and needed:
                if not mask >> other & 1:
                    yield f"cell {number} has keys {slot} without their rows"
                elif pool.copies[number, slot].commit != pool.copies[number, other].commit:
                    yield f"cell {number} has keys {slot} from another commit than their rows"


def _owner(state: State, pool: DevicePool) -> Iterator[str]:
    """A pool belongs to a living engine, or has exactly what leases and topologies keep of it."""
    engine = state.engines.get(pool.engine)
    if engine is not None and pool.id not in engine.pools:
        yield f"engine {pool.engine} does not know it"
    if pool.engine and engine is None:
        yield f"its engine {pool.engine} has ended"
    if not pool.engine and any(n not in pool.held and n[0] not in pool.pins for n in pool.copies):
        yield "it has no engine, and copies that nothing keeps"
    if not pool.engine and not pool.copies:
        yield "it has no engine and is kept for nothing"


def _pooled(state: State) -> Iterator[str]:
    """A cell counts the pools that have something of it; asked pages and engines name pools that are there."""
    counts: dict[int, int] = {}
    for pool in state.device_pools.values():
        for number in pool.cells:
            counts[number] = counts.get(number, 0) + 1
    for cell in state.cells.values():
        if cell.pooled != counts.get(cell.id, 0):
            yield f"cell {cell.id} counts {cell.pooled} device pools, {counts.get(cell.id, 0)} have something of it"
    lost = [one.id for one in state.asked.values() if one.pool not in state.device_pools]
    lost += [number for engine in state.engines.values() for number in engine.pools if number not in state.device_pools]
    if lost:
        yield f"asked pages or engines name device pools that are gone: {lost}"


def _leased(state: State) -> Iterator[str]:
    """What a lease was given the address of is there, whatever became of weights and pools since.

    A boundary whose windows lie in blocks has no objects of its own: its cell may hold the manifest alone, or nothing
    before that was written and after its weights were retired.
    """
    for lease in state.leases.values():
        for cell in lease.cells() if lease.pools else ():
            if not (cell.memory or cell.pooled or cell.limbo or cell.manifest) and _needs_own(state, cell):
                yield f"lease {lease.id} covers cell {cell.id}, of which nothing is left"


def _needs_own(state: State, cell: Cell) -> bool:
    """Tell whether a resume needs something of this very cell."""
    known = state.layouts[cell.layout]
    geometry, position = known.geometry, cell.node.depth * known.layout.block_tokens + cell.residue
    groups = (*geometry.rows, *geometry.windows, *geometry.snapshots)
    return cell.is_block or any(geometry.boundary_need(group, position) for group in groups)


def _caps(state: State) -> Iterator[str]:
    """No cap on device pools is passed, in bytes or in entries, by a kind, a tenant or in all."""
    use, caps = device_use(state), state.config.device()
    for tenant, kind in use:
        passed = first_passed(caps, kind, Scopes(), scopes_of(use, tenant, kind))
        if passed is not None:
            yield f"{tenant}/{kind.name} on devices: {passed.wanted} pass {passed.name} of {passed.cap}"
