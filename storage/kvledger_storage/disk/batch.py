"""Writing one batch of records: all of them, or none that anybody will ever hear of.

A batch is first placed (which segment, which offset), then space is reserved for it, written, synced, and only then
reported. When any step fails, every file it touched is cut back to where it ended before, and files it made are gone;
a file that can not even be cut back is closed, its surplus counted as dead. A sync that failed is never repeated: the
kernel may have dropped the pages it could not write, and a second sync would call that success.
"""

import contextlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk.blob_io import BlobIO
from kvledger_storage.disk.pages import (
    PAGE,
    ZERO_PAGE,
    aligned_copy,
    as_bytes,
    is_aligned,
    new_pages,
    tail_of,
    transfer,
)
from kvledger_storage.disk.probes import DIRECT_FLAG, SAFE_FLAGS
from kvledger_storage.disk.record import RecordIn, encode_header, record_bytes
from kvledger_storage.disk.segments import encode_segment_header, segment_name

__all__ = ["BatchWriter", "ChangedOutsideError", "Run", "place"]

# Records that are written by one call; each takes at most three buffers of the 1,024 that a call may have.
_SHARED_CALL = 32


class ChangedOutsideError(OSError):
    """The open segment is not the file that this process left: somebody removed, replaced, cut or extended it."""


@dataclass(slots=True)
class Run:
    """The part of a batch that lies in one segment file.

    Attributes:
        number: The segment.
        start: Size of the file before; 0 means the file is made, header page first.
        end: Size of the file afterwards.
        records: Each record with the place it gets.
        touched: The file was found as expected, or was made, and may have been written to.
        synced: Everything of it is on stable storage.
    """

    number: int
    start: int
    end: int
    records: list[tuple[BlobRef, RecordIn]] = field(default_factory=list)
    touched: bool = False
    synced: bool = False

    def add(self, record: RecordIn) -> None:
        """Put `record` at the end."""
        self.records.append((BlobRef(self.number, self.end, record.key.length), record))
        self.end += record_bytes(record.key.length)


def place(records: Iterable[RecordIn], tail: Run | None, next_number: int, segment_bytes: int) -> list[Run]:
    """Return where `records` go, in order.

    Args:
        records: What is to be stored.
        tail: An empty run at the end of the open segment, or None if there is no open one.
        next_number: Number of the next segment to be made.
        segment_bytes: Size that a segment is filled up to. A record that is larger gets a segment of its own, since
            records never span files.
    """
    runs = [tail] if tail else []
    for record in records:
        if not runs or (runs[-1].end > PAGE and runs[-1].end + record_bytes(record.key.length) > segment_bytes):
            runs.append(Run(next_number, 0, PAGE))
            next_number += 1
        runs[-1].add(record)
    return [run for run in runs if run.records]


class BatchWriter:
    """Writes runs into one directory; used by one thread at a time.

    Args:
        io: The system calls.
        directory: Where the segment files lie.
        log_id: 16 bytes that go into every header.
        direct: Whether the directory takes direct I/O.
    """

    def __init__(self, io: BlobIO, directory: str, log_id: bytes, *, direct: bool) -> None:
        self._io = io
        self._directory = directory
        self._log_id = log_id
        self._direct_flag = DIRECT_FLAG if direct else 0
        pages = new_pages(2 * _SHARED_CALL)
        self._pages = [pages[at : at + PAGE] for at in range(0, len(pages), PAGE)]

    def write(self, runs: Sequence[Run]) -> None:
        """Write and sync all `runs`, then the directory if a file was made.

        Raises:
            ChangedOutsideError: The open segment is not as it was left; nothing was written to it.
            OSError: A call failed; call `undo` with the same runs.
        """
        for run in runs:
            self._write_run(run)
        if any(not run.start for run in runs):
            self._io.sync_directory(self._directory)

    def undo(self, run: Run) -> bool:
        """Take back what `write` may have left of `run`; return whether the file is as it was before."""
        if not run.touched:
            return True
        try:
            if not run.start:
                with contextlib.suppress(FileNotFoundError):
                    self._io.unlink(self._path(run))
                return True
            fd = self._io.open(self._path(run), os.O_WRONLY | SAFE_FLAGS)
            try:
                self._io.truncate(fd, run.start)
            finally:
                self._io.close(fd)
        except OSError:
            return False
        return True

    def _path(self, run: Run) -> str:
        return f"{self._directory}/{segment_name(run.number)}"

    def _write_run(self, run: Run) -> None:
        make = 0 if run.start else os.O_CREAT | os.O_EXCL
        fd = self._io.open(self._path(run), os.O_WRONLY | SAFE_FLAGS | self._direct_flag | make)
        try:
            status = self._io.fstat(fd)
            if not status.regular or status.size != run.start:
                raise ChangedOutsideError(f"segment {run.number} has {status.size} bytes instead of {run.start}")
            run.touched = True
            self._io.preallocate(fd, run.start, run.end - run.start)
            if not run.start:
                encode_segment_header(self._pages[0], run.number, self._log_id)
                self._put(fd, self._pages[:1], 0)
            for first in range(0, len(run.records), _SHARED_CALL):
                self._write_records(fd, run.records[first : first + _SHARED_CALL])
            self._io.fdatasync(fd)
            run.synced = True
        finally:
            self._io.close(fd)

    def _write_records(self, fd: int, records: Sequence[tuple[BlobRef, RecordIn]]) -> None:
        pages = iter(self._pages)
        buffers: list[memoryview] = []
        for ref, record in records:
            header, tail = next(pages), next(pages)
            encode_header(header, record.key, ref, self._log_id)
            payload = as_bytes(record.payload)
            if self._direct_flag and not is_aligned(payload):
                payload = aligned_copy(payload)
            size = tail_of(len(payload))
            tail[:] = ZERO_PAGE
            tail[:size] = payload[len(payload) - size :]
            buffers += [header, payload[: len(payload) - size], tail[: PAGE if size else 0]]
        self._put(fd, buffers, records[0][0].offset)

    def _put(self, fd: int, buffers: list[memoryview], offset: int) -> None:
        wanted = sum(map(len, buffers))
        done = transfer(lambda parts, at: self._io.pwrite(fd, parts, at), buffers, offset)
        if done < wanted:
            raise OSError(f"the system wrote {done} of {wanted} bytes and then none")
