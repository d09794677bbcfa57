"""Finding records without the log: walking the segments by their headers.

Serves to rebuild an index and to scrub. A header says how far the next one is; where no sound header stands, the walk
goes on page by page until one does, and reports what it stepped over as one damaged run. Headers name their own place,
so a stale copy of a record somewhere else is damage, not a second record.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk.blob_io import BlobIO
from kvledger_storage.disk.errors import RecordMissError
from kvledger_storage.disk.files import OpenFile, open_segment
from kvledger_storage.disk.pages import PAGE, new_pages, transfer
from kvledger_storage.disk.record import BadHeaderError, RecordHeader, RecordKey, decode_header, record_bytes
from kvledger_storage.disk.segments import segment_name

__all__ = ["ScannedDamage", "ScannedRecord", "SegmentScanner"]


class ScannedRecord(NamedTuple):
    """A record whose header is sound and whose bytes are all there; its payload is verified when it is read."""

    ref: BlobRef
    key: RecordKey


class ScannedDamage(NamedTuple):
    """`length` bytes from `offset` of a segment in which no sound record begins, and why."""

    segment: int
    offset: int
    length: int
    why: str


class SegmentScanner:
    """Walks segments one page of header at a time; it holds one descriptor and no list.

    Args:
        io: The system calls.
        directory: Where the segment files lie.
        log_id: 16 bytes; records of another log count as damage.
    """

    def __init__(self, io: BlobIO, directory: str, log_id: bytes) -> None:
        self._io = io
        self._directory = directory
        self._log_id = log_id

    def scan(self, segment: int, end: int) -> Iterator[ScannedRecord | ScannedDamage]:
        """Yield what lies in segment number `segment`, in order, without gaps and without overlaps.

        Args:
            segment: Its number.
            end: Size that the file should have: what lies behind is a batch that is being written, and a file that
                ends before has lost something.
        """
        path = f"{self._directory}/{segment_name(segment)}"
        try:
            with open_segment(self._io, path, 0, direct=False) as file:
                walk = _Walk(self._io, OpenFile(file.fd, min(file.size, end)), segment, self._log_id)
                yield from walk.steps()
                if file.size < end:
                    yield ScannedDamage(segment, file.size, end - file.size, "the file was cut short")
        except RecordMissError as error:
            yield ScannedDamage(segment, 0, end, error.message)


class _Walk:
    """One pass over one open segment file."""

    def __init__(self, io: BlobIO, file: OpenFile, segment: int, log_id: bytes) -> None:
        self._io = io
        self._file = file
        self._segment = segment
        self._log_id = log_id
        self._page = new_pages(1)

    def steps(self) -> Iterator[ScannedRecord | ScannedDamage]:
        offset = bad_from = PAGE
        why = ""
        while offset < self._file.size:
            found = self._at(offset)
            if isinstance(found, str):
                why = why or found
                offset += PAGE
                continue
            if why:
                yield ScannedDamage(self._segment, bad_from, offset - bad_from, why)
            yield found
            offset += record_bytes(found.ref.length)
            bad_from, why = offset, ""
        if why:
            yield ScannedDamage(self._segment, bad_from, self._file.size - bad_from, why)

    def _at(self, offset: int) -> ScannedRecord | str:
        """Return the record that begins at `offset`, or why none does."""
        try:
            got = transfer(lambda parts, at: self._io.preadv(self._file.fd, parts, at), [self._page], offset)
            header = decode_header(self._page) if got == PAGE else None
        except OSError as error:
            return f"the system refused the read ({error.strerror or error})"
        except BadHeaderError as error:
            return str(error)
        return "the file ends within a header" if header is None else self._judge(header, offset)

    def _judge(self, header: RecordHeader, offset: int) -> ScannedRecord | str:
        if header.log_id != self._log_id:
            return "a record of another log"
        if (header.ref.segment, header.ref.offset) != (self._segment, offset):
            return f"a copy of the record at {header.ref}"
        if offset + record_bytes(header.ref.length) > self._file.size:
            return "the file ends within the record"
        return ScannedRecord(header.ref, header.key)
