"""Segments: the files that frames lie in, and how one is read to its end.

A segment is made as a spare: preallocated, zero, synced, under a name that is not part of the log. When its turn comes
its header is written and synced, and only then it is renamed to `<first seq, 20 digits>.seg` and the directory synced.
So a name that belongs to the log always shows a whole header and the full length, whatever moment the machine stops
at, and damage to either is rot and never the trace of a crash. (The other way, creating the file under its final name
and filling in the header later, would make a torn header a legal state that recovery had to tell from rot.)

Zero bytes from the last frame to the end of the file mean that the log ends, or goes on in the next segment.
"""

from __future__ import annotations

import enum
import re
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec
from crc32c import crc32c

from kvledger_storage.log.errors import FrameError, LogVersionError
from kvledger_storage.log.frame import (
    CHAIN_BYTES,
    HEADER_BYTES,
    LOG_ID_BYTES,
    MAGIC,
    MAX_PAYLOAD_BYTES,
    Frame,
    FrameHeader,
    decode_frame,
    decode_header,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

SEGMENT_BYTES: Final = 16 << 20
FORMAT_VERSION: Final = 1
SEGMENT_MAGIC: Final = b"KVLSEGMT"
# magic, data format version, segment length, log id, first seq, previous chain, CRC32C of all before
_HEADER: Final = struct.Struct(f"<8sIQ{LOG_ID_BYTES}sQ{CHAIN_BYTES}sI")
_CRC: Final = struct.Struct("<I")
# Compared piece by piece: the rest of a segment may be megabytes, and so many zeros are not worth making.
_ZEROS: Final = bytes(64 << 10)
SEGMENT_HEADER_BYTES: Final = _HEADER.size
MIN_SEGMENT_BYTES: Final = 1024
_NAME: Final = re.compile(r"\d{20}\.seg")

assert SEGMENT_HEADER_BYTES == 80
assert SEGMENT_HEADER_BYTES + HEADER_BYTES + MAX_PAYLOAD_BYTES <= SEGMENT_BYTES, (
    "the largest frame fits a fresh segment"
)
assert len(str((1 << 64) - 1)) == 20, "names of 20 digits sort like the numbers that they hold"


class SegmentHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What stands at the start of a segment: its log, its length in bytes, and where in the chain it begins."""

    format_version: int
    size: int
    log_id: bytes
    first_seq: int
    previous_chain: bytes


class End(enum.Enum):
    """How the frames of a segment end."""

    ZEROS = "zeros"
    """Nothing but zero bytes up to the full length."""
    BAD = "bad frame"
    """Something else than a whole frame, or a file of the wrong length."""
    BREAK = "break"
    """A whole frame, or segment header, that does not follow what stands before it."""


def segment_name(first_seq: int) -> str:
    """Return the file name of the segment whose first event is `first_seq`."""
    return f"{first_seq:020d}.seg"


def first_seq_of(name: str) -> int:
    """Return the first event of the segment that has this file name."""
    return int(name[:20])


def segment_names(names: list[str]) -> list[str]:
    """Return those of `names` that are segments, in log order."""
    return sorted(name for name in names if _NAME.fullmatch(name))


def payload_cap(segment_bytes: int) -> int:
    """Return the most bytes of payload that one frame may hold in segments of this size."""
    return min(MAX_PAYLOAD_BYTES, segment_bytes - SEGMENT_HEADER_BYTES - HEADER_BYTES)


def encode_segment_header(header: SegmentHeader) -> bytes:
    """Return the `SEGMENT_HEADER_BYTES` bytes of a segment header."""
    fields = (header.format_version, header.size, header.log_id, header.first_seq, header.previous_chain)
    unsigned = _HEADER.pack(SEGMENT_MAGIC, *fields, 0)[: -_CRC.size]
    return unsigned + _CRC.pack(crc32c(unsigned))


def decode_segment_header(data: bytes) -> SegmentHeader:
    """Return the header at the start of `data`.

    Raises:
        FrameError: There is no whole segment header.
        LogVersionError: There is one, of a newer data format.
    """
    raw = data[:SEGMENT_HEADER_BYTES]
    if len(raw) < SEGMENT_HEADER_BYTES or raw[: len(SEGMENT_MAGIC)] != SEGMENT_MAGIC:
        raise FrameError("segment magic", 0, SEGMENT_MAGIC.hex(), raw[: len(SEGMENT_MAGIC)].hex() or "end of file")
    _, version, size, log_id, first_seq, chain, crc = _HEADER.unpack(raw)
    computed = crc32c(raw[: -_CRC.size])
    if computed != crc:
        raise FrameError("segment header CRC32C", 0, f"{computed:08x} for these bytes", f"{crc:08x}")
    if version > FORMAT_VERSION:
        raise LogVersionError(segment_name(first_seq), "data format version", version, FORMAT_VERSION)
    return SegmentHeader(format_version=version, size=size, log_id=log_id, first_seq=first_seq, previous_chain=chain)


class SegmentScan:
    """One pass over the frames of a segment.

    Iterating yields `(offset, Frame)` for each whole frame that follows in sequence and chain. When it ends, `end` says
    how, `problem` what was wrong (None after zeros), and `offset`, `next_seq` and `chain` where the log could go on.

    Args:
        data: The segment's content from its first byte.
        header: Its decoded header; sequence and chain are checked from what it names.
    """

    def __init__(self, data: bytes, header: SegmentHeader) -> None:
        self.data = data
        self.header = header
        self.offset = SEGMENT_HEADER_BYTES
        self.next_seq = header.first_seq
        self.chain = header.previous_chain
        self.end = End.ZEROS
        self.problem: FrameError | None = None
        self._skipped = False

    def skip_before(self, seq: int) -> None:
        """Pass over frames that end before `seq` by their headers alone: neither payload nor chain is checked.

        The frame behind them is then taken at its word about the chain before it.
        """
        while not self._at_zeros():
            try:
                header = decode_header(self.data, self.offset, self.header.log_id)
            except FrameError:
                return
            if header.first_seq != self.next_seq or header.last_seq >= seq:
                return
            self.offset += HEADER_BYTES + header.length
            self.next_seq, self._skipped = header.last_seq + 1, True

    def __iter__(self) -> Iterator[tuple[int, Frame]]:
        """Yield whole frames in order until the end, then set `end` and `problem`."""
        while not self._at_zeros():
            try:
                frame = decode_frame(self.data, self.offset, self.header.log_id)
            except FrameError as error:
                self.end, self.problem = End.BAD, error
                return
            if not self._follows(frame.header):
                return
            offset = self.offset
            self.offset, self.next_seq, self.chain = offset + frame.size, frame.header.last_seq + 1, frame.chain
            self._skipped = False
            yield offset, frame
        if len(self.data) != self.header.size:
            self.end = End.BAD
            self.problem = FrameError(
                "file length", self.offset, f"{self.header.size} bytes", f"{len(self.data)} bytes"
            )

    def later_headers(self) -> Iterator[FrameHeader]:
        """Yield the frame headers that pass their CRC behind the place where the scan stopped.

        A header alone is enough evidence: its CRC is bound to this log, and the write that carried it began after the
        frame before it had been handed to the kernel in full.
        """
        return headers_from(self.data, self.offset + 1, self.header.log_id)

    def tail(self) -> bytes:
        """Return what stands behind the last whole frame, without the zeros at its end."""
        return self.data[self.offset :].rstrip(b"\0")

    def let_go(self) -> None:
        """Forget the content, a whole segment; where and how the scan ended is kept."""
        self.data = b""

    def _at_zeros(self) -> bool:
        if any(self.data[self.offset : self.offset + len(MAGIC)]):
            return False
        starts = range(self.offset, len(self.data), len(_ZEROS))
        return all(self.data[start : start + len(_ZEROS)] == _ZEROS[: len(self.data) - start] for start in starts)

    def _follows(self, header: FrameHeader) -> bool:
        """Tell whether this header continues sequence and chain; if not, end the scan with a break."""
        if header.first_seq != self.next_seq:
            found = str(header.first_seq)
            self.problem = FrameError("first seq", self.offset, str(self.next_seq), found)
        elif header.previous_chain != self.chain and not self._skipped:
            self.problem = FrameError("previous chain", self.offset, self.chain.hex(), header.previous_chain.hex())
        else:
            return True
        self.end = End.BREAK
        return False


def headers_from(data: bytes, offset: int, log_id: bytes) -> Iterator[FrameHeader]:
    """Yield every frame header of this log at or behind `offset`, whatever stands between them."""
    while (offset := data.find(MAGIC, offset)) >= 0:
        with suppress(FrameError):
            yield decode_header(data, offset, log_id)
        offset += 1
