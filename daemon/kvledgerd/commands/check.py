"""``kvledger check``: whether every invariant holds, of a data directory and of the daemon that serves from it.

Replays the log and walks the state that it makes, and compares the records on disk with it. With --socket the running
daemon is checked as well: its digest, and the generations in its arenas. --deep reads all bytes.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kvledger import Cache
from kvledger.counts import counted
from kvledger.wire.replies import StatusReport
from kvledger_storage.log import LogRotError
from kvledgerd.checking.checks import Checked, check
from kvledgerd.commands.arguments import add_data, add_json
from kvledgerd.commands.damage import damaged
from kvledgerd.exits import Exit
from kvledgerd.operators import require_whole
from kvledgerd.output import say, say_json
from kvledgerd.settings.table import Config

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("check", help="check every invariant, offline or live", description=__doc__)
    add_data(parser)
    default = Config().socket
    parser.add_argument(
        "--socket",
        nargs="?",
        const=default,
        metavar="PATH",
        help=f"check the daemon that answers there as well (without PATH: {default})",
    )
    parser.add_argument("--deep", action="store_true", help="read all bytes and compare them with their fingerprints")
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    live = _ask(Path(arguments.socket)) if arguments.socket is not None else None
    try:
        found = check(Path(arguments.data), live, deep=arguments.deep)
    except LogRotError as error:
        return damaged(error.problem)
    if arguments.json:
        say_json(found)
    else:
        _show(found)
    return Exit.DONE if found.ok else Exit.DAMAGED


def _ask(socket: Path) -> StatusReport:
    with Cache.open(socket, name="kvledger check") as cache:
        return require_whole(cache.status())


def _show(found: Checked) -> None:
    objects = counted(found.objects, "object")
    say(f"{'ok' if found.ok else 'VIOLATED'}: seq {found.seq}, digest {found.digest}, {objects}")
    for text in found.violations:
        say(f"  {text}")
    for text in found.unchecked:
        say(f"  not checked: {text}")
