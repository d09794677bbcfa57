"""Reading records straight into the caller's memory.

Header page, whole payload pages and the last partial page arrive in one call; the partial page passes through memory
of our own, so that not one byte behind the payload is touched. A restore reads many records that were written together,
so records that lie one behind the other are fetched by one call as a span. Whatever goes wrong with a span, its records
are then read one by one, so that a fault costs the record it is in and no other.

Safe from any number of threads: each has its own scratch pages, and nothing else changes.
"""

import errno
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk.blob_io import BlobIO
from kvledger_storage.disk.errors import (
    DamagedError,
    MissingError,
    RecordMissError,
    UnreadableError,
    WrongRecordError,
)
from kvledger_storage.disk.files import open_segment
from kvledger_storage.disk.pages import PAGE, as_bytes, is_aligned, new_pages, transfer
from kvledger_storage.disk.record import RecordHeader, RecordKey, record_bytes
from kvledger_storage.disk.segments import segment_name
from kvledger_storage.disk.verify import Arrived, checked_header, verify

__all__ = ["ReadRequest", "RecordReader"]

# Small records share a call until it is large enough for its fixed cost not to show, and small enough for a deadline.
_SPAN_RECORDS = 32
_SPAN_BYTES = 32 << 20


class ReadRequest(NamedTuple):
    """A record to be read: where it lies, what it must be, and the memory that gets its payload."""

    ref: BlobRef
    expect: RecordKey
    buffer: memoryview


class _Scratch(threading.local):
    """Of each thread its own: for each record of a span a page for the header and one for the last, partial page."""

    def __init__(self) -> None:
        pages = new_pages(2 * _SPAN_RECORDS)
        self.pages = [pages[at : at + PAGE] for at in range(0, len(pages), PAGE)]


