"""What happens to records on disk after they were written: found damaged, moved, scrubbed, and the tier as a whole."""

from typing import Annotated

from msgspec import Meta

from kvledger_storage.event_form import EventForm

__all__ = [
    "MANIFEST",
    "DiskEvent",
    "RecordsDamaged",
    "RecordsFound",
    "RecordsMoved",
    "RestoreOverdue",
    "ScrubAdvanced",
    "ScrubSwitched",
    "TierChanged",
]

MANIFEST = -1
"""Stands for the slot in the name of a boundary's manifest, which is no object."""


class RecordsDamaged(EventForm, frozen=True, tag="records_damaged.1"):
    """Records are gone or wrong for good: their disk copies were dropped, without a memory copy they are quarantined.

    Attributes:
        records: What they held, each with why it can not be had.
        found: Who found it: `start`, `scrub` or `cleaning`.
    """

    records: tuple[tuple[int, int, str], ...]
    found: str


class RecordsMoved(EventForm, frozen=True, tag="records_moved.1"):
    """Live records were copied out of a segment that is mostly dead.

    Attributes:
        segment: The segment that they left.
        records: What they hold, each with segment and offset of the copy.
    """

    segment: int
    records: tuple[tuple[int, int, int, int], ...]


class RecordsFound(EventForm, frozen=True, tag="records_found.1"):
    """Records of one place were found on disk by a rebuild, without the log that had told of them.

    Attributes:
        layout: Number of their layout.
        cell: Number of the cell, as the records themselves name it.
        parent: Number of the deepest block that was known already, 0 for none.
        fresh: Chain hashes of the blocks behind it up to the place, 32 bytes each.
        residue: Tokens after the last block; -1 for the block itself.
        residue_hash: Their hash, empty if there are none.
        records: Each object as slot, generation, fingerprint of the record, commit, segment, offset and precision.
        manifest: Where the manifest of a boundary lies, None if none was found.
    """

    layout: int
    cell: int
    parent: int
    fresh: bytes
    residue: int
    residue_hash: bytes
    records: tuple[tuple[int, int, bytes, int, int, int, int], ...]
    manifest: tuple[int, int, int] | None


class TierChanged(EventForm, frozen=True, tag="tier_changed.1"):
    """The disk tier takes no writes any more, for the reason that is named; or, without one, it takes them again."""

    read_only: str


class ScrubAdvanced(EventForm, frozen=True, tag="scrub_advanced.1"):
    """The scrubber has read another part.

    Attributes:
        segment: The segment of it.
        offset: Byte of the segment at which it goes on; 0 if it is through, and the next segment is the next part.
        records: Records that were read and compared with their fingerprints.
        bytes: What these take on disk.
        lacking: Cells of disk prefixes among them at which nothing could resume, since a part of them is nowhere.
        ended_ms: Wall time at which the pass ended with this part, ms since 1970; 0 if it goes on.
    """

    segment: int
    offset: int
    records: int
    bytes: int
    lacking: tuple[int, ...] = ()
    ended_ms: Annotated[int, Meta(ge=0)] = 0


class ScrubSwitched(EventForm, frozen=True, tag="scrub_switched.1"):
    """An operator paused the scrubber, let it go on, or asked for a pass at once."""

    paused: bool
    due: bool


class RestoreOverdue(EventForm, frozen=True, tag="restore_overdue.1"):
    """A restore did not end in time: what it was to bring is a miss, and its slots stay taken until the read ends."""

    job: int
    error: str


DiskEvent = RecordsDamaged | RecordsFound | RecordsMoved | TierChanged | ScrubAdvanced | ScrubSwitched | RestoreOverdue
