"""``kvledger audit project``, ``follow`` and ``export``: the audit database made, kept up, and taken elsewhere."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kvledgerd.commands.arguments import add_data, add_json

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add_database"]


def add_database(subparsers: "Subparsers") -> None:
    """Declare the commands."""
    project = subparsers.add_parser("project", help="bring the audit database up to the end of the log")
    project.add_argument("--rebuild", action="store_true", help="make it anew beside the old one, then swap the two")
    project.set_defaults(run=_run, does="project")
    follow = subparsers.add_parser("follow", help="keep the audit database up with the log, until it is stopped")
    follow.set_defaults(run=_run, does="follow")
    export = subparsers.add_parser("export", help="write tables of the audit database, or of the log, as CSV")
    export.add_argument("directory", type=Path, metavar="DIR", help="where the files go, one a table")
    export.add_argument("--table", action="append", metavar="NAME", help="only this table; may be repeated")
    export.set_defaults(run=_run, does="export")
    for parser in (project, follow, export):
        add_data(parser)
        parser.add_argument(
            "--db", default="", metavar="URL", help="audit database (default: audit.db in the data directory)"
        )
        add_json(parser)


def _run(arguments: argparse.Namespace) -> int:
    from kvledgerd.commands import audit_keeping  # noqa: PLC0415  SQL costs 200 ms that other commands need not pay

    return {"project": audit_keeping.project, "follow": audit_keeping.follow, "export": audit_keeping.export}[
        arguments.does
    ](arguments)
