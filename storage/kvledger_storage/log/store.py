"""The event log of one data directory: lock, identity, recovery, reading, and the one writer.

Opening is the only moment at which the log is changed other than by appending, and it does so in a fixed order: take
the lock, read or make the identity, read every frame, repair or refuse, make durable what was accepted. Only then is
there a `last_seq` that anybody may build on.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

from kvledger_storage.log.appender import Appender
from kvledger_storage.log.archive import archive_through, archived_starts, retire_through, sealed_ends, settle
from kvledger_storage.log.beginning import Anchor, Beginning, read_beginning
from kvledger_storage.log.creation import Quarantine, create_log, log_id_of, quarantine_log
from kvledger_storage.log.errors import LogClosedError, LogRotError, Problem
from kvledger_storage.log.frame import CHAIN_BYTES
from kvledger_storage.log.identity import Identity, Predecessor, new_identity
from kvledger_storage.log.inspection import Inspection, Progress, inspect_log, load_identity, silent
from kvledger_storage.log.io import LogIO, RealLogIO
from kvledger_storage.log.lock import log_locked, take_lock
from kvledger_storage.log.mark import Mark
from kvledger_storage.log.reader import LoggedEvent, read_events
from kvledger_storage.log.recovery import Decision
from kvledger_storage.log.repair import TailRepair, repair_tail, sync_recovered
from kvledger_storage.log.segment import MIN_SEGMENT_BYTES, SEGMENT_BYTES, segment_names
from kvledger_storage.log.writer import LogWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import TracebackType


class _Place(NamedTuple):
    """Where a log lies and how it is to be opened."""

    io: LogIO
    directory: Path
    boot_id: bytes
    segment_bytes: int
    progress: Progress


class EventLog:
    """An open log, whose lock this process holds until `close`.

    Attributes:
        directory: Where it lies.
        boot_id: This boot of the machine, 16 bytes.
        repaired: The tail that recovery took off, None if there was none.
        quarantined: The log that was set aside when this one was opened, None if there was none.
    """

    def __init__(self, place: _Place, lock_fd: int, end: Inspection) -> None:
        self._io = place.io
        self._lock_fd: int | None = lock_fd
        self._end = end
        self._segment_bytes = place.segment_bytes
        self._writer: LogWriter | None = None
        self.directory = place.directory
        self.boot_id = place.boot_id
        self.repaired: TailRepair | None = None
        self.quarantined: Quarantine | None = None

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        io: LogIO | None = None,
        boot_id: bytes | None = None,
        on_corrupt: Literal["refuse", "quarantine"] = "refuse",
        segment_bytes: int = SEGMENT_BYTES,
        progress: Progress = silent,
    ) -> EventLog:
        """Open the log in `directory`, or make it; takes as long as reading the whole log, so not on a loop.

        Args:
            directory: The log's own directory; made if it is absent.
            io: The operating system, the real one by default.
            boot_id: 16 bytes that name this boot, by default what `io` says.
            on_corrupt: What to do about rot: refuse, or set the log aside and begin a new one that names it.
            segment_bytes: Length of the segments that are made from now on; those that exist keep theirs.
            progress: Told before each segment how many were read, of how many.

        Raises:
            LogLockedError: Another process holds the log.
            LogVersionError: It was written by a newer kvledger; nothing was changed.
            LogRotError: It is damaged where a crash can not have done it; nothing was changed.
            OSError: The file system failed.
        """
        if segment_bytes < MIN_SEGMENT_BYTES:
            raise ValueError(f"segment_bytes is {segment_bytes}; it must be at least {MIN_SEGMENT_BYTES}")
        io = io or RealLogIO()
        place = _Place(io, directory, io.boot_id() if boot_id is None else boot_id, segment_bytes, progress)
        io.make_directory(directory)
        lock_fd = take_lock(io, directory)
        try:
            return cls._recover(place, lock_fd, on_corrupt)
        except BaseException:
            with suppress(OSError):
                io.close(lock_fd)
            raise

    @classmethod
    def _recover(cls, place: _Place, lock_fd: int, on_corrupt: str) -> EventLog:
        quarantined = repaired = None
        try:
            end = _examine(place)
        except LogRotError as error:
            if on_corrupt != "quarantine":
                raise
            quarantined = _quarantine(place, error.problem)
            end = _examine(place)
        if end.row.decision is Decision.REPAIR_TAIL:
            repaired = repair_tail(place.io, end)
        sync_recovered(place.io, end)
        settle(place.io, place.directory, end.identity)
        mark = Mark(place.io, place.directory, end.identity.log_id)
        mark.write(end.last_seq)
        mark.close()
        if end.last_scan is not None:
            end.last_scan.let_go()
        log = cls(place, lock_fd, end)
        log.repaired, log.quarantined = repaired, quarantined
        return log

    @property
    def identity(self) -> Identity:
        """Which log this is, and what it follows."""
        return self._end.identity

    @property
    def log_id(self) -> bytes:
        """Random 128 bits that name this log."""
        return self._end.identity.log_id

    @property
    def predecessor(self) -> Predecessor | None:
        """The quarantined log that this one follows, now or since an earlier start."""
        return self._end.identity.predecessor

    @property
    def first_seq(self) -> int:
        """The seq of the first event that there ever was, whether it exists yet, still or not."""
        return self._end.identity.first_seq

    @property
    def begins(self) -> Beginning:
        """Where the log begins on disk, and where its archive does, at this moment."""
        return read_beginning(self._io, self.directory, self.identity)

    @property
    def last_seq(self) -> int:
        """The last event that recovery accepted, or that the writer has written since; `first_seq - 1` if none."""
        return self._end.last_seq if self._writer is None else self._writer.last_written

    @property
    def recovered_chain(self) -> bytes:
        """Chain behind the last event that recovery accepted, 32 bytes."""
        return self._end.chain

    @property
    def last_incarnation(self) -> int:
        """Incarnation that wrote the last recovered frame, 0 in an empty log."""
        return self._end.last_frame.incarnation if self._end.last_frame else 0

    def read(self, from_seq: int = 1) -> Iterator[LoggedEvent]:
        """Yield `(seq, frame header, event bytes)` from `from_seq` to the last event there is when reading begins.

        Raises:
            LogRotError: What was readable when the log was opened no longer is.
        """
        last_seq = self.last_seq
        if last_seq < max(from_seq, self.first_seq):
            return iter(())
        return read_events(self._io, self.directory, from_seq=from_seq, through_seq=last_seq)

    def writer(
        self,
        incarnation: int,
        on_reached: Callable[[int, int], None],
        on_error: Callable[[BaseException], None],
    ) -> LogWriter:
        """Start the writing thread; once for each open log. See `LogWriter` for the callbacks.

        Raises:
            LogClosedError: The log is closed, or has a writer.
            OSError: The file system failed.
        """
        if self._lock_fd is None or self._writer is not None:
            raise LogClosedError(f"{self.directory}: the log is closed or has its writer; open it again")
        appender = Appender(self._io, self.directory, self._end, self._segment_bytes)
        self._writer = LogWriter(
            appender,
            log_id=self.log_id,
            boot_id=self.boot_id,
            incarnation=incarnation,
            segment_bytes=self._segment_bytes,
            on_reached=on_reached,
            on_error=on_error,
        )
        return self._writer

    @property
    def lock_fd(self) -> int:
        """Descriptor that holds the lock; a process that inherits it holds the lock for as long as it lives.

        Raises:
            LogClosedError: The log is closed.
        """
        if self._lock_fd is None:
            raise LogClosedError(f"{self.directory}: the log is closed; open it again")
        return self._lock_fd

    def sealed_ends(self) -> list[Anchor]:
        """Return the places behind each live segment but the last, oldest first; blocks."""
        return list(sealed_ends(self._io, self.directory))

    def archived_starts(self) -> list[tuple[Anchor, int]]:
        """Return where each archived segment begins and its bytes, oldest first; blocks."""
        return list(archived_starts(self._io, self.directory))

    def archive_through(self, live: Anchor) -> None:
        """Move all segments before `live` to the archive; recovery reads them no more. Blocks.

        To be called when the event that says so is durable; may be called while the writer writes.
        """
        archive_through(self._io, self.directory, self.identity, live)

    def retire_through(self, kept: Anchor) -> None:
        """Remove all archived segments before `kept`. Blocks; called when the event that says so is durable."""
        retire_through(self._io, self.directory, self.identity, kept)

    def close(self) -> None:
        """Close the writer, which syncs what is pending, then let go of the lock; does nothing the second time.

        Raises:
            LogStoppedError: The writer had met an error; the lock is let go all the same.
        """
        if self._lock_fd is None:
            return
        lock_fd, self._lock_fd = self._lock_fd, None
        try:
            if self._writer is not None:
                self._writer.close()
        finally:
            self._io.close(lock_fd)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _examine(place: _Place) -> Inspection:
    """Inspect the log, made first if there is none.

    Raises:
        LogRotError: The recovery table refuses it.
    """
    io, directory, boot_id, segment_bytes, progress = place
    identity = load_identity(io, directory)
    if identity is None:
        identity = new_identity()
        for name in segment_names(io.names(directory)):
            io.unlink(directory / name)
        create_log(io, directory, identity, segment_bytes)
    end = inspect_log(io, directory, identity, boot_id, progress=progress)
    if end.row.decision is Decision.REFUSE:
        assert end.problem is not None
        raise LogRotError(end.problem)
    return end


def set_aside(directory: Path, problem: Problem, *, segment_bytes: int = SEGMENT_BYTES) -> Quarantine:
    """Set a log aside that is whole, byte by byte, and still can not be started on; begin a new one that names it.

    Args:
        directory: The log's directory; nobody may hold its lock.
        problem: Why it was refused.
        segment_bytes: Length of the new log's segments.

    Raises:
        LogLockedError: Another process holds the log.
    """
    io = RealLogIO()
    with log_locked(directory):
        return _quarantine(_Place(io, directory, io.boot_id(), segment_bytes, silent), problem)


def _quarantine(place: _Place, problem: Problem) -> Quarantine:
    """Set the log aside, naming the chain as far as it is whole (zeros if even its identity is gone)."""
    io, directory, boot_id, segment_bytes, _ = place
    last_seq, chain = 0, bytes(CHAIN_BYTES)
    with suppress(LogRotError):
        identity = load_identity(io, directory)
        if identity is not None:
            end = inspect_log(io, directory, identity, boot_id)
            last_seq, chain = end.last_seq, end.chain
    predecessor = Predecessor(log_id=log_id_of(io, directory), last_seq=last_seq, chain=chain)
    return quarantine_log(io, directory, problem, predecessor, segment_bytes)
