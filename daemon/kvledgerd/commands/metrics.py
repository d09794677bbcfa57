"""``kvledger metrics``: the daemon's numbers for Prometheus, printed once or served."""

import argparse
import contextlib
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kvledgerd.commands.arguments import add_socket, add_tenant
from kvledgerd.exits import Exit
from kvledgerd.metrics.exporter import serve_metrics
from kvledgerd.metrics.exposition import exposition
from kvledgerd.output import say
from kvledgerd.web.source import Source

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("metrics", help="the daemon's numbers for Prometheus", description=__doc__)
    add_socket(parser)
    add_tenant(parser)
    parser.add_argument(
        "--listen", default="", metavar="PORT|PATH", help="serve them on this port of loopback, or at this Unix socket"
    )
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    source = Source(Path(arguments.socket), "kvledger metrics", arguments.tenant)
    with contextlib.closing(source):
        if not arguments.listen:
            report = source.report()
            sys.stdout.write(exposition(report))
            return Exit.DONE if report is not None else Exit.UNAVAILABLE
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(Exit.DONE))
        with contextlib.suppress(KeyboardInterrupt):
            serve_metrics(arguments.listen, source, _ready)
    return Exit.DONE


def _ready(where: str) -> None:
    say(f"metrics at {where}")
    sys.stdout.flush()
