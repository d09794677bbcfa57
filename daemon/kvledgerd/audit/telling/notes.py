"""What an event says about single objects, in the words of their lives.

State changes are read off the state whatever event made them; a note puts the event's own words to one, or tells what
changes no state.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kvledger.geometry import BOUNDARY, UnitObject
from kvledger_storage import device_events, disk_events, events
from kvledgerd.core.copies.precisions import Precision
from kvledgerd.core.device_pools.device import Asked
from kvledgerd.core.holdings import Job, OffloadJob, RelocationJob, RestoreJob, Unit
from kvledgerd.core.index import Cell
from kvledgerd.core.state import State
from kvledgerd.core.topology.topologies import Topology

__all__ = ["Held", "Note", "held_by", "notes_of"]

Held = Unit | Asked | Job | Topology | None
"""What an event is about and may end: taken from the state before it."""


class Note(NamedTuple):
    """A word about one object."""

    cell: int
    slot: int
    what: str
    detail: str = ""
    unit: int | None = None
    fingerprint: str | None = None


class Scene(NamedTuple):
    """An event that has been applied: the state behind it, what it was about, and the cells that it changed."""

    state: State
    held: Held
    changed: dict[int, Cell]


def held_by(state: State, event: events.Event) -> Held:
    """Return what an event is about, from the state before it."""
    match event:
        case events.UnitCommitted():
            return state.units[event.unit]
        case device_events.PagesFilled():
            return state.asked[event.unit]
        case events.Offloaded() | events.OffloadFailed() | events.RestoreFinished() | events.Relocated():
            return state.jobs[event.job]
        case disk_events.RestoreOverdue():
            return state.jobs[event.job]
        case events.TopologyEnded():
            return state.topologies[event.topology]
        case _:
            return None


def notes_of(state: State, event: events.Event, held: Held, changed: dict[int, Cell]) -> Iterable[Note]:
    """Return what an event that has been applied says about objects."""
    teller = _TELLERS.get(type(event))
    return () if teller is None else teller(Scene(state, held, changed), event)


def _cell_of(unit: Unit | Asked, item: UnitObject) -> Cell | None:
    node = unit.node_of(item)
    if item.block == BOUNDARY:
        return node.boundary(unit.layout, unit.residue, unit.residue_hash)
    return node.cell(unit.layout)


def _committed(scene: Scene, event: events.UnitCommitted) -> Iterator[Note]:
    unit, dropped = scene.held, dict.fromkeys(event.dropped)
    assert isinstance(unit, Unit)
    for index in unit.missing():
        item, fingerprint = unit.objects[index], unit.prints[index].hex()
        cell = _cell_of(unit, item)
        if index not in dropped:
            assert cell is not None
            told = f"commit {event.commit_id}, fingerprint {fingerprint}"
            yield Note(cell.id, item.slot, "committed", told, unit.id, fingerprint)
        elif cell is not None:
            what = "duplicate differs" if index in event.differing else "duplicate"
            told = f"dropped: commit {event.commit_id} of engine {unit.engine}, fingerprint {fingerprint}"
            yield Note(cell.id, item.slot, what, told, unit.id, fingerprint)


def _filled(scene: Scene, event: device_events.PagesFilled) -> Iterator[Note]:
    asked, dropped = scene.held, dict.fromkeys(event.dropped)
    assert isinstance(asked, Asked)
    for order, index in enumerate(asked.missing()):
        cell = asked.cell_of(asked.objects[index])
        if index not in dropped and cell is not None:
            fp64 = int.from_bytes(event.prints[8 * order : 8 * order + 8], "little")
            where = f"in device pool {asked.pool} of engine {asked.engine}"
            told = f"{where}, commit {event.commit_id}, fp64 {fp64:016x}"
            yield Note(cell.id, asked.objects[index].slot, "resident", told, asked.id, f"{fp64:016x}")


def _freed(_: Scene, event: device_events.DeviceFreed) -> Iterator[Note]:
    for cell, slot in event.objects:
        yield Note(cell, slot, "freed", f"from device pool {event.pool}: {event.reason}")


def _evicted(scene: Scene, event: events.ObjectsEvicted) -> Iterator[Note]:
    where = " and ".join(name for name, on in (("memory", event.memory), ("disk", event.disk)) if on)
    for number, slot in event.objects:
        cell = scene.changed.get(number)
        in_vain = "; no boundary ever stood on it" if cell is not None and not cell.used else ""
        yield Note(number, slot, "dropped", f"from {where}: {event.reason}{in_vain}")


def _verified(_: Scene, event: events.ObjectsVerified) -> Iterator[Note]:
    for cell, slot in event.right:
        yield Note(cell, slot, "verified", "its bytes are the committed ones")
    for cell, slot in event.wrong:
        yield Note(cell, slot, "quarantined", "its bytes in memory are not the committed ones")


def _offload_started(_: Scene, event: events.OffloadStarted) -> Iterator[Note]:
    precisions = event.precisions or (0,) * len(event.objects)
    for (cell, slot), precision in zip(event.objects, precisions, strict=True):
        yield Note(cell, slot, "offloading", f"job {event.job}, {event.reason}{_as(precision)}")


def _offloaded(scene: Scene, event: events.Offloaded) -> Iterator[Note]:
    assert isinstance(scene.held, OffloadJob)
    if scene.held.void:
        return  # its objects have become invalid
    precisions = scene.held.precisions or (0,) * len(event.blobs)
    for (cell, slot), (segment, offset, _), precision in zip(scene.held.objects, event.blobs, precisions, strict=True):
        yield Note(cell.id, slot, "on disk", f"segment {segment} at {offset}{_as(precision)}")


def _as(precision: int) -> str:
    return f", as {Precision(precision).name.lower()}" if precision else ""


def _offload_failed(scene: Scene, event: events.OffloadFailed) -> Iterator[Note]:
    assert isinstance(scene.held, OffloadJob)
    for cell, slot in () if scene.held.void else scene.held.objects:
        yield Note(cell.id, slot, "offload failed", event.error)


def _restore_started(_: Scene, event: events.RestoreStarted) -> Iterator[Note]:
    for cell, slot in event.objects:
        yield Note(cell, slot, "restoring", f"job {event.job}")


def _restored(scene: Scene, event: events.RestoreFinished) -> Iterator[Note]:
    assert isinstance(scene.held, RestoreJob)
    if scene.held.void:
        return  # what it brought was dropped: its objects are invalid, or it came too late
    prints = dict(event.prints)
    for index, ((cell, slot), error) in enumerate(zip(scene.held.objects, event.errors, strict=True)):
        failed = "quarantined" if error.startswith("damaged") else "restore failed"
        made, told = prints.get(index, b"").hex(), "verified against its fingerprint"
        if made:
            told = f"an approximation, made from its quantised record, fingerprint {made}"
        yield Note(cell.id, slot, failed if error else "restored", error or told)


def _records_damaged(_: Scene, event: disk_events.RecordsDamaged) -> Iterator[Note]:
    for cell, slot, why in event.records:
        if slot != disk_events.MANIFEST:
            yield Note(cell, slot, "record damaged", f"found by {event.found}: {why}")


def _records_moved(_: Scene, event: disk_events.RecordsMoved) -> Iterator[Note]:
    for cell, slot, segment, offset in event.records:
        if slot != disk_events.MANIFEST:
            yield Note(cell, slot, "record moved", f"from segment {event.segment} to segment {segment} at {offset}")


def _restore_overdue(scene: Scene, event: disk_events.RestoreOverdue) -> Iterator[Note]:
    assert isinstance(scene.held, RestoreJob)
    for cell, slot in scene.held.objects:
        yield Note(cell.id, slot, "restore given up", event.error)


def _relocated(scene: Scene, event: events.Relocated) -> Iterator[Note]:
    job = scene.held
    assert isinstance(job, RelocationJob)
    for (cell, slot), (arena, offset), outcome in zip(job.objects, job.places, event.outcomes, strict=True):
        moved = f"to arena {arena} at {offset}"
        yield Note(cell.id, slot, "move dropped" if outcome else "moved", outcome or moved)


def _pinned(_: Scene, event: events.TopologyRegistered) -> Iterator[Note]:
    for name in dict.fromkeys(one[:2] for one in event.objects):
        yield Note(*name, "pinned", f"by topology {event.topology} of engine {event.engine}")


def _topology_changed(_: Scene, event: events.TopologyChanged) -> Iterator[Note]:
    told = f"by topology {event.topology}, captured anew"
    added = dict.fromkeys(one[:2] for one in event.added)
    for name in added:
        yield Note(*name, "pinned", told)
    for name in dict.fromkeys(one[:2] for one in event.removed if one[:2] not in added):
        yield Note(*name, "released", told)


def _topology_broken(_: Scene, event: events.TopologyBroken) -> Iterator[Note]:
    for name in dict.fromkeys(one[:2] for one in event.objects):
        yield Note(*name, "broken", f"under topology {event.topology}: {event.reason}")


def _topology_ended(scene: Scene, event: events.TopologyEnded) -> Iterator[Note]:
    assert isinstance(scene.held, Topology)
    for name in dict.fromkeys(one[:2] for one in scene.held.objects):
        yield Note(*name, "released", f"by topology {event.topology}: {event.reason}")


_TELLERS: dict[type, Callable[[Scene, Any], Iterable[Note]]] = {
    events.UnitCommitted: _committed,
    device_events.PagesFilled: _filled,
    device_events.DeviceFreed: _freed,
    events.ObjectsEvicted: _evicted,
    events.ObjectsVerified: _verified,
    events.OffloadStarted: _offload_started,
    events.Offloaded: _offloaded,
    events.OffloadFailed: _offload_failed,
    events.RestoreStarted: _restore_started,
    events.RestoreFinished: _restored,
    disk_events.RecordsDamaged: _records_damaged,
    disk_events.RecordsMoved: _records_moved,
    disk_events.RestoreOverdue: _restore_overdue,
    events.Relocated: _relocated,
    events.TopologyRegistered: _pinned,
    events.TopologyChanged: _topology_changed,
    events.TopologyBroken: _topology_broken,
    events.TopologyEnded: _topology_ended,
}
