"""``kvledger log``: what the log holds and whether it can be trusted; also of a damaged or a running one.

On a damaged log each part first prints what is safe, then what is wrong and what to do about it, and ends with 65.
"""

import argparse
import sys
import time
from collections.abc import Iterable
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from kvledger.counts import counted
from kvledger_storage.events import decode
from kvledger_storage.log import LoggedEvent, LogRotError, RealLogIO, VerifyReport, read_events, verify
from kvledgerd.audit.past import Past, past_at
from kvledgerd.audit.plain import plain_fields
from kvledgerd.audit.replay import log_directory
from kvledgerd.checking.whole import verify_data
from kvledgerd.commands.arguments import add_data, number
from kvledgerd.commands.damage import damaged
from kvledgerd.exits import Exit
from kvledgerd.output import moment, progress, say, say_json, table
from kvledgerd.sizes import short_bytes
from kvledgerd.snapshots.make import make_snapshot

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]

_DECISIONS: Final = {
    "clean": "serve",
    "repair_tail": "set the torn end aside and serve",
    "refuse": "refuse and hold the memory",
}

# How late a new event may be shown; each look reads the newest segment once.
_POLL_SECONDS: Final = 0.3


def add(subparsers: "Subparsers") -> None:
    """Declare the command with its parts."""
    parser = subparsers.add_parser("log", help="verify, show, follow and replay the log", description=__doc__)
    parts = parser.add_subparsers(metavar="PART", required=True)
    check = parts.add_parser("verify", help="read all of it and say whether a daemon would start on it")
    check.set_defaults(run=_verify)
    show = parts.add_parser("cat", help="print its events")
    show.add_argument("--from", dest="first", type=number, default=1, metavar="SEQ", help="first event (default 1)")
    show.add_argument("--to", dest="last", type=number, default=None, metavar="SEQ", help="last event")
    show.set_defaults(run=_cat)
    follow = parts.add_parser("tail", help="print its last events, and new ones as they come")
    follow.add_argument("--lines", type=number, default=10, metavar="N", help="events to begin with (default 10)")
    follow.add_argument("--to", dest="last", type=number, default=None, metavar="SEQ", help="end after this event")
    follow.set_defaults(run=_tail)
    past = parts.add_parser("replay", help="what the cache was after an event of the past")
    past.add_argument("--at", type=number, default=None, metavar="SEQ", help="that event (default: the last one)")
    past.set_defaults(run=_replay)
    anew = parts.add_parser("rebuild", help="make the snapshot anew from the log alone, whatever snapshots there are")
    anew.set_defaults(run=_rebuild)
    for part in (check, show, follow, past, anew):
        add_data(part)
        part.add_argument("--json", action="store_true", help="for programs: JSON, one object a line")


def _verify(arguments: argparse.Namespace) -> int:
    found = verify_data(Path(arguments.data), progress)
    progress("")
    if arguments.json:
        say_json(msgspec.structs.asdict(found.log) | {"snapshots": found.snapshots})
    else:
        _show(found.log, found.snapshots)
    return Exit.DONE if found.log.ok else Exit.DAMAGED


def _show(report: VerifyReport, snapshots: list[str]) -> None:
    span = f"seq {report.first_seq} to {report.last_seq}" if report.frames else "no event that can be read"
    verdict = f"{'ok' if report.ok else 'DAMAGED'}: log {report.log_id or 'of an unknown id'}, {span}"
    size = f"{counted(report.frames, 'frame')} in {counted(report.segments, 'segment')}"
    say(f"{verdict}, {size}; a start would {_DECISIONS[report.decision]}")
    if report.problem is not None:
        for line in (report.problem.headline, *report.problem.details):
            say(f"  {line}")
    for line in snapshots:
        say(f"  snapshot passed over, which costs a longer start: {line}; next: kvledger log rebuild")


def _cat(arguments: argparse.Namespace) -> int:
    directory = log_directory(Path(arguments.data))
    events = read_events(RealLogIO(), directory, from_seq=arguments.first, through_seq=arguments.last)
    try:
        following = _print(events, as_json=arguments.json)
    except LogRotError as error:
        return damaged(error.problem)
    if arguments.last is not None and following > arguments.last:
        return Exit.DONE
    return _end(directory, arguments.last if following else arguments.first)