class RecordReader:
    """Reads and verifies records in one directory of segments.

    Args:
        io: The system calls.
        directory: Where the segment files lie.
        log_id: 16 bytes; records of another log are refused.
        direct: Whether the directory takes direct I/O.
    """

    def __init__(self, io: BlobIO, directory: str, log_id: bytes, *, direct: bool) -> None:
        self._io = io
        self._directory = directory
        self._log_id = log_id
        self._direct = direct
        self._scratch = _Scratch()

    def read_into(self, ref: BlobRef, expect: RecordKey, buffer: memoryview) -> None:
        """Read the payload of the record at `ref` into the first `expect.length` bytes of `buffer` and verify it.

        After an error the buffer holds anything; it must not be handed out.

        Args:
            ref: Where the record lies.
            expect: What it must be, in every field.
            buffer: Writable, contiguous bytes. Page-aligned memory is filled with direct I/O where there is any.

        Raises:
            RecordMissError: One of its children, by what is wrong.
            ValueError: The buffer is too small or not writable.
        """
        request = ReadRequest(ref, expect, buffer)
        _check_buffer(request)
        self._check_place(request)
        (record,) = self._arrivals([request])
        self._fetch([record])
        verify(record, expect, self._log_id)

    def read_many(self, requests: Sequence[ReadRequest]) -> list[RecordMissError | None]:
        """Read several records as `read_into` does, those that lie one behind the other by one call.

        Returns:
            For each request, in order: None if its bytes are right, else why it is a miss. A request whose record is
            not read never spoils another.

        Raises:
            ValueError: A buffer is too small or not writable; nothing was read.
        """
        for request in requests:
            _check_buffer(request)
        return [outcome for span in _spans(requests) for outcome in self._read_span(span)]

    def read_key(self, ref: BlobRef) -> RecordKey:
        """Return what the header at `ref` says the record is; its payload is not looked at.

        Raises:
            RecordMissError: One of its children, by what is wrong.
        """
        header, tail = self._scratch.pages[:2]
        record = Arrived(self._path(ref), ref, header, memoryview(b""), tail)
        self._fetch([record])
        return checked_header(record, self._log_id).key

    def header_at(self, segment: int, offset: int) -> RecordHeader:
        """Return the header of whatever record was written for this place; its payload is not looked at.

        Raises:
            RecordMissError: One of its children, by what is wrong.
        """
        header, tail = self._scratch.pages[:2]
        record = Arrived(
            self._path(BlobRef(segment, offset, 0)), BlobRef(segment, offset, 0), header, memoryview(b""), tail
        )
        self._fetch([record])
        return checked_header(record, self._log_id, any_length=True)

    def _read_span(self, span: list[ReadRequest]) -> list[RecordMissError | None]:
        if len(span) > 1:
            records = self._arrivals(span)
            try:
                self._fetch(records)
            except RecordMissError:
                pass
            else:
                pairs = zip(records, span, strict=True)
                return [self._outcome_of_bytes(record, request.expect) for record, request in pairs]
        return [self._outcome_alone(request) for request in span]

    def _outcome_of_bytes(self, record: Arrived, expect: RecordKey) -> RecordMissError | None:
        try:
            verify(record, expect, self._log_id)
        except RecordMissError as error:
            return error
        return None

    def _outcome_alone(self, request: ReadRequest) -> RecordMissError | None:
        try:
            self.read_into(*request)
        except RecordMissError as error:
            return error
        return None

    def _path(self, ref: BlobRef) -> str:
        return f"{self._directory}/{segment_name(ref.segment)}"

    def _check_place(self, request: ReadRequest) -> None:
        ref, expect, _ = request
        if ref.length != expect.length:
            says = f"{ref.length} bytes lie there, {expect.length} are asked for"
            raise WrongRecordError(self._path(ref), ref.offset, "length", says)

    def _arrivals(self, span: Iterable[ReadRequest]) -> list[Arrived]:
        pages = iter(self._scratch.pages)
        return [
            Arrived(self._path(ref), ref, next(pages), as_bytes(buffer)[: expect.length], next(pages))
            for ref, expect, buffer in span
        ]

    def _fetch(self, records: Sequence[Arrived]) -> None:
        direct = self._direct and all(is_aligned(record.payload) for record in records)
        try:
            self._fetch_once(records, direct=direct)
        except UnreadableError as error:
            if not direct or error.errno != errno.EINVAL:
                raise
            # This memory or this file does not take direct I/O although the probe did.
            self._fetch_once(records, direct=False)

    def _fetch_once(self, records: Sequence[Arrived], *, direct: bool) -> None:
        path, ref = records[0].path, records[0].ref
        if ref.offset % PAGE or ref.offset < PAGE:
            raise MissingError(path, ref.offset, "offset", "no record can start there")
        buffers = [buffer for record in records for buffer in record.buffers]
        wanted = sum(map(len, buffers))
        with open_segment(self._io, path, ref.offset, direct=direct) as file:
            if ref.offset >= file.size:
                raise MissingError(path, ref.offset, "file", f"the file ends at byte {file.size}")
            try:
                got = transfer(lambda parts, at: self._io.preadv(file.fd, parts, at), buffers, ref.offset)
            except OSError as error:
                raise UnreadableError(path, ref.offset, error) from error
        if got < wanted:
            raise DamagedError(path, ref.offset, "truncated", f"only {got} of {wanted} bytes are there")


def _check_buffer(request: ReadRequest) -> None:
    view, needed = request.buffer, request.expect.length
    if view.readonly or view.nbytes < needed:
        raise ValueError(f"buffer: {needed} writable bytes are needed, {view.nbytes} given")


def _spans(requests: Sequence[ReadRequest]) -> Iterator[list[ReadRequest]]:
    """Yield runs of requests, in order, of which each record lies directly behind the one before."""
    span: list[ReadRequest] = []
    size = 0
    for request in requests:
        taken = record_bytes(request.ref.length)
        fits = len(span) < _SPAN_RECORDS and size + taken <= _SPAN_BYTES
        if span and not (fits and _adjacent(span[-1], request)):
            yield span
            span, size = [], 0
        span.append(request)
        size += taken
    if span:
        yield span


def _adjacent(first: ReadRequest, second: ReadRequest) -> bool:
    here, there = first.ref, second.ref
    follows = there.segment == here.segment and there.offset == here.offset + record_bytes(here.length)
    return follows and here.length == first.expect.length and there.length == second.expect.length
