"""What can go wrong with the data segments, sorted by what the caller does next.

`RecordMissError` and its children mean one record can not be had: the object is a miss and the index is repaired, once.
`TierError` and its children mean bytes could not be stored: nothing of that batch was stored, whatever is on disk stays
readable. Every error names the file, so that an operator can look at it without a debugger.
"""

from typing import ClassVar

from kvledger.errors import CallerError, ServiceError

__all__ = [
    "DamagedError",
    "DirectoryError",
    "DiskFullError",
    "MissingError",
    "NewerVersionError",
    "NotAdoptedError",
    "QuotaExceededError",
    "ReadOnlyError",
    "RecordMissError",
    "SourceDamagedError",
    "TierError",
    "UnreadableError",
    "WriteFailedError",
    "WrongRecordError",
]


class RecordMissError(ServiceError):
    """A record can not be had; treat its object as a miss.

    Attributes:
        file: Path of the segment file.
        offset: Byte in that file at which the record was expected.
        what: Which part is wrong, in one word or field name.
    """

    code = "disk_miss"
    _remedy: ClassVar[str] = "treat the object as a miss and drop this reference"

    def __init__(self, file: str, offset: int, what: str, message: str) -> None:
        self.file = file
        self.offset = offset
        self.what = what
        super().__init__(f"{message}, at byte {offset} of {file}", field=what, remedy=self._remedy)


class MissingError(RecordMissError):
    """The segment file is gone, is no regular file any more, or ends before the record begins."""

    code = "disk_missing"


class DamagedError(RecordMissError):
    """The record's bytes are not those that were written; `what` is header, payload, padding or truncated."""

    code = "disk_damaged"


class WrongRecordError(RecordMissError):
    """A sound record, but another one than asked for: swapped, copied over, or the place was used again."""

    code = "disk_wrong_record"


class UnreadableError(RecordMissError):
    """The device or the system refused the read; the bytes may still be good.

    Attributes:
        errno: What the system said. The caller counts these: many of them mean a sick tier, not sick records.
    """

    code = "disk_unreadable"
    _remedy = "treat it as a miss now; the record may be read again once the tier is healthy"

    def __init__(self, file: str, offset: int, error: OSError) -> None:
        self.errno = error.errno or 0
        super().__init__(file, offset, "read", f"the system refused the read ({error.strerror or error})")


class TierError(ServiceError):
    """The tier as a whole can not do what was asked; nothing was stored and what is stored stays readable."""

    code = "disk_tier"


class QuotaExceededError(TierError):
    """The batch would make the segment files larger than the quota.

    Attributes:
        needed: Bytes that the batch takes on disk, headers and padding included.
        free: Bytes left under the quota.
    """

    code = "disk_quota"

    def __init__(self, needed: int, free: int) -> None:
        self.needed = needed
        self.free = free
        super().__init__(
            f"the batch takes {needed} bytes on disk and {free} are left",
            field="quota_bytes",
            remedy="drop references and unlink dead segments, or raise the quota",
        )


class ReadOnlyError(TierError):
    """The tier takes no writes; the text tells why it stopped."""

    code = "disk_read_only"

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the disk tier takes no writes: {reason}",
            field="read_only",
            remedy="free space or repair the file system, then allow writes again",
        )


class WriteFailedError(TierError):
    """A write, a sync or a change of the directory failed; the batch was taken back as a whole.

    Attributes:
        errno: What the system said.
    """

    code = "disk_write_failed"
    _remedy: ClassVar[str] = "nothing of the batch was stored; the next batch goes to a fresh segment file"

    def __init__(self, file: str, error: OSError) -> None:
        self.file = file
        self.errno = error.errno or 0
        super().__init__(f"{file}: {error.strerror or error}", field="segment", remedy=self._remedy)


class DiskFullError(WriteFailedError):
    """The file system is full; the tier is read-only from here on."""

    code = "disk_full"
    _remedy = "unlink dead segments or free space, then allow writes again"


class DirectoryError(TierError):
    """The directory can not be used at all."""

    code = "disk_directory"


class NewerVersionError(DirectoryError):
    """A segment was written by a newer version of kvledger; opening it could destroy what this version can't see."""

    code = "disk_newer_version"


class SourceDamagedError(TierError):
    """The bytes handed in do not have the fingerprint they were committed with.

    Attributes:
        index: Which record of the batch it is.
    """

    code = "disk_source_damaged"

    def __init__(self, index: int) -> None:
        self.index = index
        super().__init__(
            f"the bytes of record {index} do not have their committed fingerprint",
            field="payload",
            remedy="quarantine the object that the bytes came from; the rest of the batch may be sent again",
        )


class NotAdoptedError(CallerError):
    """The directory holds segments of an earlier run, and nobody has said yet which of their records are alive."""

    code = "disk_not_adopted"
