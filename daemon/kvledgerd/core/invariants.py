"""What holds after every event, checked by walking the whole state.

Nothing here is needed to run: these are the sentences that tests, the explorer and `kvledger check` prove. Each
violation is one text for people; an empty list means that everything holds.
"""

from collections.abc import Iterator
from itertools import pairwise

from kvledger.geometry import bits
from kvledger.kinds import Kind
from kvledgerd.core.copies.precisions import QUANTISED
from kvledgerd.core.device_pools.invariants_device import device_violations
from kvledgerd.core.epoch.epoch_invariants import epoch_violations
from kvledgerd.core.holdings import OffloadJob, RelocationJob, RestoreJob, Unit, VerifyJob
from kvledgerd.core.index import ARENA, ASKED, GENERATION, OFFSET, Cell, Node
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.placement.aging import goes_first, is_leaf_bound
from kvledgerd.core.placement.caps import Amount, PlaceCaps, Scopes, first_passed
from kvledgerd.core.placement.pools import Extent, paged
from kvledgerd.core.state import State
from kvledgerd.core.structure import record_bytes, rows_follow
from kvledgerd.core.transitions import IN_MEMORY, ON_DISK_TOO, STATES, ObjectState
from kvledgerd.core.units.tickets import brought_by

__all__ = ["violations"]


def violations(state: State) -> list[str]:
    """Return every sentence that does not hold."""
    checks = (_masks, _orders, _samples, _pins, _topologies, _material, _memory, _disk, _caps, _counts, _tree)
    return [text for check in (*checks, device_violations, epoch_violations, _digest) for text in check(state)]


def _masks(state: State) -> Iterator[str]:
    """The masks of a cell say what the states of its slots say."""
    for cell in state.cells.values():
        for slot, number in enumerate(cell.states):
            held = STATES[number]
            if (held in IN_MEMORY) != bool(cell.memory >> slot & 1) or (held in ON_DISK_TOO) != bool(
                cell.disk >> slot & 1
            ):
                yield f"cell {cell.id} slot {slot} is {held.name}, its masks say otherwise"
        if cell.is_block and cell.follows and not rows_follow(state.layouts[cell.layout], cell):
            known = state.layouts[cell.layout]
            whole = cell.memory & known.rows_mask == known.rows_mask
            if whole and cell.node.parent is not None and _has_rows(known, cell.node.parent):
                yield f"cell {cell.id} is said to follow the block before it, and does not"
        if cell.unverified & ~cell.memory:
            yield f"cell {cell.id} has unverified slots without memory"


def _orders(state: State) -> Iterator[str]:
    """A cell stands once in the order of each kind of its memory copies, blocks of rows only where their path ends."""
    standing = 0
    for cell in state.cells.values():
        known = state.layouts[cell.layout]
        after = [c for n in cell.node.children if (c := n.cell(cell.layout)) is not None] if cell.is_block else []
        if cell.kinds != known.kinds_in(cell) or cell.below != sum(1 for c in after if c.memory):
            yield f"cell {cell.id} has forgotten its kinds or what lies behind it"
        for kind, order in enumerate(state.orders[known.tenant]):
            meant = cell.kinds >> kind & 1 and not (cell.below and is_leaf_bound(cell, kind))
            standing += bool(meant)
            if bool(meant) != (cell.id in order):
                yield f"cell {cell.id} {'is missing in' if meant else 'stands in'} the order of {Kind(kind).name}"
            if order.is_misplaced(cell.id):
                yield f"cell {cell.id} waits among other uses or older ones in the order of {Kind(kind).name}"
            if cell.id in order and cell.id not in order.first and goes_first(known, cell, kind):
                yield f"cell {cell.id} is to go first and waits in the order of {Kind(kind).name}"
    if standing != sum(len(order) for orders in state.orders.values() for order in orders):
        yield "an eviction order has cells that are gone, or one of them twice"


