"""Random histories as logs of several frames, and audit databases as plain values that can be compared."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from sqlalchemy import Connection, select

from kvledger_storage import events
from kvledger_storage.audit_sql.database import AuditDatabase, audit_url
from kvledger_storage.audit_sql.rows import TABLES, WatermarkRow
from kvledger_storage.audit_sql.schema import table
from kvledger_storage.log import EventLog, RealLogIO
from kvledger_storage.log.archive import archive_through, retire_through, sealed_ends
from kvledger_storage.log.inspection import load_identity
from kvledgerd.audit.projection import Projection
from kvledgerd.audit.questions.tree import Branch, level_below
from kvledgerd.snapshots.origin import make_floor
from property.device_history import DeviceHistory
from property.test_core_histories import History

__all__ = ["branches_of", "contents", "history_of", "open_database", "project", "retire", "write_frames"]

BEGAN_MS = 1_764_417_600_000
EVENT_MS = 60_000


def history_of(seed: int, steps: int = 160) -> History:
    """Return a random history that has run; odd ones have device pools."""
    history = (History, DeviceHistory)[seed % 2](seed)
    history.run(steps)
    return history


def write_frames(
    raws: Sequence[bytes], data: Path, *, frame: int = 7, first: int = 0, segment_bytes: int = 1 << 20
) -> None:
    """Write events as the log of a data directory or behind it, an event a minute, so many in each frame."""
    written = threading.Condition()
    done = [0]

    def note(seq: int, _: int) -> None:
        with written:
            done[0] = seq
            written.notify()

    with EventLog.open(data / "log", segment_bytes=segment_bytes) as log:
        writer = log.writer(1, note, lambda _: None)
        timed = [_timed(raw, number) for number, raw in enumerate(raws, first)]
        for start in range(0, len(timed), frame):
            last = writer.submit([timed[start : start + frame]], durable=False)
            with written:
                assert written.wait_for(lambda last=last: done[0] >= last, 60)


def retire(data: Path, seq: int) -> int:
    """Archive and retire what lies before the last segment that begins at or before `seq`; return its first event."""
    io, directory = RealLogIO(), data / "log"
    identity = load_identity(io, directory)
    anchor = max(one for one in sealed_ends(io, directory) if one.seq <= seq)
    archive_through(io, directory, identity, anchor)
    make_floor(data, anchor.seq - 1)
    retire_through(io, directory, identity, anchor)
    return anchor.seq


def _timed(raw: bytes, number: int) -> bytes:
    logged = events.decode(raw)
    return events.encode(logged.event, BEGAN_MS + number * EVENT_MS, logged.actor)


def open_database(where: Path | str) -> AuditDatabase:
    """Return a database with its tables."""
    database = AuditDatabase(audit_url(str(where)))
    if not database.exists():
        database.create()
    return database


def project(data: Path, database: AuditDatabase, batch: int = 50) -> Projection:
    """Project a log to its end."""
    projection = Projection(data, database.writing, batch=batch)
    projection.to_end()
    return projection


def contents(database: AuditDatabase) -> dict[str, list[tuple]]:
    """Return all rows of all tables, in the order of their keys; how they came in, the watermarks tell, is left out."""
    found = {}
    with database.reading() as connection:
        for form in TABLES:
            if form.row is not WatermarkRow:
                one = table(form.row)
                rows = connection.execute(select(one).order_by(*(one.c[key] for key in form.key)))
                found[form.name] = [tuple(row) for row in rows]
    return found


def branches_of(connection: Connection, node: int = 0) -> Iterator[Branch]:
    """Yield all branches of the tree behind a block, page by page and level by level."""
    earlier = 0
    while True:
        level = level_below(connection, node, earlier)
        for branch in level.branches:
            yield branch
            if branch.goes_on:
                yield from branches_of(connection, branch.last)
        earlier = level.next
        if not earlier:
            return
