"""Applying events about verdicts and leases."""

from kvledger_storage.events import LeaseEnded, LeaseSettled, LookedUp, OfferRecord
from kvledgerd.core.device_pools.device_structure import pin_in, unpin_in
from kvledgerd.core.holdings import Lease
from kvledgerd.core.index import READ, WEIGHED, Cell, Tree
from kvledgerd.core.placement.aging import note_read, use_cell
from kvledgerd.core.state import State
from kvledgerd.core.structure import blocks_of, find_node, touch_boundary, unpin
from kvledgerd.core.units.material import note_used

__all__ = ["end_lease", "lease_ended", "lease_settled", "looked_up"]


def looked_up(state: State, event: LookedUp) -> None:
    """Pin what a verdict names, and make it the most recently used."""
    if not event.lease:
        return
    state.serial = max(state.serial, event.lease + 1)
    tree, known = state.trees[event.tree], state.layouts[event.layout]
    ready = [find_node(state, tree, offer.node) for offer in event.offers if offer.ready]
    deepest = max(ready, key=lambda n: n.depth, default=tree.root)
    lease = Lease(event.lease, event.engine, event.layout, deepest)
    lease.blocks = blocks_of(deepest, event.layout)
    lease.offers = list(event.offers)
    lease.boundaries = [_boundary(state, tree, event.layout, offer) if offer.ready else None for offer in event.offers]
    for cell in lease.cells():
        cell.pins += 1
    _pin_on_devices(state, lease)
    note_used(state, lease.blocks)
    note_read(state, known, lease.blocks)
    for offer in event.offers:
        prefix = None if offer.ready else _boundary(state, tree, event.layout, offer)
        if prefix is not None:
            use_cell(state, known, prefix)
    if len(event.offers) == 1 and ready:
        _note_read(state, lease.boundaries[0] or (lease.blocks[-1] if lease.blocks else None))
    best = next((offer for offer in event.offers if offer.ready), None)
    if best is not None:
        own = [cell for cell in reversed(lease.boundaries) if cell is not None]
        touch_boundary(state, known, find_node(state, tree, best.node), best.residue, own)
    state.leases[lease.id] = lease
    state.engines[event.engine].leases[lease.id] = None


def _pin_on_devices(state: State, lease: Lease) -> None:
    """Keep what its engine has of it on its own devices, and make that the most recently used there."""
    sight = state.sight(lease.engine, lease.layout)
    if sight:
        lease.pools = tuple(pool.id for pool in sight.pools)
        pin_in(sight.pools, lease.cells())
        for pool in sight.pools:
            pool.touch([*(cell for cell in lease.boundaries if cell is not None), *reversed(lease.blocks)])


def _boundary(state: State, tree: Tree, layout: int, offer: OfferRecord) -> Cell | None:
    return find_node(state, tree, offer.node).boundary(layout, offer.residue, offer.residue_hash)


def lease_settled(state: State, event: LeaseSettled) -> None:
    """Give back what only the other offers needed.

    An offer that was not ready keeps nothing, so its blocks may be gone since; then nothing is left to keep.
    """
    lease = state.leases[event.lease]
    kept, cell = lease.offers[event.offer], lease.boundaries[event.offer]
    root = state.layouts[lease.layout].tree.root
    node = state.nodes.get(kept.node, root)
    keep = [block for block in lease.blocks if block.node.depth <= node.depth]
    drop = lease.blocks[len(keep) :] + [c for i, c in enumerate(lease.boundaries) if c is not None and i != event.offer]
    lease.blocks, lease.offers, lease.boundaries = keep, [kept], [cell]
    lease.node = max((c.node for c in lease.cells()), key=lambda n: n.depth, default=root)
    unpin_in(state, lease.pools, drop)
    for other in drop:
        unpin(state, other)
    if kept.ready:
        _note_read(state, cell or (lease.blocks[-1] if lease.blocks else None))
        known = state.layouts[lease.layout]
        touch_boundary(state, known, node, kept.residue, [cell] if cell is not None else [])


def _note_read(state: State, cell: Cell | None) -> None:
    """Note of a boundary, or of the block that it ends with, that a look-up has read it, which weighs anew."""
    if cell is not None and cell.marks & (READ | WEIGHED) != READ:
        cell.marks = (cell.marks | READ) & ~WEIGHED
        state.touch(cell)


def lease_ended(state: State, event: LeaseEnded) -> None:
    """End a lease, whoever wanted it."""
    end_lease(state, state.leases[event.lease])


def end_lease(state: State, lease: Lease) -> None:
    """Take a lease's pins away and forget it."""
    del state.leases[lease.id]
    engine = state.engines.get(lease.engine)
    if engine is not None:
        engine.leases.pop(lease.id, None)
    unpin_in(state, lease.pools, lease.cells() if lease.pools else ())
    for cell in reversed(lease.cells()):
        if cell.pins > 1 or (cell.memory and cell.limbo is None):
            cell.pins -= 1  # nothing hangs on this pin, as in nearly all cases
        else:
            unpin(state, cell)
