"""Topologies as the log tells them: who captured what, what broke or changed it, and why it ended."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kvledger.counts import counted
from kvledger_storage import events
from kvledgerd.audit.replay import Damage, Moment, moments
from kvledgerd.core.topology.topologies import Topology

__all__ = ["TopologyEntry", "TopologyRecord", "topologies"]


class TopologyEntry(msgspec.Struct, frozen=True):
    """One thing that happened to a topology."""

    seq: int
    time_ms: int
    what: str
    detail: str


class TopologyRecord(msgspec.Struct):
    """One topology.

    Attributes:
        number: Its number.
        engine_id: Engine id of its owner, hexadecimal.
        processes: Processes that may replay its graph, as (pid, start time in clock ticks since boot).
        objects: How many objects it pins, or pinned when it ended.
        entries: What happened to it, in order.
        ended: Why it ended, empty while it stands.
    """

    number: int
    engine_id: str
    processes: list[events.Process]
    objects: int
    entries: list[TopologyEntry]
    ended: str = ""


def topologies(data: Path, damage: Damage | None = None) -> list[TopologyRecord]:
    """Return all topologies of a data directory's log, oldest first; see `moments` for `damage`."""
    found: dict[int, TopologyRecord] = {}
    first = True
    for moment in moments(data, damage):
        if first:
            found |= {one.id: _standing(one) for one in moment.state.topologies.values()}
            first = False
        handler = _HANDLERS.get(type(moment.event))
        if handler is not None:
            handler(found, moment, moment.event)
    return list(found.values())


def _standing(topology: Topology) -> TopologyRecord:
    """Return a topology that was registered before the part of the log that is kept."""
    return TopologyRecord(topology.id, topology.key.hex(), list(topology.processes), len(topology.objects), [])


def _note(found: dict[int, TopologyRecord], moment: Moment, number: int, what: str, detail: str = "") -> TopologyRecord:
    record = found[number]
    record.entries.append(TopologyEntry(moment.seq, moment.time_ms, what, detail))
    return record


def _registered(found: dict[int, TopologyRecord], moment: Moment, event: events.TopologyRegistered) -> None:
    owner = moment.state.engines[event.engine]
    count = len(event.objects)
    found[event.topology] = TopologyRecord(event.topology, owner.key.hex(), list(event.processes), count, [])
    devices = sum(1 for _, _, device in event.objects if device)
    where = f", {devices} of them on its devices" if devices else ""
    detail = f"{counted(count, 'object')}{where}, by engine {event.engine} {owner.name}".strip()
    _note(found, moment, event.topology, "registered", detail)


def _opened(found: dict[int, TopologyRecord], moment: Moment, event: events.RecaptureOpened) -> None:
    _note(found, moment, event.topology, "recapture opened")


def _changed(found: dict[int, TopologyRecord], moment: Moment, event: events.TopologyChanged) -> None:
    before = moment.state.topologies[event.topology].objects
    new = sum(1 for name in event.added if name not in before)
    detail = f"{counted(new, 'object')} added, {len(event.added) - new} at a new address, {len(event.removed)} released"
    record = _note(found, moment, event.topology, "changed", detail)
    record.objects += new - len(event.removed)
    record.processes = list(event.processes)


def _closed(found: dict[int, TopologyRecord], moment: Moment, event: events.RecaptureClosed) -> None:
    _note(found, moment, event.topology, "recapture closed")


def _broken(found: dict[int, TopologyRecord], moment: Moment, event: events.TopologyBroken) -> None:
    _note(found, moment, event.topology, "broken", f"{counted(len(event.objects), 'object')}: {event.reason}")


def _ended(found: dict[int, TopologyRecord], moment: Moment, event: events.TopologyEnded) -> None:
    _note(found, moment, event.topology, "ended", event.reason).ended = event.reason


_HANDLERS: dict[type, Callable[[dict[int, TopologyRecord], Moment, Any], None]] = {
    events.TopologyRegistered: _registered,
    events.RecaptureOpened: _opened,
    events.TopologyChanged: _changed,
    events.RecaptureClosed: _closed,
    events.TopologyBroken: _broken,
    events.TopologyEnded: _ended,
}
