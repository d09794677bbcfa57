"""Decisions about device pools as a whole: registration, being found again after a restart, and the end."""

from kvledger.counts import counted
from kvledger.device_regions import regions
from kvledger.errors import CallerError, LimitError, NotFoundError, ServiceError
from kvledger.wire.replies import Done, PoolRegistered
from kvledger.wire.requests import DropPool, RegisterPool
from kvledger_storage.device_events import DevicePoolAdded, DevicePoolEnded, DevicePoolTaken
from kvledgerd.core.commands import Ask
from kvledgerd.core.decision import Ack, Decision
from kvledgerd.core.device_pools.device import DevicePool
from kvledgerd.core.holdings import Engine
from kvledgerd.core.lookup.identity import differences
from kvledgerd.core.receipts import find_layout, find_pool
from kvledgerd.core.state import State

__all__ = ["drop_pool", "register_pool"]


def register_pool(state: State, ask: Ask, request: RegisterPool) -> Decision:
    """Let an engine set pages aside, or give it back what a topology kept of them."""
    known = find_layout(state, ask.caller, request.layout)
    # What a graph reads is taken back while its weights drain: look-ups of them go on hitting.
    (known.epoch.require_usable if request.pool else known.epoch.require_commits)(known.layout)
    if known.layout.strict_provenance:
        wrong = "of what lies on a device nobody knows which rows it belongs to"
        raise CallerError(wrong, field="layout", remedy="use a layout without strict_provenance for device pools")
    engine = state.engines[ask.caller.engine]
    event = DevicePoolAdded(
        request.pool or state.next_arena,
        engine.number,
        known.number,
        request.device,
        request.memory,
        request.address,
        request.size,
        tuple(request.pages),
        request.rank,
    )
    regions(known.layout, request.address, request.pages, request.size)
    if len(engine.pools) >= state.config.max_device_pools:
        wrong = f"{len(engine.pools)} pools are registered"
        raise LimitError(wrong, field="max_device_pools", remedy="drop one of them, or make one larger")
    _refuse_twice(state, engine, event)
    if not request.pool:
        return Decision((event,), PoolRegistered(event.pool), Ack.WRITTEN)
    kept = _find_kept(state, engine, event)
    return Decision((DevicePoolTaken(kept.id, engine.number),), PoolRegistered(kept.id, len(kept.copies)), Ack.WRITTEN)


def _refuse_twice(state: State, engine: Engine, event: DevicePoolAdded) -> None:
    """Refuse memory in which another pool lies: each would overwrite what the other's objects are.

    So it is with a pool of which only a topology keeps something, until its engine has registered that one again.
    """
    for pool in state.device_pools.values():
        other = pool.added
        if pool.known.tenant != engine.tenant or other.device != event.device or pool.id == event.pool:
            continue
        here = range(event.address, event.address + event.bytes)
        there = range(other.address, other.address + other.bytes)
        mine = pool.engine == engine.number if pool.engine else pool.key == engine.key
        overlap = mine and max(here.start, there.start) < min(here.stop, there.stop)
        if overlap or other.memory == event.memory:
            _refuse_memory(state, pool, event)


def _refuse_memory(state: State, pool: DevicePool, event: DevicePoolAdded) -> None:
    asked = state.layouts[event.layout].layout
    differing = "; ".join(differences(pool.known.layout, asked)) if pool.known.number != event.layout else ""
    how = f" under another layout ({differing[:480]})" if differing else ""
    if not (pool.engine or pool.key):
        wrong = f"leases or topologies on a retired layout still read part of this memory, as device pool {pool.id}"
        raise CallerError(wrong + how, field="memory", remedy="release the hits and drop the topologies first")
    if not pool.engine:
        wrong, remedy = f"a topology keeps part of this memory as device pool {pool.id}", "register it as that pool"
        raise CallerError(wrong + how, field="memory", remedy=f"{remedy}, or drop the topology first")
    raise CallerError(
        f"this memory of {event.device} is device pool {pool.id} of engine {pool.engine}{how}",
        field="memory",
        remedy="set memory aside once, and use the pool that is there; drop it before its memory gets another layout",
    )


def _find_kept(state: State, engine: Engine, event: DevicePoolAdded) -> DevicePool:
    """Return the pool that a topology kept for this engine; memory, address and regions have to be the same."""
    pool = state.device_pools.get(event.pool)
    if pool is None or pool.engine or pool.key != engine.key or pool.known.tenant != engine.tenant:
        remedy = "register it as a new one; only what a topology keeps is found again, by the engine with the same id"
        raise NotFoundError(f"no device pool {event.pool} waits for this engine", field="pool", remedy=remedy)
    for name in ("layout", "device", "memory", "address", "bytes", "pages", "rank"):
        before, now = getattr(pool.added, name), getattr(event, name)
        if before != now:
            remedy = "what a captured graph reads lies where it lay; register the same memory, or a new pool"
            raise CallerError(f"it was {before!r} and is {now!r}", field=name, remedy=remedy)
    return pool


def drop_pool(state: State, ask: Ask, request: DropPool) -> Decision:
    """Take a pool back unless something there is in use."""
    pool = find_pool(state, ask.caller, request.pool)
    asked = sum(1 for one in state.asked.values() if one.pool == pool.id)
    if pool.pins or pool.held or asked:
        raise ServiceError(
            f"device pool {pool.id} is in use: leases cover {counted(len(pool.pins), 'cell')}, "
            f"{counted(asked, 'unit')} being filled, topologies keep {counted(len(pool.held), 'copy', 'copies')}",
            field="pool",
            remedy="release hits, fill or give up what was asked for, and drop topologies first",
        )
    return Decision((DevicePoolEnded(pool.id, "dropped by its engine"),), Done(), Ack.WRITTEN)
