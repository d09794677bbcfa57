"""``kvledger bench``: measure this machine, each row beside its floor or peer, and say which goals are met."""

import argparse
import logging
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kvledger.errors import CallerError
from kvledgerd import logs
from kvledgerd.commands.arguments import add_json, count
from kvledgerd.exits import Exit
from kvledgerd.output import say_json

if TYPE_CHECKING:
    from kvledgerd.bench.figures import Measured
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("bench", help="measure, beside floors and peers", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="only these groups of rows (default: all)")
    add_json(parser)
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write figures and measurements to this file")
    parser.add_argument("--clients", type=count, metavar="N", help="connections of the row of many clients")
    parser.add_argument("--objects", type=count, metavar="N", help="objects of the rows about recovery and memory")
    parser.add_argument("--trace", metavar="FILE", help="a request trace for the rows about hit rates")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    if find_spec("crc32c") is None:
        raise CallerError("the extra [daemon] is missing", field="bench", remedy="pip install 'kvledger[daemon]'")
    from kvledgerd.bench.contents import WrongAnswerError  # noqa: PLC0415  other commands need not pay for it

    logs.configure(json=False, level=logging.WARNING)
    if arguments.out is not None:
        arguments.out.open("ab").close()  # now, since what took an hour to measure must not be lost to a wrong name
    try:
        measured = _measure(arguments)
    except WrongAnswerError as error:
        sys.stderr.write(f"kvledger bench: wrong answers have no speed: {error}\n")
        return Exit.FAULT
    _report(measured, arguments)
    return Exit.DONE


def _measure(arguments: argparse.Namespace) -> list["Measured"]:
    from kvledgerd.bench.registry import BENCHES  # noqa: PLC0415  as above
    from kvledgerd.bench.scale import FULL  # noqa: PLC0415  as above

    unknown = [name for name in arguments.rows if name not in BENCHES]
    if unknown:
        remedy = f"name some of {', '.join(BENCHES)}"
        raise CallerError(f"there is no row {unknown[0]!r}", field="rows", remedy=remedy)
    asked = {"clients": arguments.clients, "objects": arguments.objects, "trace": arguments.trace}
    scale = replace(FULL, **{name: value for name, value in asked.items() if value is not None})
    measured: list[Measured] = []
    for name in dict.fromkeys(arguments.rows) or BENCHES:
        sys.stderr.write(f"measuring {name} ...\n")
        measured += BENCHES[name](scale)
    return measured


def _report(measured: list["Measured"], arguments: argparse.Namespace) -> None:
    from kvledgerd.bench.figures import figure_of, spread_of  # noqa: PLC0415  as above
    from kvledgerd.bench.report import show  # noqa: PLC0415  as above

    figures = [figure_of(row) for row in measured]
    spreads = [spread_of(row) for row in measured]
    show(figures, spreads)
    if arguments.out is not None:
        arguments.out.write_bytes(msgspec.json.encode({"rows": figures, "measurements": spreads}) + b"\n")
    if arguments.json:
        say_json({"rows": figures})
