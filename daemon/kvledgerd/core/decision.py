"""What a decision consists of, and the order duties of each part.

`decide` returns a `Decision`; the shell carries it out. Effects are data: what to copy, verify, read, write or make.
The shell answers each effect that names a job with a command of its own, and every answer is decided anew.
"""

import enum

import msgspec

from kvledger.kinds import Kind
from kvledger.page_formats import PageFormat
from kvledger.wire.replies import Reply
from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.events import Event
from kvledgerd.core.commands import DemoteDue, SaveDue, WriteDue
from kvledgerd.core.disk_commands import NO_PLACE, PlaceName

__all__ = [
    "Ack",
    "ArchiveSegments",
    "ClearArena",
    "ConvertObject",
    "ConvertSlots",
    "CopyIn",
    "CopyRange",
    "Decision",
    "DiskProbe",
    "DiskRead",
    "DiskWrite",
    "DropBlobs",
    "Effect",
    "Later",
    "MakeArena",
    "MoveSlots",
    "Park",
    "ReadRecord",
    "RetireSegments",
    "SetGenerations",
    "VerifySlots",
    "WarmUp",
    "WriteRecord",
]


class Ack(enum.IntEnum):
    """When a reply may leave, and when an effect may run."""

    SESSION = 0
    """At once; the events ride in the next frame."""
    WRITTEN = 1
    """After the frame with the events was written to the log file."""
    DURABLE = 2
    """After the frame with the events was synced."""


class CopyRange(msgspec.Struct, frozen=True):
    """One range from a connection's ring to a slot.

    Attributes:
        index: Object in the unit's order.
        ring_offset: First byte in the ring.
        arena: Arena of the slot.
        slot_offset: First byte of the slot in the arena's data.
        offset: First byte within the object; ranges of one object come in order, the first one starts its hash.
        length: Bytes.
        last: The object is complete after this range.
    """

    index: int
    ring_offset: int
    arena: int
    slot_offset: int
    offset: int
    length: int
    last: bool


class CopyIn(msgspec.Struct, frozen=True):
    """Copy from a connection's ring and hash the slots; answered by `Copied`."""

    job: int
    unit: int
    connection: int
    ranges: tuple[CopyRange, ...]


class ConvertObject(msgspec.Struct, frozen=True):
    """One object of another layout that becomes one of this.

    Attributes:
        index: Object in the unit's order.
        arena: Arena of the source.
        offset: First byte of the source in the arena's data.
        length: Bytes of the source.
        fingerprint: What its bytes have to be.
        target_arena: Arena of the slot.
        target_offset: First byte of the slot in its arena's data.
        target_length: Bytes of the slot.
        formats: Page format of the source and of the target, None where the bytes stay as they are.
        layers: Layers in the object.
        rows: Rows of each layer.
    """

    index: int
    arena: int
    offset: int
    length: int
    fingerprint: bytes
    target_arena: int
    target_offset: int
    target_length: int
    formats: tuple[PageFormat, PageFormat] | None
    layers: int
    rows: int


class ConvertSlots(msgspec.Struct, frozen=True):
    """Convert objects of another layout into the slots of a unit and hash these; answered by `Converted`."""

    job: int
    objects: tuple[ConvertObject, ...]


class SetGenerations(msgspec.Struct, frozen=True):
    """Move generations before any byte does: (arena, offset and length of the object, generation).

    Every page of the object gets it, so that a reader of any older object that overlaps finds its handle stale.
    """

    slots: tuple[tuple[int, int, int, int], ...]


class MakeArena(msgspec.Struct, frozen=True):
    """Create, populate and store an arena; answered by `ArenaMade` or `ArenaFailed`."""

    job: int
    arena: int
    tenant: str
    kind: Kind
    bytes: int


class ClearArena(msgspec.Struct, frozen=True):
    """Fill an empty arena with zeros for another kind; answered by `ArenaMade` or `ArenaFailed`.

    Before a byte is touched every page gets the job's number as its generation, which no handle bears.
    """

    job: int
    arena: int
    kind: Kind


class MoveSlots(msgspec.Struct, frozen=True):
    """Copy slots of one kind and hash what arrived; answered by `Moved`.

    Each copy is (arena, offset) of the source, the same of the target, and the length in bytes.
    """

    job: int
    kind: Kind
    copies: tuple[tuple[int, int, int, int, int], ...]


class VerifySlots(msgspec.Struct, frozen=True):
    """Hash slots; answered by `Verified`. Each slot is (arena, offset, length)."""

    job: int
    slots: tuple[tuple[int, int, int], ...]


class Quantised(msgspec.Struct, frozen=True):
    """How an object is kept on disk in fewer bytes.

    Attributes:
        precision: What its numbers become, a `Precision`.
        length: Bytes of the record.
        page_bytes: Bytes of one page of the object.
        page_values: Numbers of 16 bits with which each page begins; what stands behind them is not kept.
    """

    precision: int
    length: int
    page_bytes: int
    page_values: int


