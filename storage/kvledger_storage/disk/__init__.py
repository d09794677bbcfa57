"""The disk tier: append-only segments of self-describing, fingerprinted records, read by direct I/O where possible."""

from kvledger_storage.disk.blob_io import BlobIO, FileStat, OsBlobIO
from kvledger_storage.disk.errors import (
    DamagedError,
    DirectoryError,
    DiskFullError,
    MissingError,
    NewerVersionError,
    NotAdoptedError,
    QuotaExceededError,
    ReadOnlyError,
    RecordMissError,
    SourceDamagedError,
    TierError,
    UnreadableError,
    WriteFailedError,
    WrongRecordError,
)
from kvledger_storage.disk.reader import ReadRequest
from kvledger_storage.disk.record import RecordIn, RecordKey, RecordType, fingerprint_of, record_bytes
from kvledger_storage.disk.scan import ScannedDamage, ScannedRecord
from kvledger_storage.disk.segments import HeaderState, SegmentInfo
from kvledger_storage.disk.store import DEFAULT_SEGMENT_BYTES, DiskStore

__all__ = [
    "DEFAULT_SEGMENT_BYTES",
    "BlobIO",
    "DamagedError",
    "DirectoryError",
    "DiskFullError",
    "DiskStore",
    "FileStat",
    "HeaderState",
    "MissingError",
    "NewerVersionError",
    "NotAdoptedError",
    "OsBlobIO",
    "QuotaExceededError",
    "ReadOnlyError",
    "ReadRequest",
    "RecordIn",
    "RecordKey",
    "RecordMissError",
    "RecordType",
    "ScannedDamage",
    "ScannedRecord",
    "SegmentInfo",
    "SourceDamagedError",
    "TierError",
    "UnreadableError",
    "WriteFailedError",
    "WrongRecordError",
    "fingerprint_of",
    "record_bytes",
]
