"""What cleaning and scrubbing share: reading the live records of a segment, and choosing the segment worth cleaning.

Both go by the place of a record and by its own header, and know nothing of the index: what they find is a claim that
whoever keeps the index compares with what it says.
"""

from collections.abc import Iterable
from typing import NamedTuple

from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk.errors import RecordMissError, UnreadableError
from kvledger_storage.disk.pages import PAGE, new_bytes
from kvledger_storage.disk.reader import RecordReader
from kvledger_storage.disk.record import RecordKey, record_bytes
from kvledger_storage.disk.segments import HeaderState, SegmentInfo

__all__ = ["Held", "Part", "dead_bytes", "read_part", "worth_cleaning"]


class Held(NamedTuple):
    """A live record as it was read.

    Attributes:
        ref: Where it lies.
        key: What its header says it is.
        payload: Its bytes; anything if they are not right.
        error: Why they are not, empty if they are.
    """

    ref: BlobRef
    key: RecordKey
    payload: memoryview
    error: str


class Part(NamedTuple):
    """Some of the live records of a segment.

    Attributes:
        records: Those with a sound header, in order.
        lost: Places at which no header of a record stands, each with what is wrong.
        unread: Records that the system refused to read; their bytes may still be good.
        next_offset: Byte of the segment from which to go on; 0 if nothing is behind.
        bytes: What the records take on disk.
    """

    records: list[Held]
    lost: list[tuple[BlobRef, str]]
    unread: int
    next_offset: int
    bytes: int


def read_part(reader: RecordReader, number: int, offsets: Iterable[int], budget: int) -> Part:
    """Read live records one by one, each against the fingerprint in its own header, until `budget` bytes were read.

    Args:
        reader: Reads records.
        number: The segment.
        offsets: Where its live records begin, ascending.
        budget: Bytes after which no further record is begun; one at least is read.
    """
    records: list[Held] = []
    lost: list[tuple[BlobRef, str]] = []
    unread = size = 0
    for offset in offsets:
        if size >= budget:
            return Part(records, lost, unread, offset, size)
        try:
            held = _held(reader, number, offset)
        except UnreadableError:
            unread += 1
            size += PAGE
        except RecordMissError as error:
            lost.append((BlobRef(number, offset, 0), error.message))
            size += PAGE
        else:
            records.append(held)
            size += record_bytes(held.key.length)
    return Part(records, lost, unread, 0, size)


def _held(reader: RecordReader, number: int, offset: int) -> Held:
    header = reader.header_at(number, offset)
    payload = new_bytes(header.key.length)
    try:
        reader.read_into(header.ref, header.key, payload)
    except UnreadableError:
        raise
    except RecordMissError as error:
        return Held(header.ref, header.key, payload, error.message)
    return Held(header.ref, header.key, payload, "")


def dead_bytes(info: SegmentInfo) -> int:
    """Return the bytes of a segment file that hold nothing alive, its header left out."""
    return max(0, info.file_bytes - PAGE - info.live_bytes)


def worth_cleaning(infos: Iterable[SegmentInfo], room: int, *, urgent: bool) -> SegmentInfo | None:
    """Return the segment whose live records are best copied elsewhere, None if there is none.

    Copying costs what is live and gains what is dead, so the one with the least live share goes first.

    Args:
        infos: All segments.
        room: Bytes that copies may take until the file they came from is gone.
        urgent: Somebody waits for room: whatever gains something is worth it, and not only what is half dead.
    """
    best: SegmentInfo | None = None
    for info in infos:
        ours = info.header in {HeaderState.OURS, HeaderState.DAMAGED}
        if not ours or not info.closed or not info.live_bytes or info.live_bytes + PAGE > room:
            continue
        dead = dead_bytes(info)
        if not dead or (dead < info.live_bytes and not urgent):
            continue
        if best is None or info.live_bytes * best.file_bytes < best.live_bytes * info.file_bytes:
            best = info
    return best
