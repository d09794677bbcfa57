"""Reading events back: by the daemon for replay, by audit from outside while a daemon is writing, after damage.

No lock is needed, since nothing that was written is ever changed; segments may move to the archive meanwhile, and are
found there. The last segment of a log that is in use may end in a frame that is being written; it looks like a torn
one, so reading stops there in silence. Damage anywhere else is raised, after everything before it was handed out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvledger_storage.log.archive import all_segments, read_segment
from kvledger_storage.log.errors import FrameError, LogRotError, Problem
from kvledger_storage.log.io import LogIO
from kvledger_storage.log.segment import End, SegmentScan, decode_segment_header, first_seq_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvledger_storage.log.frame import Frame, FrameHeader


class LoggedEvent(NamedTuple):
    """One event as it lies in the log: its `seq`, the header of its `frame`, and the `event` bytes."""

    seq: int
    frame: FrameHeader
    event: bytes


def read_events(
    io: LogIO, directory: Path, *, from_seq: int = 1, through_seq: int | None = None
) -> Iterator[LoggedEvent]:
    """Yield the events from `from_seq` on, in order; of what was retired, none.

    Args:
        io: The operating system.
        directory: The log's directory.
        from_seq: First seq to yield.
        through_seq: Last seq to yield; everything up to it must be readable. None: as far as the log can be read.

    Raises:
        LogRotError: The log is damaged before its end, or before `through_seq`.
        LogVersionError: A part of it was written by a newer kvledger.
    """
    for path, frame in read_frames(io, directory, from_seq=from_seq, through_seq=through_seq):
        yield from _events_of(path, frame, from_seq, through_seq)


def read_frames(
    io: LogIO, directory: Path, *, from_seq: int = 1, through_seq: int | None = None
) -> Iterator[tuple[Path, Frame]]:
    """Yield the frames that hold the events from `from_seq` on, in order, each with the file in which it lies.

    Arguments and errors are those of `read_events`.
    """
    names = all_segments(io, directory)
    while len(names) > 1 and first_seq_of(names[1]) <= from_seq:
        names.pop(0)
    expected: tuple[int, bytes] | None = None
    for name in names:
        try:
            path, scan = _open_segment(io, directory, name, expected)
        except FileNotFoundError:
            if expected is None:
                continue  # retired since the names were read
            raise
        if expected is None:
            scan.skip_before(from_seq)
        for _, frame in scan:
            if frame.header.last_seq >= from_seq:
                yield path, frame
            if through_seq is not None and frame.header.last_seq >= through_seq:
                return
        if scan.problem and (name != names[-1] or scan.end is End.BREAK or through_seq is not None):
            raise _rot(path, scan.next_seq, scan.problem)
        expected = scan.next_seq, scan.chain


def frame_place(io: LogIO, directory: Path, seq: int) -> tuple[Path, int]:
    """Return the file and the offset of the frame that holds event `seq`, which can be read."""
    name = max(name for name in all_segments(io, directory) if first_seq_of(name) <= seq)
    path, data = read_segment(io, directory, name)
    scan = SegmentScan(data, decode_segment_header(data))
    return path, next((offset for offset, frame in scan if frame.header.last_seq >= seq), scan.offset)


def _open_segment(
    io: LogIO, directory: Path, name: str, expected: tuple[int, bytes] | None
) -> tuple[Path, SegmentScan]:
    """Read a segment and check that it continues the one before it."""
    seq = expected[0] if expected else 0
    path, data = read_segment(io, directory, name)
    try:
        header = decode_segment_header(data)
    except FrameError as error:
        raise _rot(path, seq, error) from error
    if expected is not None and (header.first_seq, header.previous_chain) != expected:
        raise _rot(path, seq, FrameError("first seq and previous chain", 0, str(seq), str(header.first_seq)))
    return path, SegmentScan(data, header)


def events_in(path: Path, frame: Frame) -> list[bytes]:
    """Return the events of a frame.

    Raises:
        LogRotError: Its payload holds others than its header says.
    """
    try:
        return frame.events()
    except FrameError as error:
        raise _rot(path, frame.header.first_seq, error) from error


def _events_of(path: Path, frame: Frame, from_seq: int, through_seq: int | None) -> Iterator[LoggedEvent]:
    events = events_in(path, frame)
    last = frame.header.last_seq if through_seq is None else through_seq
    for seq, event in enumerate(events, frame.header.first_seq):
        if from_seq <= seq <= last:
            yield LoggedEvent(seq, frame.header, event)


def _rot(path: Path, seq: int, error: FrameError) -> LogRotError:
    return LogRotError(
        Problem(
            file=str(path),
            offset=error.offset,
            seq=seq,
            rule="read",
            because="what is asked for lies behind it",
            expected=f"{error.field}: {error.expected}",
            found=error.found,
            lost=f"seq {seq} and what follows in this file",
            safe=f"everything before seq {seq}",
            run_next="kvledger log verify, with this data directory, tells it from the whole log",
        )
    )
