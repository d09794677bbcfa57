"""What can happen to topologies, as it stands in the log: the part of `kvledger_storage.events` about them.

Objects are named (cell, slot), as everywhere in the log, and by the device pool in which the graph reads them; where
they lie there and under which generation is what the state at the event tells.
"""

import msgspec

__all__ = [
    "GraphObject",
    "Process",
    "RecaptureClosed",
    "RecaptureOpened",
    "TopologyBroken",
    "TopologyChanged",
    "TopologyEnded",
    "TopologyRegistered",
]

GraphObject = tuple[int, int, int]
"""Cell, slot, and the device pool in which its copy lies; 0 for the one in memory."""
Process = tuple[int, int]
"""Process id, and start time of the process in clock ticks since the machine was booted."""


class _TopologyEvent(msgspec.Struct, frozen=True, array_like=True):
    """Base of these events."""


class TopologyRegistered(_TopologyEvent, frozen=True, tag="topology_registered.1"):
    """An engine captured a graph that reads objects in place; each keeps its address until the topology ends.

    Attributes:
        topology: Its number.
        engine: Who captured; whoever shows the same engine id under the same tenant and uid owns it from now on.
        processes: Processes of the engine; the topology ends when all of them have.
        objects: What the graph reads.
    """

    topology: int
    engine: int
    processes: tuple[Process, ...]
    objects: tuple[GraphObject, ...]


class RecaptureOpened(_TopologyEvent, frozen=True, tag="recapture_opened.1"):
    """The engine does not replay the graph of a topology for now; the topology may change."""

    topology: int


class TopologyChanged(_TopologyEvent, frozen=True, tag="topology_changed.1"):
    """A topology pins other objects.

    Attributes:
        topology: Its number.
        processes: Processes of the engine, those that were named before included.
        added: Objects that it pins from now on, and those that it pins at another address than before.
        removed: Objects that it pins no longer.
    """

    topology: int
    processes: tuple[Process, ...]
    added: tuple[GraphObject, ...]
    removed: tuple[GraphObject, ...]


class RecaptureClosed(_TopologyEvent, frozen=True, tag="recapture_closed.1"):
    """The engine has captured anew; the topology stays as it is."""

    topology: int


class TopologyBroken(_TopologyEvent, frozen=True, tag="topology_broken.1"):
    """Objects of a topology are no longer what was registered; their memory is not reused while it lasts."""

    topology: int
    objects: tuple[GraphObject, ...]
    reason: str


class TopologyEnded(_TopologyEvent, frozen=True, tag="topology_ended.1"):
    """A topology pins nothing any more."""

    topology: int
    reason: str