def _samples(state: State) -> Iterator[str]:
    """Of a name that was seen again only the last place in its sample counts."""
    for tenant, both in state.reuse.items():
        if any(one.is_torn() for one in both):
            yield f"a sample of {tenant} has a name at two places, or has lost one"


def _has_rows(known: KnownLayout, node: Node) -> bool:
    cell = node.cell(known.number)
    return cell is not None and cell.memory & known.rows_mask == known.rows_mask


def _pins(state: State) -> Iterator[str]:
    """Every pin has a holder and every holder its pins; what is gone from under a pin is in limbo."""
    expected: dict[int, int] = {}
    for cell in _pinned(state):
        expected[cell.id] = expected.get(cell.id, 0) + 1
        if cell.id not in state.cells:
            yield f"cell {cell.id} is pinned and gone"
    for cell in state.cells.values():
        if cell.pins != expected.get(cell.id, 0):
            yield f"cell {cell.id} has {cell.pins} pins and {expected.get(cell.id, 0)} holders"
        if cell.limbo and not cell.pins:
            yield f"cell {cell.id} keeps memory in limbo that no pin needs"


def _material(state: State) -> Iterator[str]:
    """What a boundary stands on is used: the block at whose end or behind which it lies, and the blocks before."""
    for cell in state.cells.values():
        before = cell.node if not cell.is_block else cell.node.parent
        base = before.cell(cell.layout) if before is not None else None
        if cell.used and base is not None and not base.used:
            yield f"cell {cell.id} is used and stands on cell {base.id}, which is not"
        if not cell.used and not cell.is_block:
            yield f"cell {cell.id} is a boundary and is said to be material"


def _pinned(state: State) -> Iterator[Cell]:
    for lease in state.leases.values():
        yield from lease.cells()
    for topology in state.topologies.values():
        yield from topology.cells()
    for unit in state.units.values():
        yield from unit.pinned
    for job in state.jobs.values():
        if isinstance(job, VerifyJob | OffloadJob | RestoreJob | RelocationJob):
            yield from (cell for cell, _ in job.objects)
        if isinstance(job, OffloadJob):
            yield job.boundary


def _topologies(state: State) -> Iterator[str]:
    """What a topology names is reachable: in memory, at its address and generation, or known as lost and not reused."""
    for topology in state.topologies.values():
        if not topology.objects or not topology.processes:
            yield f"topology {topology.id} is kept for nothing or for nobody"
        for (number, slot, device), one in topology.objects.items():
            if state.cells.get(number) is not one.cell or not (one.cell.pins or device):
                yield f"topology {topology.id} pins cell {number}, which is gone or not pinned"
            place = (one.arena, one.offset)
            kept = one.is_there or any(extent[:2] == place for extent in one.cell.limbo or ())
            if device and state.device_pools.get(device) is not one.pool:
                yield f"topology {topology.id}: device pool {device} is gone"
            if (number, slot, device) not in topology.lost and not one.is_there:
                yield f"topology {topology.id}: object {number}.{slot} is not where its graph reads it"
            elif not kept and one.arena in state.arenas:
                yield f"topology {topology.id}: the memory of object {number}.{slot} may be reused"
        if topology.lost.keys() - topology.objects.keys():
            yield f"topology {topology.id} has lost what it does not pin"
    yield from _device_holds(state)


def _device_holds(state: State) -> Iterator[str]:
    """Every hold on a device has its topology."""
    expected: dict[tuple[int, int, int], int] = {}
    for topology in state.topologies.values():
        for number, slot, device in topology.objects:
            if device:
                expected[device, number, slot] = expected.get((device, number, slot), 0) + 1
    found = {(pool.id, *name): count for pool in state.device_pools.values() for name, count in pool.held.items()}
    if found != expected:
        yield f"device pools are held as {found}, topologies hold {expected}"


