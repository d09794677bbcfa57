"""``kvledger disk``: what the data segments hold, an index made from them alone, and the scrubber.

`scan` reads segments by their own headers and needs neither log nor daemon; `rebuild` makes a log that knows of what
was found, for weights that somebody vouches for. Both change nothing unless `rebuild --write` is said.
"""

import argparse
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from kvledger import Cache
from kvledger.counts import counted
from kvledger.errors import CallerError
from kvledger.kinds import Kind
from kvledger.layout import Layout
from kvledger_storage.disk import RecordType
from kvledgerd.commands.arguments import add_data, add_json, add_socket
from kvledgerd.exits import Exit
from kvledgerd.output import progress, say, say_json, table
from kvledgerd.salvage.events import Rebuilt, rebuilt_events
from kvledgerd.salvage.rebuild import write_log
from kvledgerd.salvage.segments import Found, read_segments
from kvledgerd.sizes import short_bytes

if TYPE_CHECKING:
    from kvledgerd.commands.arguments import Subparsers

__all__ = ["add"]


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """What a scan found, for programs.

    Attributes:
        ok: Whether all segments were read and nothing in them is damaged.
        log_id: Log whose records these are, hexadecimal.
        segments: Segments that were read to their end.
        segments_in_all: Segments that there are.
        bytes: Bytes of those that were read.
        records: Kind to number of sound records, dead ones included; manifests are of the kind DISK_PREFIX.
        layouts: Digest, tenant, model and weights of each layout that a manifest tells.
        damage: Segment, offset, length and what is wrong of each damaged run.
    """

    ok: bool
    log_id: str
    segments: int
    segments_in_all: int
    bytes: int
    records: dict[str, int]
    layouts: list[tuple[str, str, str, str]]
    damage: list[tuple[int, int, int, str]]


def add(subparsers: "Subparsers") -> None:
    """Declare the command with its parts."""
    parser = subparsers.add_parser("disk", help="scan data files, rebuild an index, scrub", description=__doc__)
    parts = parser.add_subparsers(metavar="PART", required=True)
    scan = parts.add_parser("scan", help="what the data files hold, by their own headers")
    scan.set_defaults(run=_scan)
    build = parts.add_parser("rebuild", help="make a log from the data files, where the log is lost")
    build.add_argument("--weights", action="append", default=[], metavar="DIGEST", help="vouch for these weights")
    build.add_argument("--all-weights", action="store_true", help="vouch for all weights that are found")
    build.add_argument("--write", action="store_true", help="write the log; without it only tell what it would hold")
    build.set_defaults(run=_rebuild)
    for part in (scan, build):
        add_data(part)
        part.add_argument("--verify", action="store_true", help="read all bytes and compare them with fingerprints")
    scrub = parts.add_parser("scrub", help="pause the scrubber, let it go on, or start a pass")
    deed = scrub.add_mutually_exclusive_group(required=True)
    deed.add_argument("--pause", action="store_true", help="read nothing until told, restarts included")
    deed.add_argument("--resume", action="store_true", help="go on")
    deed.add_argument("--now", action="store_true", help="go on, and begin a pass at once")
    add_socket(scrub)
    scrub.set_defaults(run=_scrub)
    for part in (scan, build, scrub):
        add_json(part)


def _read(arguments: argparse.Namespace) -> Found:
    def tell(found: Found) -> None:
        progress(f"segment {found.segments} of {found.of}, {counted(len(found.records), 'record')}")

    try:
        return read_segments(Path(arguments.data), verify=arguments.verify, progress=tell)
    finally:
        progress("")


def _scan(arguments: argparse.Namespace) -> int:
    found = _read(arguments)
    told = _told(found)
    if arguments.json:
        say_json(told)
    else:
        _show(told, verified=arguments.verify)
    return Exit.DONE if told.ok else Exit.DAMAGED


def _told(found: Found) -> Scan:
    kinds = Counter(_kind(key.kind) for key, _ in found.records)
    return Scan(
        ok=found.segments == found.of and not found.damage,
        log_id=found.log_id.hex(),
        segments=found.segments,
        segments_in_all=found.of,
        bytes=found.size,
        records=dict(sorted(kinds.items())),
        layouts=[(d.hex(), tenant, one.model, one.weights_digest) for d, (tenant, one) in found.layouts.items()],
        damage=[(run.segment, run.offset, run.length, run.why) for run in found.damage],
    )


def _kind(number: int) -> str:
    return Kind(number).name if number in Kind.__members__.values() else str(number)


def _show(told: Scan, *, verified: bool) -> None:
    rest = "" if told.segments == told.segments_in_all else f" of {told.segments_in_all}, interrupted"
    size = f"{counted(told.segments, 'segment')}{rest}, {short_bytes(told.bytes)}"
    say(f"log {told.log_id}: {size}; records are dead and alive")
    say("all bytes were compared with their fingerprints" if verified else "only headers were read; --verify reads all")
    table("", ("kind", "records"), told.records.items())
    if told.layouts:
        table("", ("layout", "tenant", "model", "weights"), told.layouts)
    if told.damage:
        table("damage", ("segment", "offset", "bytes", "what"), told.damage)


def _rebuild(arguments: argparse.Namespace) -> int:
    found = _read(arguments)
    if found.segments < found.of:
        raise CallerError("the scan was interrupted", field="data", remedy="let it end: half an index is none")

    def vouched(layout: Layout) -> bool:
        return arguments.all_weights or layout.weights_digest in arguments.weights

    made = rebuilt_events(found, vouched)
    if arguments.write:
        write_log(Path(arguments.data), found.log_id, made, time.time_ns() // 1_000_000)
    _say_rebuilt(arguments, found, made)
    return Exit.DONE


def _say_rebuilt(arguments: argparse.Namespace, found: Found, made: Rebuilt) -> None:
    manifests = sum(1 for cell in made.state.cells.values() if cell.manifest is not None)
    left = len(found.records) - made.state.objects - manifests
    numbers = {
        "written": arguments.write,
        "layouts": len(made.state.layouts),
        "prefixes": manifests,
        "objects": made.state.objects,
        "bytes": made.state.disk_bytes,
        "records_left": left,
        "manifests": sum(1 for key, _ in found.records if key.record_type is RecordType.MANIFEST),
    }
    if arguments.json:
        say_json(numbers)
        return
    table("", ("what", "number"), numbers.items())
    if not (Path(arguments.data) / "secret").exists():
        say("there is no secret: without it no prompt has the hashes that these records bear, and all of it is misses")
    if not arguments.write:
        say("nothing was written; say --write, with the log moved aside, to make the log")


def _scrub(arguments: argparse.Namespace) -> int:
    with Cache.open(Path(arguments.socket), name="kvledger disk") as cache:
        cache.set_scrub(paused=arguments.pause, now=arguments.now)
        counters = cache.status().counters
    numbers = {name: number for name, number in counters.items() if name.startswith("scrub_")}
    if arguments.json:
        say_json(numbers)
    else:
        table("", ("what", "number"), numbers.items())
    return Exit.DONE
