"""Deciding whether what was read is what was asked for, and saying exactly what is not.

The order goes from place to bytes: header sound, of this log, written for this place, of the record that was asked for,
padding zero, fingerprint as committed. Only a record that passes all of it counts as read.
"""

from typing import NamedTuple

from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk.errors import DamagedError, WrongRecordError
from kvledger_storage.disk.pages import PAGE, ZERO_PAGE, tail_of
from kvledger_storage.disk.record import BadHeaderError, RecordHeader, RecordKey, decode_header, fingerprint_of

__all__ = ["Arrived", "checked_header", "verify"]


class Arrived(NamedTuple):
    """A record as it came off the disk, before anything of it is believed.

    Attributes:
        path: The segment file, for errors.
        ref: Where it was read.
        header: Its header page.
        payload: Exactly the payload's bytes of the caller's memory; whole pages are filled, the last partial one not.
        tail: The page that holds the payload's last, partial page and the padding; unused if there is none.
    """

    path: str
    ref: BlobRef
    header: memoryview
    payload: memoryview
    tail: memoryview

    @property
    def buffers(self) -> list[memoryview]:
        """What a read of this record fills, in order."""
        size = tail_of(len(self.payload))
        return [self.header, self.payload[: len(self.payload) - size], self.tail[: PAGE if size else 0]]


def verify(record: Arrived, expect: RecordKey, log_id: bytes) -> None:
    """Complete the payload of `record` if it is the record `expect`, bytes included.

    Raises:
        DamagedError: Header, padding or payload are not what was written.
        WrongRecordError: It is another record, or was written for another place.
    """
    _check_identity(record, checked_header(record, log_id).key, expect)
    _take_tail(record)
    if fingerprint_of(record.payload) != expect.fingerprint:
        raise DamagedError(record.path, record.ref.offset, "payload", "the fingerprint is not the committed one")


def checked_header(record: Arrived, log_id: bytes, *, any_length: bool = False) -> RecordHeader:
    """Return the header of `record` if it is sound, of this log and written for this place, with the length asked for.

    Raises:
        DamagedError: It is no sound header.
        WrongRecordError: It was written for another log or another place, which the text names.
    """
    try:
        header = decode_header(record.header)
    except BadHeaderError as error:
        raise DamagedError(record.path, record.ref.offset, "header", str(error)) from error
    if header.log_id != log_id:
        raise WrongRecordError(record.path, record.ref.offset, "log_id", "the record belongs to another log")
    if (header.ref._replace(length=record.ref.length) if any_length else header.ref) != record.ref:
        raise WrongRecordError(
            record.path, record.ref.offset, "place", f"the record was written for {header.ref}, not for {record.ref}"
        )
    return header


def _check_identity(record: Arrived, found: RecordKey, expect: RecordKey) -> None:
    differing = [name for name in RecordKey._fields if getattr(found, name) != getattr(expect, name)]
    if differing:
        raise WrongRecordError(
            record.path, record.ref.offset, differing[0], f"another record: {', '.join(differing)} differ"
        )


def _take_tail(record: Arrived) -> None:
    size = tail_of(len(record.payload))
    if not size:
        return
    if record.tail[size:] != ZERO_PAGE[size:]:
        raise DamagedError(record.path, record.ref.offset, "padding", "the padding is not zero")
    record.payload[len(record.payload) - size :] = record.tail[:size]