def _end(directory: Path, asked: int | None = None) -> int:
    """Judge the end: reading stops in silence at a frame that may be on its way, and only the whole log tells."""
    report = verify(directory)
    if report.problem is not None and not report.ok:
        return damaged(report.problem)
    # The first event is asked for where none was named, also of a log that has none yet.
    return Exit.DONE if asked is None or asked <= max(report.last_seq, 1) else _missing(asked, report.last_seq)


def _missing(seq: int, last: int) -> int:
    sys.stderr.write(f"kvledger: there is no event {seq}: the log ends at {last}; name an earlier one\n")
    return Exit.USAGE


def _tail(arguments: argparse.Namespace) -> int:
    directory = log_directory(Path(arguments.data))
    report = verify(directory)
    last = 1 << 63 if arguments.last is None else arguments.last
    seq, seen = max(report.first_seq, min(report.last_seq, last) - arguments.lines + 1, 1), 0
    try:
        while True:
            now = _newest(directory)
            if now != seen:
                events = read_events(RealLogIO(), directory, from_seq=seq)
                asked = takewhile(lambda logged: logged.seq <= last, events)
                seq = _print(asked, as_json=arguments.json) or seq
                seen = now
            if seq > last:
                return Exit.DONE
            if report.problem is not None and not report.ok:
                return damaged(report.problem)
            time.sleep(_POLL_SECONDS)
    except LogRotError as error:
        return damaged(error.problem)
    except KeyboardInterrupt:
        return Exit.DONE


def _newest(directory: Path) -> int:
    """Return when the log was last written to, in nanoseconds."""
    return max((path.stat().st_mtime_ns for path in directory.glob("*.seg")), default=0)


def _replay(arguments: argparse.Namespace) -> int:
    directory = log_directory(Path(arguments.data))
    past = past_at(Path(arguments.data), arguments.at, _replayed_to)
    progress("")
    if arguments.json:
        say_json(past)
    else:
        _show_past(past)
    if past.problem is not None:
        return damaged(past.problem)
    code = _end(directory) if past.seq != arguments.at else Exit.DONE
    if code == Exit.DONE and arguments.at is not None and past.seq != arguments.at:
        return _missing(arguments.at, past.seq)
    return code


def _rebuild(arguments: argparse.Namespace) -> int:
    directory = log_directory(Path(arguments.data))
    try:
        snapshot = make_snapshot(Path(arguments.data), from_log=True)
    except LogRotError as error:
        return damaged(error.problem)
    found = {"seq": 0, "digest": "", "bytes": 0}
    if snapshot is not None:
        found = {"seq": snapshot.seq, "digest": f"{snapshot.digest:016x}", "bytes": len(snapshot.body)}
    if arguments.json:
        say_json(found)
    else:
        size = short_bytes(len(snapshot.body) if snapshot is not None else 0)
        say(f"snapshot after seq {found['seq']}, digest {found['digest']}, {size}")
    return _end(directory)


def _replayed_to(seq: int) -> None:
    progress(f"replayed to seq {seq}")


def _show_past(past: Past) -> None:
    if not past.seq:
        say("no event can be replayed")
        return
    say(f"seq {past.seq}, {moment(past.time_ms)} UTC, incarnation {past.incarnation}, digest {past.digest}")
    held = ", ".join(f"{name} {count}" for name, count in past.held.items())
    say(f"{held}; {short_bytes(past.arena_bytes)} of arenas, {short_bytes(past.disk_bytes)} on disk")
    rows = [(kind, state, count) for kind, states in past.objects.items() for state, count in states.items()]
    table("objects", ("kind", "state", "objects"), rows)


def _print(events: Iterable[LoggedEvent], *, as_json: bool) -> int:
    """Print events and return the seq that follows the last one, 0 if there was none."""
    following = 0
    for logged in events:
        entry = decode(logged.event)
        name = type(entry.event).__name__
        fields = {f: getattr(entry.event, f) for f in entry.event.__struct_fields__}
        following = logged.seq + 1
        if as_json:
            say_json(
                {
                    "seq": logged.seq,
                    "time_ms": entry.time_ms,
                    "actor": entry.actor,
                    "event": name,
                    **plain_fields(entry.event),
                }
            )
        else:
            said = " ".join(f"{key}={_short(value)}" for key, value in fields.items())
            say(f"{logged.seq:>8} {moment(entry.time_ms)} {entry.actor:<12} {name} {said}")
    sys.stdout.flush()
    return following


def _short(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= 80 else f"{text[:64]}... ({len(text)} characters)"