class WriteRecord(msgspec.Struct, frozen=True):
    """One object to be written to disk.

    Attributes:
        cell: Cell of the object.
        slot: Its slot in the cell.
        generation: Reservation that made its bytes.
        kind: Its kind.
        arena: Arena of its memory copy.
        offset: First byte of that copy in the arena's data.
        length: Bytes.
        fingerprint: Committed XXH3-128, 16 bytes; what is found in memory has to be that.
        commit: What it was committed together with.
        at: Place of its prefix, for the record's header.
        precision: In which precision it is written, a `Precision`.
        quantised: How, if it is quantised.
    """

    cell: int
    slot: int
    generation: int
    kind: Kind
    arena: int
    offset: int
    length: int
    fingerprint: bytes
    commit: int = 0
    at: PlaceName = NO_PLACE
    precision: int = 0
    quantised: Quantised | None = None


class DiskWrite(msgspec.Struct, frozen=True):
    """Write objects and then their manifest, and sync; answered by `Written`.

    Attributes:
        job: The job, for the answer.
        layout: Digest of the layout, 32 bytes.
        cell: Cell of the boundary, which the manifest's record names.
        generation: What that record bears: the number of the job.
        records: The objects.
        manifest: Payload of the manifest.
        at: Place of the boundary, for that record's header.
    """

    job: int
    layout: bytes
    cell: int
    generation: int
    records: tuple[WriteRecord, ...]
    manifest: bytes
    at: PlaceName = NO_PLACE


class ReadRecord(msgspec.Struct, frozen=True):
    """One record to be read into a slot and verified there, by the queue of its kind.

    Attributes:
        kind: Kind of the object.
        ref: Where the record lies.
        cell: Cell of the object.
        slot: Its slot in the cell.
        generation: Reservation that made the bytes, as the record's header has to say.
        arena: Arena into which it is read; 0 for none.
        offset: First byte of its new place in the arena's data.
        length: Bytes of the slot.
        fingerprint: XXH3-128 of the record, 16 bytes, which its bytes have to have.
        commit: What it was committed together with.
        at: Place of its prefix.
        precision: In which precision it was written, a `Precision`.
        quantised: How, if it is quantised.
    """

    kind: Kind
    ref: BlobRef
    cell: int
    slot: int
    generation: int
    arena: int
    offset: int
    length: int
    fingerprint: bytes
    commit: int = 0
    at: PlaceName = NO_PLACE
    precision: int = 0
    quantised: Quantised | None = None


class DiskRead(msgspec.Struct, frozen=True):
    """Read records into slots and verify them; answered by `RestoreDone`. A promotion was asked for by nobody."""

    job: int
    layout: bytes
    records: tuple[ReadRecord, ...]
    promotion: bool = False


class DiskProbe(msgspec.Struct, frozen=True):
    """Read one record into memory of its own and verify it; answered by `Probed`. The record names no place."""

    layout: bytes
    record: ReadRecord


class DropBlobs(msgspec.Struct, frozen=True):
    """Give disk records back; destroys bytes on disk, so its events must be durable first."""

    refs: tuple[BlobRef, ...]


class WarmUp(msgspec.Struct, frozen=True):
    """Run a warm-up by way of `WarmDue`, with so many bytes at most; the other fields are those of the command."""

    tenant: str
    layout: bytes
    block: bytes
    bytes: int


class Later(msgspec.Struct, frozen=True):
    """Have a command decided soon, once however often it is asked for until then."""

    command: WriteDue | DemoteDue | SaveDue


class ArchiveSegments(msgspec.Struct, frozen=True):
    """Move the log's segments before event `seq`, whose segment names `chain`, to the archive."""

    seq: int
    chain: bytes


class RetireSegments(msgspec.Struct, frozen=True):
    """Remove archived segments before event `seq`, whose segment names `chain`; destroys bytes on disk."""

    seq: int
    chain: bytes


Effect = (
    CopyIn
    | ConvertSlots
    | SetGenerations
    | MakeArena
    | ClearArena
    | VerifySlots
    | MoveSlots
    | DiskWrite
    | DiskRead
    | DropBlobs
    | DiskProbe
    | Later
    | WarmUp
    | ArchiveSegments
    | RetireSegments
)


class Park(msgspec.Struct, frozen=True):
    """The command waits: it is decided anew, with `Ask.parked` set, when one of the jobs was answered.

    Attributes:
        jobs: Jobs on which it waits. Empty means that it is decided anew at once, after the events were applied.
        deadline_ms: Deadline from the first parking on; then it is decided with `waited` set. None for the usual one.
        ack: Class that the events of this decision must have reached before the command is answered.
    """

    jobs: tuple[int, ...]
    deadline_ms: int | None = None
    ack: Ack = Ack.WRITTEN


class Decision(msgspec.Struct, frozen=True):
    """The outcome of one command.

    Attributes:
        events: What changed, to be applied in order before anything else is decided. Empty if nothing did.
        reply: The answer; leaves when `ack` is reached. None for commands of the shell and for parked ones.
        ack: Class that the events must have reached before the reply leaves.
        effects: (class, effect): each runs when the events have reached its class, in order.
        park: Set instead of `reply` when the answer depends on jobs; events and effects start these.
    """

    events: tuple[Event, ...] = ()
    reply: Reply | None = None
    ack: Ack = Ack.SESSION
    effects: tuple[tuple[Ack, Effect], ...] = ()
    park: Park | None = None
