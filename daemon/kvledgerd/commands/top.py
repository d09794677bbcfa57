"""``kvledger top``: what a running daemon does, drawn anew every second: occupancy, hits, work, and what to look into.

Into a pipe it prints one JSON object a look. A daemon that goes away is asked again until it is back.
"""

import argparse
import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from kvledger import Cache
from kvledger.errors import ServiceError
from kvledgerd.commands.arguments import add_socket, count, decimal
from kvledgerd.exits import Exit
from kvledgerd.operators import require_whole
from kvledgerd.output import say_json
from kvledgerd.top.overview import Look, Overview, overview

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("top", help="watch what a running daemon does", description=__doc__)
    add_socket(parser)
    parser.add_argument("--every", type=_seconds, default=1.0, metavar="SECONDS", help="time between looks (default 1)")
    parser.add_argument("--count", type=count, default=0, metavar="N", help="end after N looks (default: at Ctrl-C)")
    parser.add_argument("--json", action="store_true", help="for programs: one JSON object a look, as into a pipe")
    parser.set_defaults(run=_run)


def _seconds(text: str) -> float:
    if not 0.05 <= decimal(text) <= 3600:
        raise argparse.ArgumentTypeError("looks lie 0.05 to 3600 seconds apart")
    return decimal(text)


def _run(arguments: argparse.Namespace) -> int:
    looks = _looks(arguments.socket, arguments.every)
    counted = itertools.islice(looks, arguments.count or None)
    try:
        if arguments.json or not sys.stdout.isatty():
            _write(counted)
        else:
            _draw(counted, arguments.socket)
    except KeyboardInterrupt:
        pass
    return Exit.DONE


def _looks(socket: str, every: float) -> Iterator[Overview | ServiceError]:
    """Yield one look after another, and the error of each that failed; the first one must not fail."""
    before: Look | None = None
    with Cache.open(Path(socket), name="kvledger top") as cache:
        while True:
            try:
                now = Look(time.monotonic(), require_whole(cache.status()), cache.quotas())
            except ServiceError as error:
                yield error
            else:
                yield overview(before, now)
                before = now
            time.sleep(every)


def _write(looks: Iterator[Overview | ServiceError]) -> None:
    for look in looks:
        say_json(look._asdict() if isinstance(look, Overview) else {"error": look.code, "why": str(look)})
        sys.stdout.flush()


def _draw(looks: Iterator[Overview | ServiceError], socket: str) -> None:
    from rich.live import Live  # noqa: PLC0415  costs 50 ms that other commands need not pay

    from kvledgerd.top.drawing import draw, lost  # noqa: PLC0415  as above

    with Live(auto_refresh=False, screen=False) as live:
        for look in looks:
            live.update(draw(look) if isinstance(look, Overview) else lost(socket, str(look)), refresh=True)
