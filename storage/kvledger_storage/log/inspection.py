"""Reading a whole log without changing it, and judging how it ends.

Recovery and `verify` both stand on this one pass, so what an operator is told about a damaged log is what the daemon
would decide about it. Memory use is one segment at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from kvledger_storage.log.archive import all_segments, read_segment
from kvledger_storage.log.beginning import BEGIN_NAME, Beginning, original, read_beginning
from kvledger_storage.log.errors import FrameError, LogRotError, LogVersionError, Problem
from kvledger_storage.log.identity import ID_NAME, Identity, decode_identity
from kvledger_storage.log.io import LogIO, read_file
from kvledger_storage.log.mark import read_mark
from kvledger_storage.log.recovery import Decision, Facts, Row, judge
from kvledger_storage.log.segment import (
    End,
    SegmentHeader,
    SegmentScan,
    decode_segment_header,
    first_seq_of,
    segment_name,
    segment_names,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kvledger_storage.log.frame import FrameHeader

Progress: TypeAlias = "Callable[[int, int], object]"
"""Takes how many segments were read, of how many."""

RUN_NEXT = {
    Decision.CLEAN: "nothing",
    Decision.REPAIR_TAIL: "start the daemon, which saves these bytes to a side file and goes on",
    Decision.REFUSE: "copy the directory, check the disk, restore this file from a backup; "
    "or start with --on-corrupt=quarantine, which sets this log aside and begins a new one that names it",
}


@dataclass(kw_only=True)
class Inspection:
    """What one pass over a log found.

    Attributes:
        directory: The log's directory.
        identity: The log that was expected there.
        mark: Last synced seq according to the mark.
        next_seq: The seq that would come next; all before it are whole.
        chain: The chain that the next frame would name.
        begins: Where the log begins on disk.
        frames: Number of whole frames.
        segments: Names of the segments that were to be read, in order.
        last_frame: Header of the last whole frame, None in an empty log.
        last_scan: The scan of the last segment that was read, None if there was none.
        unsynced_offset: Offset in the last segment behind which no frame is known to be synced.
        row: The row of the recovery table that judged the end.
        problem: What is damaged; None if the log is clean.
    """

    directory: Path
    identity: Identity
    mark: int
    next_seq: int
    chain: bytes
    begins: Beginning
    frames: int = 0
    segments: list[str] = field(default_factory=list)
    last_frame: FrameHeader | None = None
    last_scan: SegmentScan | None = None
    unsynced_offset: int = 0
    row: Row
    problem: Problem | None = None

    @property
    def first_seq(self) -> int:
        """The first event that was to be read."""
        return first_seq_of(self.segments[0]) if self.segments else self.begins.live.seq

    @property
    def last_seq(self) -> int:
        """The last whole event."""
        return self.next_seq - 1


def silent(_read: int, _total: int) -> None:
    """Tell nobody."""


def inspect_log(
    io: LogIO,
    directory: Path,
    identity: Identity,
    boot_id: bytes,
    *,
    archive: bool = False,
    progress: Progress = silent,
) -> Inspection:
    """Read every frame of the log once and judge its end.

    The mark is read first: if a daemon is writing meanwhile, it can then only say too little.

    Args:
        io: The operating system.
        directory: The log's directory.
        identity: The log that is expected there.
        boot_id: This boot of the machine.
        archive: Read what was archived as well; recovery does not.
        progress: Told before each segment.

    Raises:
        LogVersionError: A part of the log was written by a newer kvledger.
    """
    mark = read_mark(io, directory, identity.log_id)
    try:
        begins, damaged = read_beginning(io, directory, identity), None
    except FrameError as error:
        begins, damaged = original(identity), error
    first = begins.kept if archive else begins.live
    found = Inspection(
        directory=directory,
        identity=identity,
        mark=mark,
        next_seq=first.seq,
        chain=first.chain,
        begins=begins,
        segments=[name for name in all_segments(io, directory) if first_seq_of(name) >= first.seq],
        row=judge(Facts(End.BREAK, sealed=False, behind=False, covered=False, same_boot=False)),
    )
    if damaged is not None:
        found.problem = _describe(found, directory / BEGIN_NAME, damaged)
        return found
    if not found.segments:
        absent = FrameError("first segment", 0, "a segment", "no such file")
        found.problem = _describe(found, directory / segment_name(first.seq), absent)
    for number, name in enumerate(found.segments):
        progress(number, len(found.segments))
        if not _read_segment(io, found, name, boot_id):
            break
    return found


def load_identity(io: LogIO, directory: Path) -> Identity | None:
    """Return the identity in the id file; None if no log was ever completed here.

    Raises:
        LogRotError: The id is damaged, or gone although there are frames.
        LogVersionError: The data format is newer than this code.
    """
    path = directory / ID_NAME
    try:
        return decode_identity(read_file(io, path))
    except LogVersionError as error:
        raise LogVersionError(path, "data format version", error.found, error.supported) from None
    except FileNotFoundError as error:
        if not has_frames(io, directory):
            return None
        absent = FrameError("id file", 0, "the log's identity", "no such file")
        raise _identity_rot(path, absent) from error
    except FrameError as error:
        raise _identity_rot(path, error) from error


def _identity_rot(path: Path, error: FrameError) -> LogRotError:
    return LogRotError(
        Problem(
            file=str(path),
            offset=error.offset,
            seq=0,
            rule="identity",
            because="the id is replaced whole, so a crash leaves the old one or the new one",
            expected=f"{error.field}: {error.expected}",
            found=error.found,
            lost="which log this is, so nothing in it can be continued",
            safe="the events, as far as `kvledger log cat` shows them",
            run_next=RUN_NEXT[Decision.REFUSE],
        )
    )


def has_frames(io: LogIO, directory: Path) -> bool:
    """Tell whether any segment holds more than its header, which a creation that was cut short never leaves."""
    for name in segment_names(io.names(directory)):
        data = read_file(io, directory / name)
        try:
            scan = SegmentScan(data, decode_segment_header(data))
        except FrameError:
            return True
        if list(scan) or scan.problem:
            return True
    return False


def _read_segment(io: LogIO, found: Inspection, name: str, boot_id: bytes) -> bool:
    """Read one segment into `found`; return whether the next one is to be read."""
    path, data = read_segment(io, found.directory, name)
    sealed = name != found.segments[-1]
    try:
        header = _checked_header(found, path, data)
    except FrameError as error:
        found.row = judge(Facts(End.BREAK, sealed, behind=False, covered=False, same_boot=False))
        found.problem = _missing(found, data, name) or _describe(found, path, error)
        return False
    scan = SegmentScan(data, header)
    found.last_scan, found.unsynced_offset = scan, scan.offset
    _read_frames(found, scan)
    found.row = judge(_facts(found, scan, sealed, boot_id))
    if found.row.decision is not Decision.CLEAN:
        missing = FrameError("frame", scan.offset, f"seq {found.next_seq}, synced through {found.mark}", "zeros")
        found.problem = _describe(found, path, scan.problem or missing)
    return found.problem is None


def _read_frames(found: Inspection, scan: SegmentScan) -> None:
    starts: list[tuple[int, int]] = []
    for offset, frame in scan:
        found.frames += 1
        found.last_frame = frame.header
        starts.append((offset, frame.header.last_seq))
    found.next_seq, found.chain = scan.next_seq, scan.chain
    synced = max(found.mark, found.last_frame.synced_through if found.last_frame else 0)
    found.unsynced_offset = next((offset for offset, last_seq in starts if last_seq > synced), scan.offset)


def _checked_header(found: Inspection, path: Path, data: bytes) -> SegmentHeader:
    """Return the segment's header if it continues the log.

    Raises:
        FrameError: It is damaged, of another log, or does not follow what stands before it.
    """
    try:
        header = decode_segment_header(data)
    except LogVersionError as error:
        raise LogVersionError(path, "data format version", error.found, error.supported) from None
    if header.log_id != found.identity.log_id:
        raise FrameError("log id", 0, found.identity.log_id.hex(), header.log_id.hex())
    if header.first_seq != found.next_seq:
        raise FrameError("first seq of the segment", 0, str(found.next_seq), str(header.first_seq))
    if segment_name(header.first_seq) != path.name:
        raise FrameError("file name", 0, segment_name(header.first_seq), path.name)
    if header.previous_chain != found.chain:
        raise FrameError("previous chain", 0, found.chain.hex(), header.previous_chain.hex())
    return header


def _missing(found: Inspection, data: bytes, name: str) -> Problem | None:
    """Return the problem if the segment is a whole one of this log and only the one before it is not there."""
    try:
        header = decode_segment_header(data)
    except FrameError:
        return None
    if header.log_id != found.identity.log_id or segment_name(header.first_seq) != name:
        return None
    if header.first_seq <= found.next_seq:
        return None
    absent = segment_name(found.next_seq)
    error = FrameError("segment", 0, f"the one that begins with seq {found.next_seq}", f"no such file before {name}")
    return _describe(found, found.directory / absent, error)


def _facts(found: Inspection, scan: SegmentScan, sealed: bool, boot_id: bytes) -> Facts:  # noqa: FBT001  a fact
    later = list(scan.later_headers()) if scan.end is End.BAD else []
    return Facts(
        end=scan.end,
        sealed=sealed,
        behind=bool(later),
        covered=any(synced >= scan.next_seq for synced in (found.mark, *(header.synced_through for header in later))),
        same_boot=any(header.boot_id == boot_id for header in later),
    )


def _describe(found: Inspection, path: Path, error: FrameError) -> Problem:
    """Put one damaged place into the words that errors and reports share."""
    decision = found.row.decision
    rotten = decision is Decision.REFUSE
    whole = f"seq {found.first_seq} to {found.last_seq}" if found.frames else "no event"
    return Problem(
        file=str(path),
        offset=error.offset,
        seq=found.next_seq,
        rule=found.row.name,
        because=found.row.because,
        expected=f"{error.field}: {error.expected}",
        found=error.found,
        lost=_untrusted(found)
        if rotten
        else f"events from seq {found.next_seq} on, of which none had been reported durable",
        safe=f"{whole}: whole, in sequence, chain unbroken",
        run_next=RUN_NEXT[decision],
    )


def _untrusted(found: Inspection) -> str:
    """Say what can no longer be told, and how much of it there is."""
    behind = [name for name in found.segments if first_seq_of(name) > found.next_seq]
    more = f", {len(behind)} later segments among it, from seq {first_seq_of(behind[0])} on" if behind else ""
    return f"seq {found.next_seq} and all behind it can not be trusted{more}"
