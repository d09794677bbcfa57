"""Applying events about the log's own past."""

from kvledger_storage.events import ArchiveRetired, SegmentsArchived
from kvledgerd.core.state import State

__all__ = ["archive_retired", "segments_archived"]


def segments_archived(state: State, event: SegmentsArchived) -> None:
    """Note where the part of the log that a start reads begins."""
    state.live_from = (event.seq, event.chain)


def archive_retired(state: State, event: ArchiveRetired) -> None:
    """Note where the log that still exists begins."""
    state.kept_from = (event.seq, event.chain)
