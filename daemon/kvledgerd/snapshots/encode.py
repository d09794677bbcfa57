"""From the state to bytes."""

import msgspec

from kvledgerd.core.device_pools.device import Asked, DevicePool
from kvledgerd.core.epoch.epochs import Epoch
from kvledgerd.core.holdings import ArenaJob, Engine, Job, Lease, OffloadJob, RelocationJob, Unit, VerifyJob
from kvledgerd.core.index import Cell
from kvledgerd.core.state import State
from kvledgerd.core.topology.topologies import Topology
from kvledgerd.snapshots.plain import (
    MASKS,
    NUMBERS,
    Image,
    PlainArena,
    PlainAsked,
    PlainCell,
    PlainDevicePool,
    PlainEngine,
    PlainEpoch,
    PlainGhosts,
    PlainJob,
    PlainLayout,
    PlainLease,
    PlainMasks,
    PlainNode,
    PlainOrder,
    PlainPool,
    PlainReuse,
    PlainTopology,
    PlainTree,
    PlainUnit,
)

__all__ = ["encode_state"]

_ENCODER = msgspec.msgpack.Encoder()


def encode_state(state: State) -> bytes:
    """Return a state as bytes: equal states, with equal histories, have equal bytes."""
    tree_of = {tree.root: number for number, tree in state.trees.items()}
    parents = []
    for node in state.nodes.values():
        assert node.parent is not None, "roots are not among the nodes"
        tree_of[node] = tree_of[node.parent]
        parents.append(node.parent.id)
    image = Image(
        [getattr(state, name) for name in NUMBERS],
        state.stopped,
        state.growth_failed,
        state.degraded,
        state.boot_id,
        state.log_id,
        state.live_from,
        state.kept_from,
        state.tier,
        [_plain_epoch(epoch) for epoch in state.epochs.values()],
        [PlainTree(tree.id, tree.key, tree.root.holds) for tree in state.trees.values()],
        [PlainLayout(k.number, k.tenant, k.epoch.number, k.layout) for k in state.layouts.values()],
        [PlainNode(node.id, node.hash, node.holds) for node in state.nodes.values()],
        [tree_of[node] for node in state.nodes.values()],
        parents,
        [_plain_cell(cell) for cell in state.cells.values()],
        [cell.node.id for cell in state.cells.values()],
        [_plain_masks(cell) for cell in state.cells.values() if any(getattr(cell, mask) for mask in MASKS)],
        [
            PlainOrder(tenant, kind, *order.packed())
            for tenant, orders in state.orders.items()
            for kind, order in enumerate(orders)
            if order
        ],
        [PlainArena(a.id, a.tenant, int(a.kind), a.bytes, a.ready) for a in state.arenas.values()],
        [
            PlainPool(tenant, int(kind), list(pool.arenas), pool.extents(), pool.entries)
            for (tenant, kind), pool in state.pools.items()
        ],
        [_plain_device_pool(pool) for pool in state.device_pools.values()],
        [_plain_asked(asked) for asked in state.asked.values()],
        [_plain_engine(engine) for engine in state.engines.values()],
        [_plain_lease(lease) for lease in state.leases.values()],
        [_plain_unit(unit) for unit in state.units.values()],
        [_plain_job(job) for job in state.jobs.values()],
        [_plain_topology(topology) for topology in state.topologies.values()],
        list(state.outcomes.items()),
        list(state.endings.items()),
        [(tenant, kind, *amount) for (tenant, kind), amount in state.disk_use.items()],
        [(tenant, kind, *quota) for (tenant, kind), quota in state.quotas.items()],
        [
            PlainGhosts(tenant, kind, list(ghosts.sizes.items()), ghosts.seen, ghosts.again, ghosts.missed)
            for (tenant, kind), ghosts in state.ghosts.items()
        ],
        [PlainReuse(tenant, *reuse.packed()) for tenant, both in state.reuse.items() for reuse in both],
    )
    return _ENCODER.encode(image)


def _plain_epoch(e: Epoch) -> PlainEpoch:
    memory = {int(kind): size for kind, size in e.memory.items()}
    kernels = list(e.kernels)
    return PlainEpoch(e.number, e.tenant, e.model, e.weights, e.engine, e.state, e.share, kernels, memory, e.disk)


def _plain_cell(cell: Cell) -> PlainCell:
    return PlainCell(
        cell.id,
        cell.layout,
        cell.residue,
        cell.residue_hash,
        cell.states,
        cell.words,
        cell.records,
        cell.precisions,
        cell.pins,
        cell.follows,
        cell.used,
        cell.revisited,
        cell.lineage,
        cell.marks,
        cell.usage,
        cell.limbo,
        cell.manifest,
    )


def _plain_masks(cell: Cell) -> PlainMasks:
    masks: list[int] = [getattr(cell, name) for name in MASKS]
    return PlainMasks(cell.id, [mask.to_bytes(-(-mask.bit_length() // 8), "little") for mask in masks])


def _plain_engine(e: Engine) -> PlainEngine:
    held = (list(e.leases), list(e.units), list(e.pools))
    return PlainEngine(e.number, e.key, e.tenant, e.uid, e.pid, e.name, e.silent, *held)


def _plain_device_pool(p: DevicePool) -> PlainDevicePool:
    return PlainDevicePool(p.added, p.engine, p.key, list(p.cells), list(p.copies.items()))


def _plain_asked(a: Asked) -> PlainAsked:
    return PlainAsked(
        a.id,
        a.engine,
        a.pool,
        a.layout,
        a.node.id,
        a.first_block,
        a.boundary,
        a.residue,
        a.residue_hash,
        a.objects,
        a.offsets,
        [cell.id for cell in a.pinned],
    )


def _plain_lease(lease: Lease) -> PlainLease:
    boundaries = [None if cell is None else cell.id for cell in lease.boundaries]
    blocks = [cell.id for cell in lease.blocks]
    return PlainLease(
        lease.id, lease.engine, lease.layout, lease.node.id, blocks, lease.offers, boundaries, lease.pools
    )


def _plain_unit(u: Unit) -> PlainUnit:
    return PlainUnit(
        u.id,
        u.engine,
        u.layout,
        u.node.id,
        u.first_block,
        u.boundary,
        u.residue,
        u.residue_hash,
        u.objects,
        u.places,
        u.filled,
        u.prints,
        [cell.id for cell in u.pinned],
        list(u.jobs),
        u.aborted,
        u.holder,
        u.joined,
        list(u.done),
        u.lineage,
        u.converts,
        u.approx,
    )


def _plain_job(job: Job) -> PlainJob:
    if isinstance(job, ArenaJob):
        return PlainJob("arena", job.id, [], job.arena)
    objects = [(cell.id, slot) for cell, slot in job.objects]
    if isinstance(job, VerifyJob):
        return PlainJob("verify", job.id, objects)
    if isinstance(job, OffloadJob):
        return PlainJob(
            "offload", job.id, objects, job.boundary.id, void=job.void, asked=job.asked, precisions=job.precisions
        )
    if isinstance(job, RelocationJob):
        return PlainJob("relocation", job.id, objects, job.generation, places=job.places, sources=job.sources)
    return PlainJob(
        "restore", job.id, objects, job.generation, places=job.places, void=job.void, promotion=job.promotion
    )


def _plain_topology(t: Topology) -> PlainTopology:
    objects = [(*name, one.arena, one.offset, one.generation) for name, one in t.objects.items()]
    return PlainTopology(t.id, t.key, t.tenant, t.uid, list(t.processes), objects, list(t.lost), t.recapturing)
