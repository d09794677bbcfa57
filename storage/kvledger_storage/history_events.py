"""What happens to the log's own past: archived when no start needs it, retired when it takes too much room."""

import msgspec

__all__ = ["ArchiveRetired", "SegmentsArchived"]


class _HistoryEvent(msgspec.Struct, frozen=True, array_like=True):
    """Base of these events."""


class SegmentsArchived(_HistoryEvent, frozen=True, tag="segments_archived.1"):
    """A start reads the log from event `seq` on, whose segment names `chain`; what lies before was archived."""

    seq: int
    chain: bytes


class ArchiveRetired(_HistoryEvent, frozen=True, tag="archive_retired.1"):
    """Nothing is left of the log before event `seq`, whose segment names `chain`; a snapshot holds what it made."""

    seq: int
    chain: bytes
    reason: str
