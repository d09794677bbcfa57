"""The two things that recovery does to a log that it accepts: take a torn tail away, and make the rest durable."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from kvledger_storage.log.io import LogIO, publish_file, write_all

if TYPE_CHECKING:
    from pathlib import Path

    from kvledger_storage.log.inspection import Inspection
    from kvledger_storage.log.segment import SegmentScan


class TailRepair(msgspec.Struct, frozen=True, kw_only=True):
    """What was taken off the end of the log; the daemon's first event says so (`LogTailRepaired`).

    Attributes:
        file: Path of the segment.
        offset: Where the tail began.
        seq: First seq that the tail may have held; it is given away anew.
        length: Bytes in the tail, 0 if only the file's length was wrong.
        saved_to: Path of the side file that holds them, empty if there were none.
        rule: Row of the recovery table.
        expected: What should have stood there.
        found: What stood there.
    """

    file: str
    offset: int
    seq: int
    length: int
    saved_to: str
    rule: str
    expected: str
    found: str


def repair_tail(io: LogIO, end: Inspection) -> TailRepair:
    """Save the bytes behind the last whole frame to a side file, durably, then put zeros in their place.

    The zeros become durable with `sync_recovered`, before anything is written over them. Cut short at any moment, the
    repair starts again with what is left: the side file is named by its content, and a half-zeroed tail is still a tail
    that nobody was promised.
    """
    scan, problem = end.last_scan, end.problem
    assert scan is not None
    assert problem is not None
    path = end.directory / end.segments[-1]
    tail = scan.tail()
    saved_to = _save(io, path, scan, tail) if tail else None
    fd = io.open(path)
    try:
        write_all(io, fd, bytes(len(tail)), scan.offset)
        io.truncate(fd, scan.header.size)
        io.preallocate(fd, scan.header.size)
    finally:
        io.close(fd)
    return TailRepair(
        file=str(path),
        offset=scan.offset,
        seq=scan.next_seq,
        length=len(tail),
        saved_to=str(saved_to or ""),
        rule=end.row.name,
        expected=problem.expected,
        found=problem.found,
    )


def _save(io: LogIO, path: Path, scan: SegmentScan, tail: bytes) -> Path:
    digest = blake2b(tail, digest_size=4).hexdigest()
    saved_to = path.with_name(f"{scan.next_seq:020d}-{digest}.tail")
    publish_file(io, saved_to, tail)
    return saved_to


def sync_recovered(io: LogIO, end: Inspection) -> None:
    """Make every frame that recovery accepted durable, so that the next `synced_through` may count them.

    The frames that are not known to be synced are written once more, with the bytes they have. A sync that failed
    before this start has left their pages marked clean, and the kernel would answer a new sync with success without
    having written anything.
    """
    scan = end.last_scan
    assert scan is not None
    fd = io.open(end.directory / end.segments[-1])
    try:
        write_all(io, fd, scan.data[end.unsynced_offset : scan.offset], end.unsynced_offset)
        io.fdatasync(fd)
    finally:
        io.close(fd)
