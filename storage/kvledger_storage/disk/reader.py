"""Reading one record, straight into the caller's memory, and believing nothing that was read.

Header page, whole payload pages and the last partial page arrive in one call; the partial page passes through memory
of our own, so that not one byte behind the payload is touched. The order of checks goes from place to bytes: file,
size, header, whose record, padding, fingerprint. Safe from any number of threads: nothing is shared but constants.
"""

import errno
import threading

from kvledger_storage.disk.blob_io import BlobIO
from kvledger_storage.disk.errors import DamagedError, MissingError, UnreadableError, WrongRecordError
from kvledger_storage.disk.files import OpenFile, open_segment
from kvledger_storage.disk.pages import PAGE, ZERO_PAGE, is_aligned, new_pages, tail_of, transfer
from kvledger_storage.disk.record import (
    BadHeaderError,
    BlobRef,
    RecordHeader,
    RecordKey,
    decode_header,
    fingerprint_of,
    record_bytes,
)
from kvledger_storage.disk.segments import segment_name

__all__ = ["RecordReader"]


class _Scratch(threading.local):
    """Of each thread its own: a page for the header and one for the last, partial page of the payload."""

    def __init__(self) -> None:
        pages = new_pages(2)
        self.header = pages[:PAGE]
        self.tail = pages[PAGE:]


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

    def path(self, segment: int) -> str:
        """Return the path of segment file number `segment`."""
        return f"{self._directory}/{segment_name(segment)}"

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
        view = buffer.cast("B")
        if view.readonly or len(view) < expect.length:
            raise ValueError(f"buffer: {expect.length} writable bytes are needed, {len(view)} given")
        self._check_place(ref)
        if ref.length != expect.length:
            raise WrongRecordError(
                self.path(ref.segment), ref.offset, "length", f"{ref.length} bytes lie there, {expect.length} are asked"
            )
        view = view[: expect.length]
        self._fetch(ref, view)
        self._check_header(ref, expect)
        self._take_tail(ref, view)
        if fingerprint_of(view) != expect.fingerprint:
            raise DamagedError(
                self.path(ref.segment), ref.offset, "payload", "the fingerprint is not the committed one"
            )

    def read_key(self, ref: BlobRef) -> RecordKey:
        """Return what the header at `ref` says the record is; its payload is not looked at.

        Raises:
            RecordMissError: One of its children, by what is wrong.
        """
        self._check_place(ref)
        self._fetch(ref, memoryview(b""), header_only=True)
        return self._header(ref).key

    def _check_place(self, ref: BlobRef) -> None:
        if ref.offset % PAGE or ref.offset < PAGE or ref.length < 0:
            raise MissingError(self.path(ref.segment), ref.offset, "offset", "no record can start there")

    def _fetch(self, ref: BlobRef, payload: memoryview, *, header_only: bool = False) -> None:
        direct = self._direct and is_aligned(payload)
        try:
            self._fetch_once(ref, payload, header_only=header_only, direct=direct)
        except UnreadableError as error:
            if not direct or error.errno != errno.EINVAL:
                raise
            # This memory or this file does not take direct I/O although the probe did.
            self._fetch_once(ref, payload, header_only=header_only, direct=False)

    def _fetch_once(self, ref: BlobRef, payload: memoryview, *, header_only: bool, direct: bool) -> None:
        path = self.path(ref.segment)
        wanted = PAGE if header_only else record_bytes(ref.length)
        with open_segment(self._io, path, ref.offset, direct=direct) as file:
            self._check_size(ref, file, wanted)
            whole = len(payload) - tail_of(len(payload))
            last = self._scratch.tail[: PAGE if tail_of(len(payload)) else 0]
            buffers = [self._scratch.header, payload[:whole], last]
            try:
                got = transfer(lambda parts, at: self._io.preadv(file.fd, parts, at), buffers, ref.offset)
            except OSError as error:
                raise UnreadableError(path, ref.offset, error) from error
        if got < sum(map(len, buffers)):
            raise DamagedError(path, ref.offset, "truncated", f"{got} of {wanted} bytes of the record are there")

    def _check_size(self, ref: BlobRef, file: OpenFile, wanted: int) -> None:
        if ref.offset >= file.size:
            raise MissingError(self.path(ref.segment), ref.offset, "file", f"the file ends at byte {file.size}")
        if ref.offset + wanted > file.size:
            raise DamagedError(self.path(ref.segment), ref.offset, "truncated", f"the file ends at byte {file.size}")

    def _header(self, ref: BlobRef) -> RecordHeader:
        path = self.path(ref.segment)
        try:
            header = decode_header(self._scratch.header)
        except BadHeaderError as error:
            raise DamagedError(path, ref.offset, "header", str(error)) from error
        if header.log_id != self._log_id:
            raise WrongRecordError(path, ref.offset, "log_id", "the record belongs to another log")
        if header.ref != ref:
            raise WrongRecordError(path, ref.offset, "place", f"the record was written for {header.ref}")
        return header

    def _check_header(self, ref: BlobRef, expect: RecordKey) -> None:
        found = self._header(ref).key
        differing = [name for name in RecordKey._fields if getattr(found, name) != getattr(expect, name)]
        if differing:
            raise WrongRecordError(
                self.path(ref.segment), ref.offset, differing[0], f"another record: {', '.join(differing)} differ"
            )

    def _take_tail(self, ref: BlobRef, view: memoryview) -> None:
        size = tail_of(len(view))
        if not size:
            return
        if self._scratch.tail[size:] != ZERO_PAGE[size:]:
            raise DamagedError(self.path(ref.segment), ref.offset, "padding", "the padding is not zero")
        view[len(view) - size :] = self._scratch.tail[:size]
