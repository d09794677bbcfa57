"""Checking a log from outside: no lock, no change, and an answer that helps when the log is damaged.

The judgement is the one that recovery would come to, from the same code. A daemon may be writing meanwhile, so a
finding counts only when a second look finds the same thing at the same place.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from kvledger_storage.log.archive import all_segments, read_segment
from kvledger_storage.log.errors import FrameError, LogRotError, Problem
from kvledger_storage.log.inspection import Inspection, Progress, inspect_log, load_identity, silent
from kvledger_storage.log.io import LogIO, RealLogIO
from kvledger_storage.log.mark import read_mark
from kvledger_storage.log.reader import read_events
from kvledger_storage.log.recovery import Decision
from kvledger_storage.log.segment import SegmentScan, decode_segment_header

if TYPE_CHECKING:
    from pathlib import Path

    from kvledger_storage.log.identity import Identity

_LOOKS: Final = 8


class VerifyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What `verify` found.

    Attributes:
        ok: Whether everything that was reported durable is there and whole, the archive included. A torn tail does not
            make it false: it is what a crash leaves, and costs nothing that was promised.
        decision: What recovery would do: `clean`, `repair_tail` or `refuse`. It does not read the archive.
        log_id: Id of the log in hexadecimal, empty if it can not be told.
        first_seq: First event that could be read, 0 if none.
        last_seq: Last event that could be read, in sequence from the first; 0 if none.
        frames: Frames that were read.
        segments: Segment files that the log and its archive hold.
        problem: The damaged place, if there is one.
    """

    ok: bool
    decision: str
    log_id: str
    first_seq: int
    last_seq: int
    frames: int
    segments: int
    problem: Problem | None


def verify(directory: Path, *, io: LogIO | None = None, progress: Progress = silent) -> VerifyReport:
    """Read the whole log in `directory`, its archive included, and report how it is.

    Args:
        directory: The log's directory.
        io: The operating system, the real one by default.
        progress: Told before each segment how many were read, of how many.

    Raises:
        FileNotFoundError: There is no log.
        LogVersionError: It was written by a newer kvledger.
    """
    io = io or RealLogIO()
    try:
        identity = load_identity(io, directory)
    except LogRotError as error:
        return _without_identity(io, directory, error.problem)
    if identity is None:
        raise FileNotFoundError(f"{directory}: there is no log here; name the directory that holds its id file")
    found = _settled(io, directory, identity, progress)
    decision, problem = found.row.decision, found.problem
    if problem is not None and found.next_seq < found.begins.live.seq:
        live = inspect_log(io, directory, identity, io.boot_id())
        decision = live.row.decision
        problem = live.problem if decision is Decision.REFUSE else _only_archived(problem, live)
    return VerifyReport(
        ok=found.row.decision is not Decision.REFUSE,
        decision=decision.value,
        log_id=identity.log_id.hex(),
        first_seq=found.first_seq if found.frames else 0,
        last_seq=found.last_seq if found.frames else 0,
        frames=found.frames,
        segments=len(found.segments),
        problem=problem,
    )


def _only_archived(problem: Problem, live: Inspection) -> Problem:
    """Return the words for damage that no start will ever meet."""
    return msgspec.structs.replace(
        problem,
        rule="archive-damage",
        because=f"{problem.because}; no start reads the archive, so the daemon serves as if nothing were",
        lost=f"the past from seq {problem.seq} to {live.begins.live.seq - 1}, for audit and replay",
        safe=f"{problem.safe}; and seq {live.first_seq} to {live.last_seq}, which the daemon stands on",
        run_next="restore this file from a copy of the archive, under the same name; nothing has to be stopped for it",
    )


def damage_at_end(directory: Path, *, io: LogIO | None = None) -> Problem | None:
    """Return the damage at which reading ended in silence, None if the log ends there or a frame is on its way.

    `read_events` can not tell a damaged frame in the last segment from one that is being written, or that a crash tore.
    The whole log is read only if something stands behind the last whole frame, or the mark knows of more than that.
    """
    io = io or RealLogIO()
    names = all_segments(io, directory)
    if not names:
        return None
    if _ends_there(io, directory, read_segment(io, directory, names[-1])[1]):
        return None
    report = verify(directory, io=io)
    return None if report.ok else report.problem


def _ends_there(io: LogIO, directory: Path, data: bytes) -> bool:
    try:
        scan = SegmentScan(data, decode_segment_header(data))
    except FrameError:
        return False
    for _ in scan:
        pass
    return scan.problem is None and read_mark(io, directory, scan.header.log_id) < scan.next_seq


def _settled(io: LogIO, directory: Path, identity: Identity, progress: Progress) -> Inspection:
    """Inspect until the log is clean, or two looks in a row agree on what is wrong."""
    before = _look(io, directory, identity, progress)
    for _ in range(_LOOKS):
        if before.problem is None:
            break
        found = _look(io, directory, identity, progress)
        if found.problem == before.problem:
            break
        before = found
    return before


def _look(io: LogIO, directory: Path, identity: Identity, progress: Progress) -> Inspection:
    """Inspect the log and its archive, once more if a segment was retired meanwhile."""
    with suppress(FileNotFoundError):
        return inspect_log(io, directory, identity, io.boot_id(), archive=True, progress=progress)
    return inspect_log(io, directory, identity, io.boot_id(), archive=True, progress=progress)


def _without_identity(io: LogIO, directory: Path, problem: Problem) -> VerifyReport:
    """Report a log whose id is damaged: the segments name their log themselves, so they can still be read."""
    first_seq = last_seq = frames = frame_seq = 0
    with suppress(LogRotError):
        for event in read_events(io, directory):
            first_seq = first_seq or event.seq
            last_seq = event.seq
            if event.frame.first_seq != frame_seq:
                frame_seq, frames = event.frame.first_seq, frames + 1
    return VerifyReport(
        ok=False,
        decision=Decision.REFUSE.value,
        log_id="",
        first_seq=first_seq,
        last_seq=last_seq,
        frames=frames,
        segments=len(all_segments(io, directory)),
        problem=problem,
    )
