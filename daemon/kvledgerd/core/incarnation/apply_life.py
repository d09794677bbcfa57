"""Applying events about incarnations, engines, layouts and arenas."""

from kvledger.geometry import bits
from kvledger.kinds import Kind
from kvledger_storage.events import (
    ArenaAdded,
    ArenaDropped,
    ArenaRequested,
    EngineEntered,
    EngineHeard,
    EngineLeft,
    IncarnationStarted,
    IncarnationStopped,
    LayoutRegistered,
)
from kvledgerd.core.device_pools.device_structure import end_pool
from kvledgerd.core.epoch.apply_epochs import retire_owned
from kvledgerd.core.holdings import ArenaJob, Engine, OffloadJob, RelocationJob, RestoreJob
from kvledgerd.core.index import ARENA, Cell, Tree, new_node
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.lookup.apply_leases import end_lease
from kvledgerd.core.placement.apply_memory import prepare_orders
from kvledgerd.core.placement.pools import Arena
from kvledgerd.core.state import State
from kvledgerd.core.structure import drop_memory, ensure_pool, give, give_place, settle_cell, unpin
from kvledgerd.core.transitions import Happening
from kvledgerd.core.units.apply_units import give_up_unit, release_unit

__all__ = [
    "arena_added",
    "arena_dropped",
    "arena_requested",
    "engine_entered",
    "engine_heard",
    "engine_left",
    "incarnation_started",
    "incarnation_stopped",
    "layout_registered",
]


def incarnation_started(state: State, event: IncarnationStarted) -> None:
    """End everything that could not outlive the older incarnation; what stays in memory is unverified.

    Topologies outlive it, and their pins with them.
    """
    for lease in list(state.leases.values()):
        end_lease(state, lease)
    for unit in list(state.units.values()):
        unit.jobs.clear()
        release_unit(state, unit)
    for pool in [pool for pool in state.device_pools.values() if pool.engine]:
        end_pool(state, pool)
    for job in list(state.jobs.values()):
        _end_job(state, job.id)
    for engine in state.engines:
        retire_owned(state, engine)
    state.engines.clear()
    state.outcomes.clear()
    state.endings.clear()
    for cell in state.cells.values():
        cell.unverified = cell.memory
    state.incarnation, state.boot_id, state.log_id = event.incarnation, event.boot_id, event.log_id
    state.serial = event.serial
    state.growth_failed = state.stopped = False
    state.degraded = ""


def incarnation_stopped(state: State, event: IncarnationStopped) -> None:
    """Note that an incarnation ended in order."""
    del event
    state.stopped = True


def _end_job(state: State, number: int) -> None:
    job = state.jobs.pop(number)
    if isinstance(job, ArenaJob):
        del state.arenas[job.arena]
        return
    for index, (cell, slot) in enumerate(job.objects):
        if isinstance(job, OffloadJob) and not job.void:
            cell.move(slot, Happening.OFFLOAD_FAILED)
        elif isinstance(job, RestoreJob):
            _give_back(state, job, index)
        elif isinstance(job, RelocationJob):
            give_place(state, job, index)
        state.touch(cell)
        unpin(state, cell)
    if isinstance(job, OffloadJob):
        unpin(state, job.boundary)


def _give_back(state: State, job: RestoreJob, index: int) -> None:
    give_place(state, job, index)
    if not job.void:
        cell, slot = job.objects[index]
        cell.move(slot, Happening.RESTORE_FAILED)
        del state.restoring[cell.id, slot]


def engine_entered(state: State, event: EngineEntered) -> None:
    """Let an engine in."""
    state.next_engine = event.engine + 1
    engine = Engine(event.engine, event.key, event.tenant, event.uid, event.pid, event.name)
    state.engines[event.engine] = engine


def engine_heard(state: State, event: EngineHeard) -> None:
    """Mark an engine silent or heard."""
    state.engines[event.engine].silent = event.silent


def engine_left(state: State, event: EngineLeft) -> None:
    """Release what an engine held, and retire what it stored without naming its weights."""
    engine = state.engines[event.engine]
    for number in list(engine.leases):
        end_lease(state, state.leases[number])
    for number in list(engine.units):
        give_up_unit(state, state.units[number])
    for number in list(engine.pools):
        end_pool(state, state.device_pools[number])
    retire_owned(state, event.engine)
    del state.engines[event.engine]


def layout_registered(state: State, event: LayoutRegistered) -> None:
    """Make a layout known, and its tree if it is the first of its index key.

    An unpinned one is its engine's alone, so the engine is part of its name.
    """
    key = state.tree_key(event.tenant, event.layout)
    if key not in state.tree_numbers:
        number = len(state.trees) + 1
        state.trees[number] = Tree(number, key, new_node(0, None, b""))
        state.tree_numbers[key] = number
    tree = state.trees[state.tree_numbers[key]]
    epoch = state.epochs[event.epoch]
    state.layouts[event.number] = KnownLayout(event.number, event.tenant, event.layout, tree, epoch)
    state.layout_numbers[event.tenant, event.layout.digest, epoch.engine] = event.number
    state.next_layout = event.number + 1
    prepare_orders(state, event.tenant)
    state.toggle("layout", event.number, event.tenant, event.layout.digest)


def arena_requested(state: State, event: ArenaRequested) -> None:
    """Count an arena that is being made."""
    state.serial = max(state.serial, event.job + 1)
    state.next_arena = event.arena + 1
    state.arenas[event.arena] = Arena(event.arena, event.tenant, event.kind, event.bytes)
    state.jobs[event.job] = ArenaJob(event.job, event.arena)


def arena_added(state: State, event: ArenaAdded) -> None:
    """Let an arena join its pool."""
    del state.jobs[event.job]
    arena = state.arenas[event.arena]
    arena.ready = True
    ensure_pool(state, arena.tenant, arena.kind).add(arena)
    state.toggle("arena", arena.id, arena.tenant, int(arena.kind), arena.bytes)


def arena_dropped(state: State, event: ArenaDropped) -> None:
    """Drop an arena with the copies in it, or one that could not be made."""
    arena = state.arenas[event.arena]
    if not arena.ready:
        for job in [j for j in state.jobs.values() if isinstance(j, ArenaJob) and j.arena == arena.id]:
            del state.jobs[job.id]
        del state.arenas[arena.id]
        state.growth_failed = True
        return
    for cell in list(state.cells.values()):
        _drop_from(state, cell, arena.id)
    state.pools[arena.tenant, arena.kind].remove(arena.id)
    del state.arenas[arena.id]
    state.toggle("arena", arena.id, arena.tenant, int(arena.kind), arena.bytes)


def _drop_from(state: State, cell: Cell, arena: int) -> None:
    """Drop copies with their arena; a pin keeps nothing of it, since nothing is left that could be kept."""
    mask = sum(1 << slot for slot in bits(cell.memory) if cell.word(slot, ARENA) == arena)
    drop_memory(state, [(cell, mask)])
    for number, offset, length, kind in cell.limbo or ():
        if number == arena:
            give(state, state.layouts[cell.layout], Kind(kind), number, offset, length)
    cell.limbo = [extent for extent in cell.limbo or () if extent[0] != arena] or None
    settle_cell(state, cell)
