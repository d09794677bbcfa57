"""Keeping the audit database: made, followed and exported by commands, each a process of its own beside the daemon."""

import argparse
import contextlib
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Final

from kvledger.counts import counted
from kvledger.errors import ServiceError
from kvledger_storage.audit_sql.database import AuditDatabase
from kvledger_storage.log import LogRotError
from kvledgerd.audit.export import export_tables
from kvledgerd.audit.projection import Projection
from kvledgerd.audit.questions.asking import asking, named_database
from kvledgerd.audit.rebuilding import rebuild
from kvledgerd.commands.damage import damaged
from kvledgerd.exits import Exit
from kvledgerd.output import progress, say, say_json

__all__ = ["export", "follow", "project"]

_POLL_SECONDS: Final = 0.5
"""How late an event may come into the database; each look at an idle log reads its newest segment once."""
_NICE: Final = 10
_RETRY_SECONDS: Final = 5.0
"""How long a follower waits for a database that does not answer."""


def project(arguments: argparse.Namespace) -> int:
    """Bring the database up to the end of the log, or make it anew."""
    data = Path(arguments.data)
    database = named_database(data, arguments.db)
    try:
        with database.lock():
            projection = rebuild(data, database, _projected_to) if arguments.rebuild else _once(data, database)
    except LogRotError as error:
        return damaged(error.problem)
    finally:
        progress("")
        database.close()
    if arguments.json:
        say_json({"seq": projection.seq, "taken_back": projection.taken_back, "ok": _end(projection) == Exit.DONE})
    else:
        say(f"the audit database holds the log through event {projection.seq}")
    return _end(projection)


def _once(data: Path, database: AuditDatabase) -> Projection:
    if not database.exists():
        database.create()
    projection = Projection(data, database.writing)
    projection.to_end(_projected_to)
    projection.look_for_damage()
    return projection


def _end(projection: Projection) -> int:
    """Say what is wrong with the log, if anything is, and return the exit code."""
    return Exit.DONE if projection.problem is None else damaged(projection.problem)


def follow(arguments: argparse.Namespace) -> int:
    """Keep the database up with the log until a signal comes."""
    data, stop = Path(arguments.data), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    database = named_database(data, arguments.db)
    try:
        return _followed(data, database, stop)
    except LogRotError as error:
        return damaged(error.problem)
    finally:
        database.close()


def _followed(data: Path, database: AuditDatabase, stop: threading.Event) -> int:
    """Follow until it is stopped or the log is damaged; a database that does not answer is waited for.

    Its lock may have gone meanwhile, and somebody else may have it, so it is taken anew each time.
    """
    locked = False
    while not stop.is_set():
        try:
            with database.lock():
                if not locked:
                    _go_last()
                locked = True
                projection = _once(data, database)
                progress("")
                say(f"following {data / 'log'} from event {projection.seq}")
                sys.stdout.flush()
                _watch(projection, data, stop)
        except ServiceError as error:
            if not locked:
                raise
            sys.stderr.write(f"kvledger: {error}; trying again in {_RETRY_SECONDS:.0f} s\n")
            stop.wait(_RETRY_SECONDS)
        else:
            return _end(projection)
    return Exit.DONE


def _go_last() -> None:
    """Let whoever serves go first."""
    with contextlib.suppress(PermissionError):  # a unit has its own
        os.nice(_NICE)


def _watch(projection: Projection, data: Path, stop: threading.Event) -> None:
    """Tell what comes, until it is stopped or the log is damaged."""
    seen = 0
    while projection.problem is None and not stop.wait(_POLL_SECONDS):
        written = _newest(data / "log")
        # Something was written and tells nothing: that may be damage.
        if written != seen and not projection.to_end():
            projection.look_for_damage()
        seen = written


def _newest(directory: Path) -> int:
    """Return when the log was last written to, in nanoseconds."""
    found = 0
    for path in directory.glob("*.seg"):
        with contextlib.suppress(FileNotFoundError):  # archived since it was listed
            found = max(found, path.stat().st_mtime_ns)
    return found


def export(arguments: argparse.Namespace) -> int:
    """Write tables as CSV."""
    with asking(Path(arguments.data), arguments.db) as asked:
        counts = export_tables(asked.connection, arguments.directory, arguments.table)
    if arguments.json:
        say_json({"as_of": asked.seq, "rows": counts})
    else:
        for name, count in counts.items():
            say(f"{arguments.directory / name}.csv: {counted(count, 'row')}")
        say(f"as of event {asked.seq}")
    return Exit.DONE if asked.problem is None else damaged(asked.problem)


def _projected_to(seq: int) -> None:
    progress(f"projected through event {seq}")
