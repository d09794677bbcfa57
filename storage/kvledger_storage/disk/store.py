"""The disk tier's store: append batches of records, read them verified, drop them, remove what is wholly dead.

It knows nothing of layouts, kinds or the log: identities are opaque, and which records are alive is what the caller
says. Its side of the bargain with the log: a reference is returned only after its bytes are on stable storage, so the
caller may log it then; and nothing that was not returned is ever counted as alive.

Threads: what writes, adopts, drops, removes or probes belongs to one thread, the disk thread. `read_into`, `read_many`,
`read_key`, `read_part`, `segments` and `scan` may be called from any number of threads at the same time, also while
that one appends. Every call blocks; deadlines are the caller's, and a call makes progress or ends. The lock that keeps
a second daemon off the directory is the log's.
"""

import errno
from collections.abc import Iterable, Iterator, Sequence
from typing import Self

from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk.batch import BatchWriter, Run, place
from kvledger_storage.disk.blob_io import BlobIO, OsBlobIO
from kvledger_storage.disk.errors import (
    DirectoryError,
    DiskFullError,
    NotAdoptedError,
    QuotaExceededError,
    ReadOnlyError,
    RecordMissError,
    SourceDamagedError,
    WriteFailedError,
)
from kvledger_storage.disk.probes import probe_direct, probe_writes
from kvledger_storage.disk.reader import ReadRequest, RecordReader
from kvledger_storage.disk.record import LOG_ID_BYTES, RecordIn, RecordKey, check_key, fingerprint_of
from kvledger_storage.disk.scan import ScannedDamage, ScannedRecord, SegmentScanner
from kvledger_storage.disk.segments import MAX_SEGMENT, Segment, SegmentInfo
from kvledger_storage.disk.table import SegmentTable
from kvledger_storage.disk.upkeep import Part, read_part

__all__ = ["DEFAULT_SEGMENT_BYTES", "DiskStore"]

DEFAULT_SEGMENT_BYTES = 256 << 20

_FULL = (errno.ENOSPC, errno.EDQUOT)
_READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)
# What unlinking answers that meets a directory; Linux says the first.
_NO_FILE = (errno.EISDIR, errno.ENOTEMPTY)


