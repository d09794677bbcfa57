"""``kvledger status``: ask a running daemon how it is."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kvledger import Cache
from kvledger.errors import DamagedError
from kvledger.wire.replies import StatusReport
from kvledgerd.commands.arguments import add_json, add_socket, add_tenant
from kvledgerd.exits import Exit
from kvledgerd.output import say, say_json, table

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("status", help="ask a running daemon how it is", description=__doc__)
    add_socket(parser)
    add_tenant(parser)
    parser.add_argument("--all", action="store_true", help="also what is 0 of a single kind")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    try:
        with Cache.open(Path(arguments.socket), name="kvledger status", tenant=arguments.tenant) as cache:
            report = cache.status()
    except DamagedError as error:
        return _refused(error, as_json=arguments.json)
    if arguments.json:
        say_json(msgspec.structs.asdict(report))
    else:
        _show(report, whole=arguments.all)
    return Exit.DONE


def _refused(error: DamagedError, *, as_json: bool) -> int:
    """Tell of a daemon that holds its memory over a damaged log, which is an answer and no failure to get one."""
    if as_json:
        say_json({"refused": error.message, "remedy": error.remedy})
    else:
        say(f"REFUSED: {error.message}\n  then: {error.remedy}")
    return Exit.DAMAGED


def _show(report: StatusReport, *, whole: bool) -> None:
    # A tenant is told neither: both would tell it of its neighbours.
    say(f"incarnation {report.incarnation}" + f", seq {report.seq}, digest {report.digest}" * bool(report.digest))
    # Most kinds do most of this never, so their zeros would bury what there is to read
    rows = [(name, f"{number:,}") for name, number in report.counters.items() if number or whole or "." not in name]
    table("", ("what", "now"), rows)
    hidden = len(report.counters) - len(rows)
    if hidden:
        say(f"{hidden} numbers of single kinds are 0 and left out; --all shows them")
    for about, why in report.notes.items():
        say(f"{about}: {why}")
