"""Segment files: their names, their header page, and how many of their bytes are alive.

A segment's header names the log it belongs to and its own number, so that a file of another log, or one renamed to
another's place, is noticed when the directory is opened. What is alive is one bit a page: small enough for millions of
records (8 KiB for a full segment), and dropping a record twice can not be mistaken for dropping two.
"""

import enum
import re
import struct
from dataclasses import dataclass, field
from typing import NamedTuple

import crc32c

from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk.pages import PAGE, ZERO_PAGE
from kvledger_storage.disk.record import LOG_ID_BYTES, record_bytes

__all__ = [
    "MAX_SEGMENT",
    "HeaderState",
    "Segment",
    "SegmentInfo",
    "encode_segment_header",
    "judge_segment_header",
    "log_id_in",
    "segment_name",
    "segment_number",
]

# Ten digits keep names sorted; at 256 MiB a segment that is 2.5 EiB.
MAX_SEGMENT = 9_999_999_999

_MAGIC = b"KVLSEGMT"
_VERSION = 1
_HEADER = struct.Struct("<8sHQ16s")
_CRC = struct.Struct("<I")
_CRC_AT = PAGE - _CRC.size
_NAME = re.compile(r"([0-9]{10})\.seg")


class HeaderState(enum.Enum):
    """What the header page of a segment file says."""

    OURS = "ours"
    UNWRITTEN = "unwritten"  # cut off while the file was made: short, or nothing but zeros
    DAMAGED = "damaged"
    FOREIGN = "of another log or another number"
    NEWER = "of a newer version"
    UNUSABLE = "not a readable regular file"


class SegmentInfo(NamedTuple):
    """Of one segment: number, path, size of the file and live bytes in it (headers and padding included)."""

    number: int
    path: str
    file_bytes: int
    live_bytes: int
    closed: bool
    header: HeaderState


@dataclass(slots=True)
class Segment:
    """Accounting of one segment file.

    Attributes:
        number: Its number; file names derive from it.
        file_bytes: Size of the file, so where the next record would start.
        header: What its header page says.
        live_bytes: Bytes of records that are alive, headers and padding included.
        closed: Nothing is appended to it any more.
        end_of_live: Where the last record ends that was ever counted as alive.
    """

    number: int
    file_bytes: int
    header: HeaderState
    live_bytes: int = 0
    closed: bool = True
    end_of_live: int = PAGE
    _alive: bytearray = field(default_factory=bytearray)

    @property
    def dead(self) -> bool:
        """Whether the whole file can go: closed, provably ours, and nothing in it is alive.

        A damaged header proves nothing, but a live record that was adopted in the file does.
        """
        ours = self.header in (HeaderState.OURS, HeaderState.UNWRITTEN)
        adopted = self.header is HeaderState.DAMAGED and self.end_of_live > PAGE
        return self.closed and not self.live_bytes and (ours or adopted)

    def holds(self, ref: BlobRef) -> bool:
        """Return whether a record of `ref`'s size fits at its offset within the file."""
        aligned = ref.offset % PAGE == 0 and ref.offset >= PAGE
        return aligned and ref.length >= 0 and ref.offset + record_bytes(ref.length) <= self.file_bytes

    def revive(self, ref: BlobRef) -> None:
        """Count the record at `ref` as alive; once, however often it is said."""
        byte, bit = self._bit(ref)
        if byte >= len(self._alive):
            self._alive.extend(bytes(byte + 1 - len(self._alive)))
        if not self._alive[byte] & bit:
            self._alive[byte] |= bit
            self.live_bytes += record_bytes(ref.length)
            self.end_of_live = max(self.end_of_live, ref.offset + record_bytes(ref.length))

    def drop(self, ref: BlobRef) -> int:
        """Count the record at `ref` as dead and return the bytes it took; 0 if it was not alive."""
        byte, bit = self._bit(ref)
        if byte >= len(self._alive) or not self._alive[byte] & bit:
            return 0
        self._alive[byte] &= ~bit
        self.live_bytes -= record_bytes(ref.length)
        return record_bytes(ref.length)

    def alive_from(self, offset: int) -> list[int]:
        """Return where the records that are alive begin, from byte `offset` of the file on, ascending."""
        alive = int.from_bytes(self._alive, "little") >> (first := -(-offset // PAGE))
        found = []
        while alive:
            step = (alive & -alive).bit_length()
            first += step
            alive >>= step
            found.append((first - 1) * PAGE)
        return found

    @staticmethod
    def _bit(ref: BlobRef) -> tuple[int, int]:
        page = ref.offset // PAGE
        return page // 8, 1 << page % 8


def segment_name(number: int) -> str:
    """Return the file name of segment `number`."""
    return f"{number:010d}.seg"


def segment_number(name: str) -> int | None:
    """Return the number of the segment file called `name`, or None if it is no segment's name."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def encode_segment_header(page: memoryview, number: int, log_id: bytes) -> None:
    """Write the header of segment `number` into `page`, 4,096 writable bytes."""
    page[:] = ZERO_PAGE
    _HEADER.pack_into(page, 0, _MAGIC, _VERSION, number, log_id)
    _CRC.pack_into(page, _CRC_AT, crc32c.crc32c(page[:_CRC_AT]))


def log_id_in(page: memoryview) -> bytes | None:
    """Return the log that the header in `page` names, None if it is no sound header."""
    if len(page) < PAGE or page[: len(_MAGIC)] != _MAGIC:
        return None
    if _CRC.unpack_from(page, _CRC_AT)[0] != crc32c.crc32c(page[:_CRC_AT]):
        return None
    named: bytes = _HEADER.unpack_from(page)[3]
    return named


def judge_segment_header(page: memoryview, number: int, log_id: bytes) -> HeaderState:
    """Return what `page`, up to 4,096 bytes read from the start of segment `number`, says."""
    if len(log_id) != LOG_ID_BYTES:
        raise ValueError(f"log_id: {len(log_id)} bytes where {LOG_ID_BYTES} are meant")
    if len(page) < PAGE or page == ZERO_PAGE:
        return HeaderState.UNWRITTEN
    magic, version, found_number, found_log = _HEADER.unpack_from(page)
    if magic != _MAGIC or _CRC.unpack_from(page, _CRC_AT)[0] != crc32c.crc32c(page[:_CRC_AT]):
        return HeaderState.DAMAGED
    if version > _VERSION:
        return HeaderState.NEWER
    return HeaderState.OURS if (found_number, found_log) == (number, log_id) else HeaderState.FOREIGN
