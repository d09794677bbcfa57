"""What the shell saw of records on disk: copies of them, damage, how far the scrubber is, reads that do not end."""

import msgspec

from kvledger_storage.blob_ref import BlobRef

__all__ = [
    "NO_PLACE",
    "PlaceName",
    "RecordsCopied",
    "RecordsLost",
    "RestoreLate",
    "Scrubbed",
    "SeenRecord",
    "TierNoted",
]


PlaceName = tuple[int, bytes, bytes, int, bytes]
"""Place of a prefix: blocks to its end, chain hash of the last one and of the one before, residue and its hash."""

NO_PLACE: PlaceName = (0, bytes(32), bytes(32), 0, bytes(32))


class SeenRecord(msgspec.Struct, frozen=True, array_like=True):
    """A record as its own header names it; nothing of it is believed before the state says the same.

    Attributes:
        cell: Cell of its object, or of its manifest.
        slot: Slot of the object; -1 for a manifest.
        generation: Reservation that made the bytes; of a manifest the job that wrote it.
        layout: Digest of the layout.
        kind: Number of the kind.
        fingerprint: XXH3-128 that the header names.
        ref: Where it lies.
        error: Why its bytes can not be had, empty if they are right.
    """

    cell: int
    slot: int
    generation: int
    layout: bytes
    kind: int
    fingerprint: bytes
    ref: BlobRef
    error: str = ""


class RecordsCopied(msgspec.Struct, frozen=True):
    """Records of a segment that is mostly dead were copied and synced: each as it was seen, and where its copy lies."""

    segment: int
    records: tuple[tuple[SeenRecord, BlobRef], ...]


class RecordsLost(msgspec.Struct, frozen=True):
    """In the place of these records there is nothing that could be one.

    Attributes:
        records: Where they should lie.
        why: What is there instead, for people.
        found: Who found it: `start`, `scrub` or `cleaning`.
    """

    records: tuple[BlobRef, ...]
    why: str
    found: str


class Scrubbed(msgspec.Struct, frozen=True):
    """Records of a segment were read and compared with their own headers.

    Attributes:
        segment: The segment.
        offset: Byte at which it goes on behind them; 0 if it is through with the segment.
        records: What was read; some of it may be dead.
        ended_ms: Wall time, ms since 1970, if the pass ended with them; 0 if not.
    """

    segment: int
    offset: int
    records: tuple[SeenRecord, ...]
    ended_ms: int = 0


class TierNoted(msgspec.Struct, frozen=True):
    """Whether the store takes writes: why it takes none, or empty if it does."""

    read_only: str


class RestoreLate(msgspec.Struct, frozen=True):
    """A restore did not end within its time, and its read can not be taken back."""

    job: int
    seconds: int
