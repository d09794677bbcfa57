"""``kvledger quota``: how much memory each kind is sure of, and fixing it.

What an operator does not fix follows the load: memory moves to the kind whose evicted copies are asked for again.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kvledger import Cache
from kvledger.kinds import Kind
from kvledger.wire.quotas import QuotaInfo
from kvledgerd.commands.arguments import add_json, add_socket, add_tenant, kind_named, size
from kvledgerd.exits import Exit
from kvledgerd.output import say_json, table

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("quota", help="how much memory each kind is sure of", description=__doc__)
    parts = parser.add_subparsers(metavar="PART", required=True)
    show = parts.add_parser("show", help="tell the shares of all kinds")
    setting = parts.add_parser("set", help="fix the share of one kind")
    setting.add_argument("kind", metavar="KIND", type=kind_named, help="such as SWA_WINDOW")
    setting.add_argument("bytes", metavar="BYTES", type=size, help="such as 512MiB; 0 leaves it to the load")
    for part in (show, setting):
        add_socket(part)
        add_tenant(part)
        add_json(part)
        part.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    with Cache.open(Path(arguments.socket), name="kvledger quota", tenant=arguments.tenant) as cache:
        wanted = "kind" in arguments
        found = cache.set_quota(arguments.kind, arguments.bytes) if wanted else cache.quotas()
    if arguments.json:
        say_json({"quotas": [msgspec.structs.asdict(one) | {"kind": Kind(one.kind).name} for one in found]})
    else:
        table("", ("kind", "sure of", "fixed", "holds", "in use", "missed tokens"), [_row(one) for one in found])
    return Exit.DONE


def _row(one: QuotaInfo) -> tuple[str, ...]:
    numbers = (one.sure_bytes, one.held_bytes, one.live_bytes, one.missed_tokens)
    sure, held, live, missed = (f"{number:,}" for number in numbers)
    return Kind(one.kind).name, sure, "yes" if one.fixed else "", held, live, missed