def _memory(state: State) -> Iterator[str]:
    """Extents in use, in limbo and free are disjoint, fill their arenas, and bear a generation."""
    used: dict[tuple[str, int], list[Extent]] = {}
    for (tenant, kind), extent in _extents(state):
        used.setdefault((tenant, kind), []).append(extent)
    for (tenant, pool_kind), pool in state.pools.items():
        taken = used.pop((tenant, int(pool_kind)), [])
        if len(taken) != pool.entries:
            yield f"pool {tenant}/{pool_kind.name}: {pool.entries} objects are counted, {len(taken)} are there"
        mine = sorted(taken + pool.extents())
        for one, other in pairwise(mine):
            if one[0] == other[0] and one[1] + one[2] > other[1]:
                yield f"arena {one[0]}: extents at {one[1]} and {other[1]} overlap"
        covered = sum(e[2] for e in mine)
        whole = sum(a.bytes for a in pool.arenas.values())
        if covered != whole:
            yield f"pool {tenant}/{pool_kind.name}: {covered} of {whole} bytes are accounted for"
    for key in used:
        yield f"extents of {key} lie in no pool"


def _extents(state: State) -> Iterator[tuple[tuple[str, int], Extent]]:
    for cell in state.cells.values():
        known = state.layouts[cell.layout]
        for slot in bits(cell.memory):
            extent = (cell.word(slot, ARENA), cell.word(slot, OFFSET), paged(known.length_of(cell, slot)))
            yield (known.tenant, int(known.slot_kinds[slot])), extent
            if not cell.word(slot, GENERATION):
                yield (known.tenant, 0), extent
        for arena, offset, length, kind in cell.limbo or ():
            yield (known.tenant, kind), (arena, offset, paged(length))
    for unit in state.units.values():
        yield from _unit_extents(state, unit)
    for job in state.jobs.values():
        if isinstance(job, RestoreJob | RelocationJob):
            for (cell, slot), place in zip(job.objects, job.places, strict=True):
                known = state.layouts[cell.layout]
                size = paged(known.length_of(cell, slot))
                yield (known.tenant, int(known.slot_kinds[slot])), (*place, size)


def _unit_extents(state: State, unit: Unit) -> Iterator[tuple[tuple[str, int], Extent]]:
    known = state.layouts[unit.layout]
    for item, place in zip(unit.objects, unit.places, strict=True):
        if place is not None:
            kind = int(known.geometry.groups[item.group].kind)
            yield (known.tenant, kind), (*place, paged(item.length))


def _disk(state: State) -> Iterator[str]:
    """Counted on disk are its records, what was asked for is there, and restores in the index have their job."""
    found: dict[tuple[str, int], Amount] = {}
    for cell in state.cells.values():
        known = state.layouts[cell.layout]
        records = [(known.slot_kinds[slot], known.stored_length(cell, slot)) for slot in bits(cell.disk)]
        records += [(Kind.DISK_PREFIX, cell.manifest[2])] if cell.manifest else []
        for kind, length in records:
            size, entries = found.get((known.tenant, int(kind)), Amount())
            found[known.tenant, int(kind)] = Amount(size + record_bytes(length), entries + 1)
        if cell.marks & ASKED and cell.manifest is None:
            yield f"cell {cell.id} was asked for on disk and has no manifest there"
        for slot in bits(cell.disk):
            if (cell.state(slot) is ObjectState.RESTORING) != ((cell.id, slot) in state.restoring):
                yield f"cell {cell.id} slot {slot}: restore and job disagree"
    quantised = [
        record_bytes(state.layouts[cell.layout].stored_length(cell, slot))
        for cell in state.cells.values()
        for slot in bits(cell.disk)
        if cell.precision(slot) in QUANTISED
    ]
    if (len(quantised), sum(quantised)) != (state.quantised_records, state.quantised_bytes):
        yield f"{state.quantised_records} records are counted as quantised, {len(quantised)} are"
    if found != state.disk_use or sum(one.bytes for one in found.values()) != state.disk_bytes:
        yield f"{state.disk_bytes} bytes on disk are counted, {state.disk_use}; the records have {found}"


