"""From bytes to a state.

Layouts go through the function that applies their event, and pools through the calls that allocate and free, so that
what follows from an image is made by the same code as ever. The digest is computed and not copied: that it equals the
one beside the image is the proof that nothing was forgotten.
"""

import msgspec

from kvledger.kinds import Kind
from kvledger_storage.events import LayoutRegistered
from kvledgerd.collector import collector_paused
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.device_pools.device_structure import hold
from kvledgerd.core.epoch.epochs import Epoch
from kvledgerd.core.holdings import ArenaJob, Engine, Job, Lease, OffloadJob, RelocationJob, RestoreJob, Unit, VerifyJob
from kvledgerd.core.incarnation.apply_life import layout_registered
from kvledgerd.core.index import Node, Tree, held_by, joined, new_node
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.placement.apply_memory import prepare_orders
from kvledgerd.core.placement.caps import Amount
from kvledgerd.core.placement.ghosts import Ghosts
from kvledgerd.core.placement.pools import Arena
from kvledgerd.core.state import Quota, State
from kvledgerd.core.structure import ensure_pool, find_node
from kvledgerd.core.topology.topologies import Held, Topology
from kvledgerd.snapshots.decode_device import make_devices
from kvledgerd.snapshots.plain import MASKS, NUMBERS, PlainJob, PlainLease, PlainTopology, PlainUnit, ReadImage

__all__ = ["decode_state"]

_DECODER = msgspec.msgpack.Decoder(ReadImage)


def decode_state(data: bytes, config: CoreConfig) -> State:
    """Make a state from what `encode_state` returned; its digest is computed from what was made.

    Raises:
        msgspec.DecodeError: These bytes are no image of this version.
    """
    with collector_paused():
        return _made(_DECODER.decode(data), State(config))


def _made(image: ReadImage, state: State) -> State:
    for name, number in zip(NUMBERS, image.numbers, strict=True):
        setattr(state, name, number)
    next_layout = state.next_layout  # the last layout may be gone
    state.stopped, state.growth_failed = image.stopped, image.growth_failed
    state.degraded = image.degraded
    state.boot_id, state.log_id = image.boot_id, image.log_id
    state.live_from, state.kept_from, state.tier = image.live_from, image.kept_from, image.tier
    _make_epochs(state, image)
    for plain in image.reuse:
        prepare_orders(state, plain.tenant)  # the layouts of a tenant may be gone, and its place is before all others
    for one in image.layouts:
        layout_registered(state, LayoutRegistered(one.number, one.tenant, one.epoch, one.layout))
    state.next_layout = next_layout
    _make_tree(state, image)
    _make_memory(state, image)
    for engine in image.engines:
        made = Engine(engine.number, engine.key, engine.tenant, engine.uid, engine.pid, engine.name)
        made.silent = engine.silent
        made.leases, made.units = dict.fromkeys(engine.leases), dict.fromkeys(engine.units)
        made.pools = dict.fromkeys(engine.pools)
        state.engines[engine.number] = made
    for lease in image.leases:
        _make_lease(state, lease)
    for unit in image.units:
        _make_unit(state, unit)
    make_devices(state, image)
    for job in image.jobs:
        state.jobs[job.id] = _make_job(state, job)
    for topology in image.topologies:
        _make_topology(state, topology)
    state.outcomes.update(image.outcomes)
    state.endings.update(image.endings)
    _make_shares(state, image)
    return state


def _make_epochs(state: State, image: ReadImage) -> None:
    for one in image.epochs:
        epoch = Epoch(one.number, one.tenant, one.model, one.weights, one.engine)
        epoch.state, epoch.share, epoch.disk = one.state, one.share, one.disk
        epoch.kernels = dict.fromkeys(one.kernels)
        epoch.memory = {Kind(kind): size for kind, size in one.memory.items()}
        state.epochs[one.number] = epoch
        state.toggle("epoch", *epoch.facts())
    for plain in image.trees:
        state.trees[plain.number] = Tree(plain.number, plain.key, new_node(0, None, b""))
        state.trees[plain.number].root.holds = plain.root_holds
        state.tree_numbers[plain.key] = plain.number


def _make_tree(state: State, image: ReadImage) -> None:
    _make_nodes(state, image)
    _make_cells(state, image)
    for one in image.masks:
        for name, mask in zip(MASKS, one.masks, strict=True):
            setattr(state.cells[one.cell], name, int.from_bytes(mask, "little"))
    for plain in image.orders:
        order = state.orders[plain.tenant][plain.kind]
        first = [(state.cells[number], mark) for number, mark in plain.first]
        usual = [(index, [(state.cells[number], mark) for number, mark in queue]) for index, queue in plain.usual]
        order.unpack(first, usual)


def _make_nodes(state: State, image: ReadImage) -> None:
    """Hang each block on the one before it."""
    nodes, trees = state.nodes, state.trees
    for node, tree, number in zip(image.nodes, image.node_trees, image.node_parents, strict=True):
        parent = nodes[number] if number else trees[tree].root
        node.parent, node.depth = parent, parent.depth + 1
        parent.children = joined(parent.children, node) if parent.children else (node,)
        nodes[node.id] = trees[tree].nodes[node.hash] = node


