"""``kvledger warm``: bring prefixes back from disk ahead of need, those used most recently first.

It takes memory that is free, evicts nothing, and goes on behind the command; ``kvledger status`` shows how far it is.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kvledger import Cache
from kvledger.counts import counted
from kvledgerd.commands.arguments import add_json, add_socket, add_tenant, hexadecimal, size
from kvledgerd.exits import Exit
from kvledgerd.output import say, say_json

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("warm", help="bring prefixes back from disk ahead of need", description=__doc__)
    parser.add_argument("--layout", type=hexadecimal, default=b"", metavar="DIGEST", help="of a layout that begins so")
    parser.add_argument("--block", type=hexadecimal, default=b"", metavar="HASH", help="only paths with this block")
    parser.add_argument("--bytes", type=size, default=0, metavar="BYTES", help="at most so much, such as 4GiB")
    add_socket(parser)
    add_tenant(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    with Cache.open(Path(arguments.socket), name="kvledger warm", tenant=arguments.tenant) as cache:
        found = cache.warm(layout=arguments.layout, block=arguments.block, size=arguments.bytes)
    if arguments.json:
        say_json(msgspec.structs.asdict(found))
    else:
        total = counted(found.total, "prefix", "prefixes")
        say(f"begun, {total} on disk; kvledger status tells how far it is (warm_seen)")
    return Exit.DONE
