"""Applying events about topologies and their recapture windows."""

from collections.abc import Iterable

from kvledger_storage.events import (
    GraphObject,
    RecaptureClosed,
    RecaptureOpened,
    TopologyBroken,
    TopologyChanged,
    TopologyEnded,
    TopologyRegistered,
)
from kvledgerd.core.device_pools.device_structure import hold, release_hold
from kvledgerd.core.index import Cell
from kvledgerd.core.state import State
from kvledgerd.core.structure import pin, unpin
from kvledgerd.core.topology.topologies import Held, Topology, held

__all__ = [
    "recapture_closed",
    "recapture_opened",
    "topology_broken",
    "topology_changed",
    "topology_ended",
    "topology_registered",
]


def topology_registered(state: State, event: TopologyRegistered) -> None:
    """Pin what a captured graph reads."""
    owner = state.engines[event.engine]
    topology = Topology(event.topology, owner.key, owner.tenant, owner.uid, event.processes)
    state.serial = max(state.serial, event.topology + 1)
    state.topologies[topology.id] = topology
    _take(state, topology, event.objects, ())
    state.toggle(*topology.facts())


def recapture_opened(state: State, event: RecaptureOpened) -> None:
    """Let a topology change."""
    _set_recapturing(state, event.topology, recapturing=True)


def recapture_closed(state: State, event: RecaptureClosed) -> None:
    """Let a topology change no more."""
    _set_recapturing(state, event.topology, recapturing=False)


def _set_recapturing(state: State, number: int, *, recapturing: bool) -> None:
    topology = state.topologies[number]
    state.toggle(*topology.facts())
    topology.recapturing = recapturing
    state.toggle(*topology.facts())


def topology_changed(state: State, event: TopologyChanged) -> None:
    """Pin what was added, and then let go of what was removed."""
    topology = state.topologies[event.topology]
    state.toggle(*topology.facts())
    topology.processes = event.processes
    _take(state, topology, event.added, event.removed)
    state.toggle(*topology.facts())


def _take(state: State, topology: Topology, added: tuple[GraphObject, ...], removed: tuple[GraphObject, ...]) -> None:
    before = topology.cells()
    left = [one for name in (*removed, *added) if (one := topology.objects.pop(name, None)) is not None]
    for name in (*removed, *added):
        topology.lost.pop(name, None)
    for number, slot, device in added:
        pool = state.device_pools[device] if device else None
        topology.objects[number, slot, device] = held(state.cells[number], slot, pool)
        if pool is not None:
            hold(pool, state.cells[number], slot)
    after = topology.cells()
    for cell in _without(after, before):
        pin(cell)
    for cell in _without(before, after):
        unpin(state, cell)
    _let_go(state, left)


def _let_go(state: State, objects: Iterable[Held]) -> None:
    """Take the holds on devices away; what only they kept goes with them."""
    for one in objects:
        if one.pool is not None:
            release_hold(state, one.pool, one.cell, one.slot)


def _without(cells: list[Cell], others: list[Cell]) -> list[Cell]:
    known = {cell.id: None for cell in others}
    return [cell for cell in cells if cell.id not in known]


def topology_broken(state: State, event: TopologyBroken) -> None:
    """Note which objects are no longer what was registered; their pins stay, so that nothing comes in their place."""
    topology = state.topologies[event.topology]
    state.toggle(*topology.facts())
    topology.lost |= dict.fromkeys(event.objects)
    state.toggle(*topology.facts())


def topology_ended(state: State, event: TopologyEnded) -> None:
    """Let go of everything."""
    topology = state.topologies.pop(event.topology)
    state.toggle(*topology.facts())
    for cell in reversed(topology.cells()):
        unpin(state, cell)
    _let_go(state, topology.objects.values())