def _make_cells(state: State, image: ReadImage) -> None:
    """Hang each cell on its node, and make what follows from its states: alike for most cells of a layout."""
    cells, held = state.cells, dict[tuple[int, int, bytes, bool], tuple[int, int, int]]()
    for cell, number in zip(image.cells, image.cell_nodes, strict=True):
        known = state.layouts[cell.layout]
        node = cell.node = state.nodes[number] if number else known.tree.root
        key = (cell.layout, cell.residue < 0, cell.states, cell.manifest is None)
        found = held.get(key)
        if found is None:
            cell.memory, cell.disk = held_by(cell.states)
            found = held[key] = cell.memory, cell.disk, known.kinds_in(cell)
        cell.memory, cell.disk, cell.kinds = found
        if cell.residue < 0:
            node.cells = joined(node.cells, cell) if node.cells else (cell,)
        else:
            node.boundaries = joined(node.boundaries, cell)
        cells[cell.id] = cell
    state.touch_all()
    for cell in cells.values():
        parent = cell.node.parent
        if cell.kinds and cell.residue < 0 and parent is not None:
            before = parent.cell(cell.layout)
            if before is not None:
                before.below += 1


def _make_memory(state: State, image: ReadImage) -> None:
    for one in image.arenas:
        arena = Arena(one.id, one.tenant, Kind(one.kind), one.bytes)
        arena.ready = one.ready
        state.arenas[one.id] = arena
        if one.ready:
            state.toggle("arena", arena.id, arena.tenant, int(arena.kind), arena.bytes)
    for plain in image.pools:
        pool = ensure_pool(state, plain.tenant, Kind(plain.kind))
        for number in plain.arenas:
            pool.add(state.arenas[number])
            pool.take(number, 0, state.arenas[number].bytes, 0)
        for extent in plain.free:
            pool.give(*extent, 0)
        pool.entries = plain.entries


def _make_shares(state: State, image: ReadImage) -> None:
    state.disk_use.update(((tenant, kind), Amount(*amount)) for tenant, kind, *amount in image.disk_use)
    state.quotas.update(((tenant, kind), Quota(size, fixed)) for tenant, kind, size, fixed in image.quotas)
    for one in image.ghosts:
        ghosts = state.ghosts[one.tenant, one.kind] = Ghosts()
        ghosts.sizes.update(one.sizes)
        ghosts.bytes = sum(size for _, size in one.sizes)
        ghosts.seen, ghosts.again, ghosts.missed = one.seen, one.again, one.missed
    learnt = iter(image.reuse)
    for both in state.reuse.values():
        for reuse, known in zip(both, learnt, strict=False):
            reuse.unpack(known.numbers, known.columns)


def _node(state: State, known: KnownLayout, number: int) -> Node:
    return find_node(state, known.tree, number)


def _make_lease(state: State, plain: PlainLease) -> None:
    node = _node(state, state.layouts[plain.layout], plain.node)
    lease = state.leases[plain.id] = Lease(plain.id, plain.engine, plain.layout, node)
    lease.blocks = [state.cells[number] for number in plain.blocks]
    lease.offers = plain.offers
    lease.boundaries = [None if number is None else state.cells[number] for number in plain.boundaries]
    lease.pools = plain.pools


def _make_unit(state: State, plain: PlainUnit) -> None:
    node = _node(state, state.layouts[plain.layout], plain.node)
    unit = state.units[plain.id] = Unit(plain.id, plain.engine, plain.layout, node.path(), node)
    unit.first_block, unit.boundary = plain.first_block, plain.boundary
    unit.residue, unit.residue_hash = plain.residue, plain.residue_hash
    unit.objects, unit.places = plain.objects, plain.places
    unit.filled, unit.prints = plain.filled, plain.prints
    unit.pinned = [state.cells[number] for number in plain.pinned]
    unit.jobs = dict.fromkeys(plain.jobs)
    unit.aborted = plain.aborted
    unit.lineage, unit.converts, unit.approx = plain.lineage, plain.converts, plain.approx
    unit.holder, unit.joined, unit.done = plain.holder, plain.joined, dict.fromkeys(plain.done)


def _make_job(state: State, plain: PlainJob) -> Job:
    objects = [(state.cells[number], slot) for number, slot in plain.objects]
    if plain.what == "arena":
        return ArenaJob(plain.id, plain.number)
    if plain.what == "verify":
        return VerifyJob(plain.id, objects)
    if plain.what == "offload":
        offload = OffloadJob(plain.id, state.cells[plain.number], objects)
        offload.void, offload.asked, offload.precisions = plain.void, plain.asked, plain.precisions
        return offload
    if plain.what == "relocation":
        return RelocationJob(plain.id, plain.number, objects, plain.places, plain.sources)
    restore = RestoreJob(plain.id, plain.number, objects, plain.places)
    restore.void, restore.promotion = plain.void, plain.promotion
    for cell, slot in objects if not plain.void else ():
        state.restoring[cell.id, slot] = plain.id
    return restore


def _make_topology(state: State, plain: PlainTopology) -> None:
    topology = Topology(plain.id, plain.key, plain.tenant, plain.uid, tuple(plain.processes))
    for number, slot, device, arena, offset, generation in plain.objects:
        cell, pool = state.cells[number], state.device_pools[device] if device else None
        topology.objects[number, slot, device] = Held(cell, slot, pool, arena, offset, generation)
        if pool is not None:
            hold(pool, cell, slot)
    topology.lost, topology.recapturing = dict.fromkeys(plain.lost), plain.recapturing
    state.topologies[topology.id] = topology
    state.toggle(*topology.facts())
