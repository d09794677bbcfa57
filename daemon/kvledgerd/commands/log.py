"""``kvledger log``: what the log holds and whether it can be trusted; also of a damaged or a running one."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kvledger_storage.events import decode
from kvledger_storage.log import RealLogIO, VerifyReport, read_events, verify
from kvledgerd.audit.replay import log_directory
from kvledgerd.commands.output import moment, say, say_json
from kvledgerd.commands.places import add_data
from kvledgerd.exits import Exit

if TYPE_CHECKING:
    from kvledgerd.commands.serve import Subparsers

__all__ = ["add"]


def add(subparsers: "Subparsers") -> None:
    """Declare the command with its parts."""
    parser = subparsers.add_parser("log", help="verify and show the log", description=__doc__)
    parts = parser.add_subparsers(metavar="PART", required=True)
    check = parts.add_parser("verify", help="read all of it and say whether a daemon would start on it")
    check.set_defaults(run=_verify)
    show = parts.add_parser("cat", help="print its events")
    show.add_argument("--from", dest="first", type=int, default=1, metavar="SEQ", help="first event (default 1)")
    show.add_argument("--to", dest="last", type=int, default=None, metavar="SEQ", help="last event")
    show.set_defaults(run=_cat)
    for part in (check, show):
        add_data(part)
        part.add_argument("--json", action="store_true", help="for programs: JSON, one object a line")


def _verify(arguments: argparse.Namespace) -> int:
    report = verify(log_directory(Path(arguments.data)))
    if arguments.json:
        say_json(report)
    else:
        _show(report)
    return Exit.DONE if report.ok else Exit.DAMAGED


def _show(report: VerifyReport) -> None:
    say(f"{'ok' if report.ok else 'DAMAGED'}: log {report.log_id}, seq {report.first_seq} to {report.last_seq}, ")
    say(f"{report.frames} frames in {report.segments} segments")
    if report.problem is not None:
        for name, value in msgspec.structs.asdict(report.problem).items():
            say(f"  {name.replace('_', ' ')}: {value}")


def _cat(arguments: argparse.Namespace) -> int:
    directory = log_directory(Path(arguments.data))
    for logged in read_events(RealLogIO(), directory, from_seq=arguments.first, through_seq=arguments.last):
        entry = decode(logged.event)
        name = type(entry.event).__name__
        fields = {f: getattr(entry.event, f) for f in entry.event.__struct_fields__}
        if arguments.json:
            say_json(
                {"seq": logged.seq, "time_ms": entry.time_ms, "actor": entry.actor, "event": name, **_plain(fields)}
            )
        else:
            said = " ".join(f"{key}={_short(value)}" for key, value in fields.items())
            say(f"{logged.seq:>8} {moment(entry.time_ms)} {entry.actor:<12} {name} {said}")
    return Exit.DONE


def _plain(value: object) -> dict[str, object]:
    plain: dict[str, object] = msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=str)
    return {key: _hexed(item) for key, item in plain.items()}


def _hexed(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, list | tuple):
        return [_hexed(item) for item in value]
    if isinstance(value, dict):
        return {key: _hexed(item) for key, item in value.items()}
    return value


def _short(value: object) -> str:
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= 80 else f"{text[:64]}... ({len(text)} characters)"
