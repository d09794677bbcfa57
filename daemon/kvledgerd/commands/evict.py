"""``kvledger evict``: drop copies by layout, path, position, kind and place; what is leased or pinned stays.

Eviction of what was asked for is no verdict on its worth: nothing is written to disk first, and nothing that goes
counts as missed. ``--dry-run`` tells what would go. It goes on in small steps, so that nobody waits for it.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kvledger import Cache
from kvledger.counts import counted
from kvledger.errors import CallerError
from kvledger.kinds import Kind
from kvledger.wire.evictions import EvictMany
from kvledgerd.commands.arguments import add_json, add_socket, add_tenant, hexadecimal, kind_named, number
from kvledgerd.exits import Exit
from kvledgerd.output import progress, say, say_json, table
from kvledgerd.sizes import short_bytes

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]

_TIERS = {"memory": (True, False), "disk": (False, True), "all": (True, True)}
# Prefixes first: what stands on blocks goes before the blocks do.
_KINDS = (Kind.DISK_PREFIX, *(kind for kind in Kind if kind is not Kind.DISK_PREFIX))
_COUNTED = ("objects", "memory_bytes", "disk_bytes", "leased", "pinned", "busy")


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("evict", help="drop copies, and tell what stays and why", description=__doc__)
    parser.add_argument("--layout", type=hexadecimal, default=b"", metavar="DIGEST", help="of a layout that begins so")
    parser.add_argument("--block", type=hexadecimal, default=b"", metavar="HASH", help="only paths with this block")
    why = "only what belongs to boundaries at this position"
    parser.add_argument("--position", type=number, default=-1, metavar="TOKENS", help=why)
    parser.add_argument("--kind", type=kind_named, default=None, metavar="KIND", help="such as SWA_WINDOW")
    parser.add_argument("--tier", choices=_TIERS, default="memory", help="where copies go (default memory)")
    parser.add_argument("--all", action="store_true", help="of every layout and kind: say so if nothing else is said")
    parser.add_argument("--dry-run", action="store_true", help="change nothing, and tell what would go")
    add_socket(parser)
    add_tenant(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    narrowed = arguments.layout or arguments.block or arguments.position >= 0 or arguments.kind is not None
    if narrowed == arguments.all:
        remedy = "name --layout, --block, --position or --kind, or --all alone"
        raise CallerError("what is to go has to be said", field="evict", remedy=remedy)
    kinds = _KINDS if arguments.kind is None else (arguments.kind,)
    with Cache.open(Path(arguments.socket), name="kvledger evict", tenant=arguments.tenant) as cache:
        found = {kind.name: _evicted(cache, arguments, kind) for kind in kinds}
    total = {name: sum(row[name] for row in found.values()) for name in _COUNTED}
    if arguments.json:
        say_json({"dry_run": arguments.dry_run, **total, "kinds": found})
    else:
        _show(found, total, dry_run=arguments.dry_run)
    return Exit.DONE


def _evicted(cache: Cache, arguments: argparse.Namespace, kind: Kind) -> dict[str, int]:
    """Go through all places for one kind."""
    memory, disk = _TIERS[arguments.tier]
    request = EvictMany(
        kind, arguments.layout, arguments.block, arguments.position, memory, disk, dry_run=arguments.dry_run
    )
    counts = dict.fromkeys(_COUNTED, 0)
    while True:
        reply = cache.evict_many(request)
        for name in _COUNTED:
            counts[name] += getattr(reply, name)
        if not reply.next:
            progress("")
            return counts
        progress(f"{kind.name}: {counted(counts['objects'], 'object')} of {reply.next:,} places")
        request = msgspec.structs.replace(request, after=reply.next)


def _show(found: dict[str, dict[str, int]], total: dict[str, int], *, dry_run: bool) -> None:
    rows = [(kind, *(f"{count:,}" for count in row.values())) for kind, row in found.items() if any(row.values())]
    table("", ("kind", "objects", "in memory", "on disk", "leased", "in a graph", "busy"), rows)
    went = f"{short_bytes(total['memory_bytes'])} in memory, {short_bytes(total['disk_bytes'])} on disk"
    say(f"{counted(total['objects'], 'object')} {'would go' if dry_run else 'went'}: {went}")
    stayed = [(total["leased"], "leased"), (total["pinned"], "read by a captured graph"), (total["busy"], "at work")]
    if any(count for count, _ in stayed):
        say("stayed: " + ", ".join(f"{count:,} {why}" for count, why in stayed if count))
