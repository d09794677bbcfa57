"""``kvledger tenants``: what each tenant has of memory and disk, and what it may have at most; for operators."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kvledger import Cache
from kvledger.wire.tenants import TenantInfo
from kvledgerd.commands.arguments import add_json, add_socket
from kvledgerd.exits import Exit
from kvledgerd.output import say_json, table

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]

_COLUMNS = ("tenant", "engines", "leases", "layouts", "objects", "memory", "of", "disk", "of")


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("tenants", help="what each tenant has", description=__doc__)
    add_socket(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    with Cache.open(Path(arguments.socket), name="kvledger tenants") as cache:
        found = cache.tenants()
    if arguments.json:
        say_json({"tenants": [msgspec.structs.asdict(one) for one in found]})
    else:
        table("", _COLUMNS, [_row(one) for one in found])
    return Exit.DONE


def _row(one: TenantInfo) -> tuple[str, ...]:
    name, *numbers = msgspec.structs.astuple(one)
    return name, *(f"{number:,}" for number in numbers)
