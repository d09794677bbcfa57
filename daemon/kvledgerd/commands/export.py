"""``kvledger export``: the bytes of one prefix as files, with all that the log says of them, for a report of a fault.

OBJECT is the last object of the prefix, as ``kvledger audit objects`` and ``audit reads`` name it: what belongs to the
blocks before it, and to its own place, is written to DIR as it was handed out, one file each, and ``manifest.json``
tells layout, hashes, fingerprints and what does not fit. It reads beside a running daemon and changes nothing.
"""

import argparse
import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

import aiofiles
import msgspec

from kvledger.counts import counted
from kvledger.errors import CallerError
from kvledgerd.audit.names import parse_name
from kvledgerd.checking.prefix_bytes import Prefix, PrefixObject, prefix_bytes
from kvledgerd.commands.arguments import add_data, add_json
from kvledgerd.exits import Exit
from kvledgerd.output import progress, say, say_json
from kvledgerd.sizes import short_bytes

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]

MANIFEST = "manifest.json"


def add(subparsers: "Subparsers") -> None:
    """Declare the command."""
    parser = subparsers.add_parser("export", help="write the bytes of one prefix to files", description=__doc__)
    parser.add_argument("object", metavar="OBJECT", help="the object with which it ends, such as 17.0")
    parser.add_argument("directory", type=Path, metavar="DIR", help="where the files go; a new or an empty directory")
    add_data(parser)
    add_json(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    target: Path = arguments.directory
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CallerError(f"{target} is not empty", field="directory", remedy="name a new directory")
    prefix = prefix_bytes(Path(arguments.data), parse_name(arguments.object))
    target.mkdir(mode=0o700, parents=True, exist_ok=True)  # state of a model tells what its prompt said
    told = asyncio.run(_write(prefix, target))
    wrong = [one for one in told if one.wrong]
    if arguments.json:
        counts = {"objects": len(told), "bytes": sum(one.length for one in told if one.file), "wrong": len(wrong)}
        say_json({"ok": not wrong, "seq": prefix.seq, "position": prefix.position, **counts})
    else:
        _show(prefix, told, target)
    return Exit.DAMAGED if wrong else Exit.DONE


async def _write(prefix: Prefix, target: Path) -> list[PrefixObject]:
    told = []
    while (found := await asyncio.to_thread(next, prefix.objects, None)) is not None:
        one, data = found
        if data is not None:
            one.file = f"{one.name}.bin"
            await _put(target / one.file, data)
        told.append(one)
        progress(counted(len(told), "object"))
    progress("")
    manifest = {
        "log_id": prefix.log_id.hex(),
        "seq": prefix.seq,
        "position": prefix.position,
        "hashes": [prefix.hashes[at : at + 32].hex() for at in range(0, len(prefix.hashes), 32)],
        "layout_digest": prefix.layout.digest.hex(),
        "layout": prefix.layout,
        "objects": told,
    }
    await _put(target / MANIFEST, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    return told


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # a directory that was there may let others in


async def _put(path: Path, data: bytes) -> None:
    async with aiofiles.open(path, "xb", opener=_private) as file:
        await file.write(data)


def _show(prefix: Prefix, told: list[PrefixObject], target: Path) -> None:
    size = short_bytes(sum(one.length for one in told if one.file))
    say(f"{target}: {counted(len(told), 'object')} up to token {prefix.position}, {size}, as of event {prefix.seq}")
    for one in told:
        if one.wrong:
            say(f"  {one.name} ({one.group}): {one.wrong}")