def _caps(state: State) -> Iterator[str]:
    """No cap is passed, in bytes or in entries, by a kind, a tenant or in all, in memory or on disk."""
    config = state.config
    if state.objects > config.max_objects:
        yield f"{state.objects} objects pass the cap of {config.max_objects}"
    memory, disk = config.memory(), config.disk()
    # What a tenant and all have is walked once for a tenant, that of a kind is at hand
    tenants = dict.fromkeys([*(owner for owner, _ in state.pools), *(arena.tenant for arena in state.arenas.values())])
    whole = {tenant: state.memory_use(tenant, Kind.DISK_PREFIX) for tenant in tenants}
    for tenant, use in whole.items():
        yield from _passed(memory, Kind.DISK_PREFIX, use, tenant)
    for (tenant, kind), pool in state.pools.items():
        use = Scopes(Amount(pool.live_bytes, pool.entries), *whole[tenant][1:])
        yield from _passed(memory, kind, use, tenant)
    for tenant, number in state.disk_use:
        yield from _passed(disk, Kind(number), state.records_use(tenant, Kind(number)), tenant)


def _passed(caps: PlaceCaps, kind: Kind, use: Scopes, tenant: str) -> Iterator[str]:
    passed = first_passed(caps, kind, Scopes(), use)
    if passed is not None:
        yield f"{tenant}/{kind.name} in {caps.place}: {passed.wanted} pass {passed.name} of {passed.cap}"


def _counts(state: State) -> Iterator[str]:
    """Objects are counted once each; leases and units belong to engines that are there, units in end to their end."""
    objects = sum((c.memory | c.disk).bit_count() for c in state.cells.values())
    objects += sum(len(u.missing()) for u in state.units.values())
    if objects != state.objects:
        yield f"{state.objects} objects are counted, {objects} are there"
    for engine in state.engines.values():
        held = [n for n in engine.leases if n not in state.leases] + [n for n in engine.units if n not in state.units]
        if held:
            yield f"engine {engine.number} holds {held}, which are gone"
    for lease in state.leases.values():
        if lease.engine not in state.engines:
            yield f"lease {lease.id} has no engine"
        if lease.node.parent is not None and state.nodes.get(lease.node.id) is not lease.node:
            yield f"lease {lease.id} ends at block {lease.node.id}, which is gone"
    for unit in state.units.values():
        yield from _tickets(state, unit)
        if not unit.aborted and unit.engine not in state.engines:
            yield f"unit {unit.id} has no engine"


def _tickets(state: State, unit: Unit) -> Iterator[str]:
    """Only tickets that bring something are joined or committed; a committed one is complete, and some other is not."""
    known = state.layouts[unit.layout]
    brought = {index: brought_by(known, unit, index) for index in unit.missing()}
    if not {*unit.joined, *unit.done} <= {*brought.values()}:
        yield f"unit {unit.id} has tickets that bring nothing"
    if not all(unit.prints[index] for index, ticket in brought.items() if ticket in unit.done):
        yield f"unit {unit.id} has a committed ticket with objects that are incomplete"
    if brought and {*unit.done} == {*brought.values()}:
        yield f"unit {unit.id} has all its tickets and is not published"


def _tree(state: State) -> Iterator[str]:
    """Blocks hang together, and none is kept for nothing."""
    for tree in state.trees.values():
        for chain_hash, node in tree.nodes.items():
            if node.hash != chain_hash or state.nodes.get(node.id) is not node:
                yield f"block {node.id} is filed under another name"
            if node.parent is None or node not in node.parent.children:
                yield f"block {node.id} hangs on nothing"
            if node.is_prunable:
                yield f"block {node.id} is kept for nothing"
    for cell in state.cells.values():
        if cell.is_empty:
            yield f"cell {cell.id} is kept for nothing"
        if cell not in (cell.node.cells if cell.is_block else cell.node.boundaries):
            yield f"cell {cell.id} is not at its block"


def _digest(state: State) -> Iterator[str]:
    """The digest that was kept up is that of the state."""
    if state.digest() != state.recomputed_digest():
        yield "the digest is not that of the state"
