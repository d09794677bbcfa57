"""The life of an object: reserved, committed, read by whom, written to disk, restored, verified, dropped.

An object is named ``<cell>.<slot>``, as `kvledger audit objects` and `Describe` show it.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Select, select

from kvledger.errors import CallerError
from kvledgerd.audit.names import ObjectName
from kvledgerd.audit.questions.reads import ReadRecord, lease_notes, reads_of
from kvledgerd.audit.questions.tables import CELL, EVENT, GROUP, LAYOUT, OBJECT, OBJECT_EVENT, UNIT, place_text

__all__ = ["Entry", "ObjectLife", "life_of"]


class Entry(msgspec.Struct, frozen=True):
    """One thing that happened."""

    seq: int
    time_ms: int
    actor: str
    what: str
    detail: str


class ObjectLife(msgspec.Struct, frozen=True):
    """What an object was, and all that happened to it.

    Attributes:
        name: ``<cell>.<slot>``.
        model: Model of its layout.
        group: Group of its layout.
        kind: Its kind.
        place: Tokens that it stands for.
        entries: What happened, in order.
    """

    name: str
    model: str
    group: str
    kind: str
    place: str
    entries: list[Entry]


def life_of(connection: Connection, name: ObjectName) -> ObjectLife:
    """Return everything that is told about one object.

    Raises:
        CallerError: there is no such object.
    """
    found = (
        select(OBJECT, LAYOUT.c.model, GROUP.c.name)
        .join(CELL, CELL.c.cell == OBJECT.c.cell)
        .join(LAYOUT, LAYOUT.c.layout == CELL.c.layout)
        .join(GROUP, (GROUP.c.layout == CELL.c.layout) & (GROUP.c.number == OBJECT.c.number))
        .where(OBJECT.c.cell == name.cell, OBJECT.c.slot == name.slot)
    )
    one = connection.execute(found).first()
    if one is None:
        remedy = "list the objects with `kvledger audit objects`"
        raise CallerError(f"the log knows no object {name}", field="object", remedy=remedy)
    place = place_text(one.first_token, one.end_token)
    told = list(connection.execute(_events_of(name)))
    entries = [*_reserved(connection, told), *_own(told), *_reads(connection, name), *_starts(connection, told)]
    entries.sort(key=lambda entry: entry.seq)
    return ObjectLife(str(name), one.model, one.name, one.kind, place, entries)


def _events_of(name: ObjectName) -> Select[Any]:
    return (
        select(OBJECT_EVENT, EVENT.c.time_ms, EVENT.c.actor)
        .join(EVENT, EVENT.c.seq == OBJECT_EVENT.c.seq, isouter=True)
        .where(OBJECT_EVENT.c.cell == name.cell, OBJECT_EVENT.c.slot == name.slot)
        .order_by(OBJECT_EVENT.c.seq, OBJECT_EVENT.c.number)
    )


def _own(told: list[Row[Any]]) -> Iterator[Entry]:
    for row in told:
        yield Entry(row.seq, row.time_ms or 0, row.actor or "", row.what, row.detail)


def _reserved(connection: Connection, told: list[Row[Any]]) -> Iterator[Entry]:
    """Yield when what was committed had been reserved."""
    units = [row.unit for row in told if row.what == "committed"]
    found = (
        select(UNIT.c.seq, UNIT.c.unit, UNIT.c.engine, EVENT.c.time_ms, EVENT.c.actor)
        .join(EVENT, EVENT.c.seq == UNIT.c.seq)
        .where(UNIT.c.unit.in_(units))
    )
    for row in connection.execute(found) if units else ():
        yield Entry(row.seq, row.time_ms, row.actor, "reserved", f"unit {row.unit} of engine {row.engine}")


def _reads(connection: Connection, name: ObjectName) -> Iterator[Entry]:
    """Yield when it was handed out, and what became of the leases."""
    reads = {read.lease: read for read in reads_of(connection, name.cell, name.slot)}
    for read in reads.values():
        where = f"to engine {read.engine} under lease {read.lease}, resume at {read.position}"
        yield Entry(read.seq, read.time_ms, read.actor, _how(read), where)
    for note in lease_notes(connection, list(reads)):
        read = reads[note.lease]
        if note.what == "settled":
            told = f"by engine {read.engine} under lease {note.lease}"
            yield Entry(note.seq, note.time_ms, note.actor, read.how, told)
        elif read.how != "not taken":
            told = f"{note.lease} of engine {read.engine}: {note.reason}"
            yield Entry(note.seq, note.time_ms, note.actor, "lease ended", told)


def _how(read: ReadRecord) -> str:
    """Tell what an offer means to its objects: a single one is read, of several the client keeps one."""
    if read.how == "found on disk":
        return read.how
    return "handed out" if read.is_only else "offered"


def _starts(connection: Connection, told: list[Row[Any]]) -> Iterator[Entry]:
    """Yield the starts of daemons that the object lived through."""
    starts = (
        select(EVENT.c.seq, EVENT.c.time_ms, EVENT.c.actor, EVENT.c.fields)
        .where(EVENT.c.name == "IncarnationStarted")
        .order_by(EVENT.c.seq)
    )
    for row in connection.execute(starts):
        if _is_there([one for one in told if one.seq < row.seq]):
            number = msgspec.json.decode(row.fields)["incarnation"]
            told_of = f"incarnation {number}; memory is verified before use"
            yield Entry(row.seq, row.time_ms, row.actor, "daemon started", told_of)


def _is_there(told: list[Row[Any]]) -> bool:
    """Tell whether an object has a copy behind these events, in memory, on disk or on a device."""
    states = [one.state for one in told if one.state is not None]
    words = [one.what for one in told]
    on_devices = words.count("resident") - words.count("freed") - words.count("lost")
    return bool(states and states[-1] != "VACANT") or on_devices > 0
