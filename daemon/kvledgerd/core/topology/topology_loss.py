"""What becomes of topologies when memory that they pin ends all the same: its arena is gone, or its bytes are wrong.

The event that takes the memory away is decided together with one that breaks the topology. A broken topology keeps its
pins, those on the damaged bytes too: its graph may be in the middle of a replay, and nothing may come into the place of
what it reads before its owner has dropped it or captured anew.
"""

from collections.abc import Iterable

from kvledger_storage.events import Event, GraphObject, TopologyBroken, TopologyEnded
from kvledgerd.core.index import Cell, Copy
from kvledgerd.core.state import State

__all__ = ["after_boot", "breaks", "breaks_of", "without_arenas"]


def after_boot(state: State) -> list[Event]:
    """Return the ends of all topologies: their processes have ended with the machine, and pids begin anew."""
    return [TopologyEnded(number, "the machine was booted") for number in state.topologies]


def without_arenas(state: State, arenas: list[int], reason: str) -> list[Event]:
    """Return what becomes of topologies when arenas are gone: those that lost everything end, others are broken."""
    gone = dict.fromkeys(arenas)
    found: list[Event] = []
    for topology in state.topologies.values():
        names = tuple(name for name, one in topology.objects.items() if one.arena in gone)
        if len(names) == len(topology.objects):
            found.append(TopologyEnded(topology.id, f"its memory is gone: {reason}"))
            continue
        lost = tuple(name for name in names if name not in topology.lost)
        if lost:
            found.append(TopologyBroken(topology.id, lost, f"part of its memory is gone: {reason}"))
    return found


def breaks(state: State, copies: Iterable[Copy], reason: str) -> list[Event]:
    """Return what becomes of topologies when memory copies end that they pin; to be decided with whatever ends them."""
    return _breaks(state, [(cell.id, slot, 0) for cell, slot in copies if cell.memory >> slot & 1], reason)


def breaks_of(state: State, cells: Iterable[Cell], reason: str) -> list[Event]:
    """Return what becomes of topologies when whole cells end, in memory and on every device."""
    ending = {cell.id: None for cell in cells}
    pinned = (name for topology in state.topologies.values() for name in topology.objects if name[0] in ending)
    return _breaks(state, list(dict.fromkeys(pinned)), reason)


def _breaks(state: State, names: list[GraphObject], reason: str) -> list[Event]:
    found: list[Event] = []
    for topology in state.topologies.values():
        lost = tuple(n for n in names if n in topology.objects and n not in topology.lost)
        lost = tuple(n for n in lost if topology.objects[n].is_there)
        if lost:
            found.append(TopologyBroken(topology.id, lost, reason))
    return found