class DiskStore:
    """Data segments in one directory; made by `open`.

    Attributes:
        direct: Whether direct I/O is used.
        quota_bytes: Size that all segment files together may have; may be set at any time by the disk thread.
        read_only: Why no writes are taken, or None.
        removed_segments: Files that were removed since it was opened.
        removed_bytes: What these took.
    """

    def __init__(self, io: BlobIO, directory: str, log_id: bytes, *, segment_bytes: int, quota_bytes: int) -> None:
        self._io = io
        self._directory = directory
        self._segment_bytes = segment_bytes
        self.quota_bytes = quota_bytes
        self.read_only: str | None = None
        self.removed_segments = self.removed_bytes = 0
        self.direct = self._probe()
        self._table = SegmentTable(directory)
        self._table.load(io, log_id)
        self._adopted = self._table.empty
        self._reader = RecordReader(io, directory, log_id, direct=self.direct)
        self._writer = BatchWriter(io, directory, log_id, direct=self.direct)
        self._scanner = SegmentScanner(io, directory, log_id)

    @classmethod
    def open(
        cls,
        directory: str,
        log_id: bytes,
        *,
        io: BlobIO | None = None,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        quota_bytes: int,
    ) -> Self:
        """Open the store below `directory`, in its folder `data`, which is made if it is not there.

        A directory that takes no writes gives a store that only reads; `read_only` says why. Where segments of an
        earlier run are there, `adopt` has to be called before anything is changed.

        Args:
            directory: The daemon's data directory; it must exist.
            log_id: 16 bytes that name the log whose records these are.
            io: The system calls; tests give a faulty one.
            segment_bytes: Size that one segment file is filled up to.
            quota_bytes: Size that all segment files together may have.

        Raises:
            DirectoryError: The directory can not be used.
            NewerVersionError: It was written by a newer version.
            ValueError: The log id has another size.
        """
        if len(log_id) != LOG_ID_BYTES:
            raise ValueError(f"log_id: {len(log_id)} bytes where {LOG_ID_BYTES} are meant")
        seam = io or OsBlobIO()
        data = f"{directory}/data"
        try:
            seam.mkdir(data)
            seam.sync_directory(directory)
        except OSError as error:
            if error.errno not in _READ_ONLY + _FULL:
                raise DirectoryError(
                    f"{data} can not be made ({error.strerror or error})",
                    field="directory",
                    remedy="name a directory that exists and that the daemon may write to",
                ) from error
        return cls(seam, data, log_id, segment_bytes=segment_bytes, quota_bytes=quota_bytes)

    def append(self, records: Sequence[RecordIn], *, reserve: int = 0) -> list[BlobRef]:
        """Store `records`, all or none, and return where they lie once they are on stable storage.

        Each payload is checked against its fingerprint before a byte is written, so that memory that went bad is not
        made durable. Page-aligned payloads go to the device without a copy where there is direct I/O.

        Args:
            records: What to store.
            reserve: Bytes of the quota that this batch leaves to others, such as the copies that make room.

        Raises:
            QuotaExceededError: The batch would pass the quota.
            ReadOnlyError: The tier takes no writes.
            DiskFullError: The file system is full; the tier is read-only from here on.
            WriteFailedError: Another call failed.
            SourceDamagedError: A payload does not have its fingerprint.
            NotAdoptedError: `adopt` has not been called.
            ValueError: A key is out of range, or a payload has another length than its key says.
        """
        self._require_writable()
        _check_batch(records)
        runs = self._write(records, reserve)
        self._table.stored(runs)
        return [ref for run in runs for ref, _ in run.records]

    def read_into(self, ref: BlobRef, expect: RecordKey, buffer: memoryview) -> None:
        """Read the record at `ref` into `buffer` and verify it; see `RecordReader.read_into`."""
        self._reader.read_into(ref, expect, buffer)

    def read_many(self, requests: Sequence[ReadRequest]) -> list[RecordMissError | None]:
        """Read and verify several records, an outcome for each; see `RecordReader.read_many`."""
        return self._reader.read_many(requests)

    def read_key(self, ref: BlobRef) -> RecordKey:
        """Return what the record at `ref` says it is; see `RecordReader.read_key`."""
        return self._reader.read_key(ref)

    def adopt(self, refs: Iterable[BlobRef]) -> list[BlobRef]:
        """Say which records of earlier runs are alive; once, before anything is changed.

        Everything else is dead from here on. What lies in the newest segment behind its last live record was never
        reported, or has been dropped: it is cut off and its place used again.

        Returns:
            The references that can not be right, since their file is gone or too short: misses, to be repaired.
        """
        lost = self._table.adopt(refs)
        self._adopted = True
        newest = self._table.newest_of_ours()
        if newest and self.read_only is None and self._cut_tail(newest):
            self._table.reopen(newest)
        return lost

    def drop(self, refs: Iterable[BlobRef]) -> int:
        """Count the records at `refs` as dead and return the bytes that became dead; twice counts once.

        Raises:
            NotAdoptedError: `adopt` has not been called.
        """
        self._require_adopted()
        return self._table.drop(refs)

    def unlink_dead(self) -> list[int]:
        """Remove closed segments in which nothing is alive and return their numbers; writes are allowed again after.

        Call it only when the events that dropped the records are durable. What stands in the place of a file and is
        none, such as a directory, is left to whoever put it there; a file that can not be removed keeps none of the
        others.

        Raises:
            WriteFailedError: A file could not be removed; the others are.
            NotAdoptedError: `adopt` has not been called.
        """
        self._require_adopted()
        removed, failed, before = [], None, self._table.file_bytes
        for number in self._table.dead():
            try:
                self._unlink(number)
            except WriteFailedError as error:
                failed = error
                continue
            self._table.forget(number)
            removed.append(number)
        self.removed_segments += len(removed)
        self.removed_bytes += before - self._table.file_bytes
        if removed:
            self._sync_names()
            self.read_only = None
        if failed is not None:
            raise failed
        return removed

    def stop_writes(self, why: str) -> None:
        """Take no writes from here on; what is stored stays readable."""
        self.read_only = self.read_only or why

    def try_writes(self) -> bool:
        """Take writes again if the directory does: a small file is written, synced and removed; return whether it was.

        A disk that took it may still be full for the next batch, which then stops the tier anew.
        """
        try:
            probe_writes(self._io, self._directory)
        except OSError as error:
            self.read_only = f"{self._directory}: {error.strerror or error}"
            return False
        self.read_only = None
        return True

    def close_segment(self) -> None:
        """Append nothing more to the open segment, so that its dead space can be cleaned."""
        self._table.close_open()

    def read_part(self, number: int, offset: int, budget: int) -> Part:
        """Read and verify the live records of a segment, from byte `offset` on; see `read_part` of `upkeep`."""
        return read_part(self._reader, number, self._table.alive_from(number, offset), budget)

    def scan(self) -> Iterator[ScannedRecord | ScannedDamage]:
        """Yield every record and every damaged run of all segments, found by headers alone, oldest segment first.

        Payloads are not verified: read what is to be used. Batches stored after the first step are not seen.
        """
        for info in self.segments():
            yield from self._scanner.scan(info.number, info.file_bytes)

    def segments(self) -> list[SegmentInfo]:
        """Return what is known of each segment, oldest first."""
        return self._table.infos()

    @property
    def file_bytes(self) -> int:
        """Bytes that all segment files take, alive or dead; what the quota is about."""
        return self._table.file_bytes

    def _probe(self) -> bool:
        try:
            return probe_direct(self._io, self._directory)
        except OSError as error:
            self.read_only = f"{self._directory}: {error.strerror or error}"
            return False

    def _require_adopted(self) -> None:
        if not self._adopted:
            raise NotAdoptedError(
                "the directory holds segments of an earlier run",
                field="adopt",
                remedy="call adopt with the live records",
            )

    def _require_writable(self) -> None:
        self._require_adopted()
        if self.read_only is not None:
            raise ReadOnlyError(self.read_only)

    def _write(self, records: Sequence[RecordIn], reserve: int) -> list[Run]:
        runs = place(records, self._table.tail(), self._table.next_number, self._segment_bytes)
        self._admit(runs, reserve)
        try:
            self._writer.write(runs)
        except OSError as error:
            if runs[0].start and not runs[0].touched:
                # Somebody removed or changed the open segment: nothing was written, and without it there is no
                # segment to continue, so a second try ends either way.
                self._table.close_open()
                return self._write(records, reserve)
            raise self._take_back(runs, error) from error
        return runs

    def _admit(self, runs: Sequence[Run], reserve: int) -> None:
        needed = sum(run.end - run.start for run in runs)
        free = max(0, self.quota_bytes - reserve - self._table.file_bytes)
        if needed > free:
            raise QuotaExceededError(needed, free)
        if runs and runs[-1].number > MAX_SEGMENT:
            raise DirectoryError(
                f"segment numbers end at {MAX_SEGMENT}", field="segment", remedy="start a new directory"
            )

    def _take_back(self, runs: Sequence[Run], error: OSError) -> WriteFailedError:
        failed = next((run for run in runs if not run.synced), None)
        file = self._table.path(failed.number) if failed else self._directory
        self._table.close_open()
        for run in runs:
            if not self._writer.undo(run):
                self._table.left_behind(run)
        if failed and error.errno == errno.EEXIST:
            self._table.skip_number(failed.number)
        if error.errno in _FULL:
            self.read_only = f"{file}: {error.strerror}"
            return DiskFullError(file, error)
        if error.errno in _READ_ONLY:
            self.read_only = f"{file}: {error.strerror}"
        return WriteFailedError(file, error)

    def _cut_tail(self, newest: Segment) -> bool:
        end = newest.end_of_live
        return newest.file_bytes == end or self._writer.undo(Run(newest.number, end, newest.file_bytes, touched=True))

    def _unlink(self, number: int) -> None:
        path = self._table.path(number)
        try:
            self._io.unlink(path)
        except FileNotFoundError:
            return
        except OSError as error:
            if error.errno in _NO_FILE:
                self._table.give_up(number)
            raise WriteFailedError(path, error) from error

    def _sync_names(self) -> None:
        try:
            self._io.sync_directory(self._directory)
        except OSError as error:
            raise WriteFailedError(self._directory, error) from error


def _check_batch(records: Sequence[RecordIn]) -> None:
    for index, (key, payload) in enumerate(records):
        check_key(key)
        if payload.nbytes != key.length:
            raise ValueError(f"payload: record {index} has {payload.nbytes} bytes, its key says {key.length}")
        if fingerprint_of(payload) != key.fingerprint:
            raise SourceDamagedError(index)
