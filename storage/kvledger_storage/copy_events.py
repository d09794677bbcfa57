"""Events about the copies of objects: evicted, verified, written to disk, passed over for it, read back."""

from kvledger.kinds import Kind
from kvledger_storage.event_form import EventForm, Placement

__all__ = [
    "RECYCLED",
    "ROOM",
    "Blob",
    "BoundaryName",
    "DegradationChanged",
    "ObjectName",
    "ObjectsEvicted",
    "ObjectsVerified",
    "OffloadFailed",
    "OffloadStarted",
    "Offloaded",
    "PrefixForgotten",
    "PrefixKept",
    "RestoreFinished",
    "RestoreStarted",
    "VerifyStarted",
    "WriteDeclined",
]

Blob = tuple[int, int, int]
"""Segment number, offset of the record's header and length of its payload, bytes."""
ObjectName = tuple[int, int]
"""Cell and slot."""

ROOM = "room"
"""Reason of what went since it was the oldest: what stands before it goes next."""
RECYCLED = "recycled"
"""Reason of what was pushed out on disk by what is worth more: it is not written again before it is read again."""


class BoundaryName(EventForm, frozen=True):
    """A boundary: the node of its last whole block, and the residue after it."""

    node: int
    residue: int
    residue_hash: bytes


class ObjectsEvicted(EventForm, frozen=True, tag="objects_evicted.1"):
    """Copies were dropped from memory, from disk, or from both.

    Attributes:
        objects: The objects.
        memory: Their memory copies went.
        disk: Their disk copies went.
        reason: Why, for people; `ROOM` and `RECYCLED` mean more than they say.
        short: Kinds that would have kept their copies with more memory; what went of them is remembered.
    """

    objects: tuple[ObjectName, ...]
    memory: bool
    disk: bool
    reason: str
    short: tuple[Kind, ...] = ()


class PrefixForgotten(EventForm, frozen=True, tag="prefix_forgotten.1"):
    """A boundary is no disk prefix any more: its manifest and the disk copies of its own objects were dropped.

    Attributes:
        cell: The boundary.
        reason: Why, for people; `RECYCLED` means more than it says.
    """

    cell: int
    reason: str


class VerifyStarted(EventForm, frozen=True, tag="verify_started.1"):
    """Memory copies are being compared with their fingerprints before they are handed out."""

    job: int
    objects: tuple[ObjectName, ...]


class ObjectsVerified(EventForm, frozen=True, tag="objects_verified.1"):
    """Their outcome: those with the committed bytes, and those without, which are quarantined."""

    job: int
    right: tuple[ObjectName, ...]
    wrong: tuple[ObjectName, ...]


class OffloadStarted(EventForm, frozen=True, tag="offload_started.1"):
    """A boundary is being written to disk.

    Attributes:
        job: The job.
        engine: Who asked, 0 for the daemon itself.
        layout: Number of the layout.
        at: The boundary.
        objects: What of it is written: what has no disk copy yet, or a quantised one that an exact one is to replace.
        reason: Why, for people; of what the daemon writes by itself with its worth.
        precisions: In which precision each of them is written, as a `Precision`; empty if all are exact.
    """

    job: int
    engine: int
    layout: int
    at: BoundaryName
    objects: tuple[ObjectName, ...]
    reason: str = "asked for"
    precisions: tuple[int, ...] = ()


class Offloaded(EventForm, frozen=True, tag="offloaded.1"):
    """A boundary is on disk: a record for each object of the job, and its manifest.

    Attributes:
        job: The job.
        blobs: The record of each object.
        manifest: The record of the manifest.
        prints: Fingerprints of the records that do not hold the committed bytes, each with the number of its object.
    """

    job: int
    blobs: tuple[Blob, ...]
    manifest: Blob
    prints: tuple[tuple[int, bytes], ...] = ()


class OffloadFailed(EventForm, frozen=True, tag="offload_failed.1"):
    """Nothing of the job was written; its objects are as they were."""

    job: int
    error: str


class WriteDeclined(EventForm, frozen=True, tag="write_declined.1"):
    """What will make room next was passed over for the disk, and is dropped when its turn comes.

    Attributes:
        cell: The block or boundary.
        reason: Why, for people: its worth, or what stands in the way.
    """

    cell: int
    reason: str


class PrefixKept(EventForm, frozen=True, tag="prefix_kept.1"):
    """An engine asked for a disk prefix that the daemon had written by itself; nothing pushes it out any more."""

    cell: int


class DegradationChanged(EventForm, frozen=True, tag="degradation_changed.1"):
    """Restores stopped, for the reason that is given; or they may begin again, and there is none."""

    reason: str


class RestoreStarted(EventForm, frozen=True, tag="restore_started.1"):
    """Objects of a boundary are being read back into memory, private until verified; `promotion` if ahead of need."""

    job: int
    generation: int
    layout: int
    at: BoundaryName
    objects: tuple[ObjectName, ...]
    placements: tuple[Placement, ...]
    promotion: bool = False


class RestoreFinished(EventForm, frozen=True, tag="restore_finished.1"):
    """A restore ended.

    Attributes:
        job: The job.
        errors: One text for each object: empty if its bytes are right, ``damaged: ...`` if the record is gone or wrong
            and its disk copy is dropped, ``failed: ...`` if it could not be read this time, ``cancelled: ...`` if
            nobody waited for it any more.
        micros: How long reading and verifying took, microseconds, as the daemon measured it; 0 if it did not.
        prints: Fingerprints of the objects that were made from quantised records, each with its number.
    """

    job: int
    errors: tuple[str, ...]
    micros: int = 0
    prints: tuple[tuple[int, bytes], ...] = ()
