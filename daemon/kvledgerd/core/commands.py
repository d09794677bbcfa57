"""What can be said to the core: requests of clients, and what the shell saw happen.

Commands carry everything random or timed that a decision needs, so that every decision can be replayed.
"""

import msgspec

from kvledger.wire.requests import Request
from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.events import Process
from kvledgerd.core.disk_commands import RecordsCopied, RecordsLost, RestoreLate, Scrubbed, TierNoted

__all__ = [
    "Adopted",
    "ArchiveDue",
    "ArenaFailed",
    "ArenaMade",
    "Ask",
    "Caller",
    "Command",
    "ConnectionEnded",
    "Converted",
    "Copied",
    "DegradeDue",
    "DemoteDue",
    "EngineGone",
    "EngineJoined",
    "EngineSilent",
    "ProbeDue",
    "Probed",
    "RecordsCopied",
    "RecordsLost",
    "RestoreDone",
    "RestoreLate",
    "RetireDue",
    "RoomWanted",
    "SaveDue",
    "Scrubbed",
    "Start",
    "Stop",
    "TierNoted",
    "TopologyOrphaned",
    "Verified",
    "WarmDue",
    "WriteDue",
    "Written",
]


class Caller(msgspec.Struct, frozen=True):
    """Who asks.

    Attributes:
        connection: Number of the connection, unique in this incarnation.
        engine: Number that `EngineJoined` was answered with.
        tenant: The tenant that it acts for: by listening socket and peer credentials, or as an operator named it.
        operator: It may look at what all tenants have together.
    """

    connection: int
    engine: int
    tenant: str
    operator: bool = False


class Ask(msgspec.Struct, frozen=True):
    """A request of a client.

    Attributes:
        caller: Who asks.
        body: The request as it came off the wire.
        parked: Jobs on which it was parked before; set by the writer loop when it is decided anew.
        waited: It was parked until its deadline and must be answered now.
        processes: Processes of the caller's engine that can be watched; told with requests about topologies only.
        permitted: The caller's right suffices; without it the answer is that what is named is not there.
    """

    caller: Caller
    body: Request
    parked: tuple[int, ...] = ()
    waited: bool = False
    processes: tuple[Process, ...] = ()
    permitted: bool = True


class Start(msgspec.Struct, frozen=True):
    """First command of an incarnation.

    Attributes:
        incarnation: Number of this run, one more than the last logged.
        boot_id: Boot of the machine, 16 bytes.
        log_id: Id of the log, 16 bytes.
        arenas: Ids of the arenas that were found and adopted.
        tail_repaired: The log lost an unsynced tail; what it held is unknown.
    """

    incarnation: int
    boot_id: bytes
    log_id: bytes
    arenas: tuple[int, ...]
    tail_repaired: bool = False


class Adopted(msgspec.Struct, frozen=True):
    """The arenas that were found are in use: what captured graphs go on reading in them can be verified."""


class Stop(msgspec.Struct, frozen=True):
    """Last command of an incarnation that ends in order; nothing is decided after it."""


class EngineJoined(msgspec.Struct, frozen=True):
    """First connection of an engine.

    Attributes:
        key: The 128-bit id that all its connections show.
        tenant: Its tenant.
        uid: User id of the peer.
        pid: Process id of the peer.
        name: What people call it.
    """

    key: bytes
    tenant: str
    uid: int
    pid: int
    name: str


class EngineGone(msgspec.Struct, frozen=True):
    """The last connection of an engine ended, or its leader did."""

    engine: int
    reason: str


class ConnectionEnded(msgspec.Struct, frozen=True):
    """A connection of an engine ended, and the engine lives on with others."""

    engine: int
    connection: int
    reason: str


class EngineSilent(msgspec.Struct, frozen=True):
    """Nothing was heard of an engine for the configured time, or it was heard again.

    A silent engine keeps its leases and units until their bytes are wanted.
    """

    engine: int
    silent: bool


class TopologyOrphaned(msgspec.Struct, frozen=True):
    """All processes of a topology have ended; nobody can replay its graph any more."""

    topology: int


class ArenaMade(msgspec.Struct, frozen=True):
    """An arena exists, is populated and its descriptor is stored."""

    job: int
    arena: int


class ArenaFailed(msgspec.Struct, frozen=True):
    """An arena could not be made."""

    job: int
    arena: int
    why: str


class Copied(msgspec.Struct, frozen=True):
    """Ranges of a put lie in their slots.

    Attributes:
        job: The job that the effect named.
        fingerprints: (index in the unit, XXH3-128 of the slot) of each object that is complete now.
        error: Why the copy failed, empty if it did not.
    """

    job: int
    fingerprints: tuple[tuple[int, bytes], ...] = ()
    error: str = ""


class Converted(msgspec.Struct, frozen=True):
    """Objects of another layout lie in the slots of a unit.

    Attributes:
        job: The job that the effect named.
        fingerprints: (index in the unit, XXH3-128 of the slot) of each object.
        error: Why they could not be converted, empty if they were.
    """

    job: int
    fingerprints: tuple[tuple[int, bytes], ...] = ()
    error: str = ""


class Moved(msgspec.Struct, frozen=True):
    """The copies of a relocation were made.

    Attributes:
        job: The job that the effect named.
        found: XXH3-128 of each copy where it arrived.
        error: Why there is none, empty if they were made.
    """

    job: int
    found: tuple[bytes, ...] = ()
    error: str = ""


class MemoryDue(msgspec.Struct, frozen=True):
    """It is time to look after memory: whether a kind needs an arena soon, or lies about in more than it fills."""


class Verified(msgspec.Struct, frozen=True):
    """Slots were hashed: the fingerprint found for each object of the job, in its order."""

    job: int
    found: tuple[bytes, ...]


class Written(msgspec.Struct, frozen=True):
    """Records of a job are on disk and synced.

    Attributes:
        job: The job that the effect named.
        refs: Where each record lies, in the order of the effect, the manifest last; empty on failure.
        error: Why nothing was written, empty if all was.
        prints: XXH3-128 of the records that were quantised, each with its number, 16 bytes.
    """

    job: int
    refs: tuple[BlobRef, ...] = ()
    error: str = ""
    prints: tuple[tuple[int, bytes], ...] = ()


class RestoreDone(msgspec.Struct, frozen=True):
    """Records of a job were read and verified.

    Attributes:
        job: The job that the effect named.
        errors: One for each record in the order of the effect: empty if its bytes are right, ``damaged: ...`` if the
            record is gone or wrong for good, ``failed: ...`` if it could not be read this time (deadline, I/O error),
            ``cancelled: ...`` if nobody waited for it any more.
        micros: From the first read to the last verification, microseconds; 0 if that was not measured.
        prints: XXH3-128 of what quantised records became in their slots, each with its number, 16 bytes.
    """

    job: int
    errors: tuple[str, ...]
    micros: int = 0
    prints: tuple[tuple[int, bytes], ...] = ()


class ArchiveDue(msgspec.Struct, frozen=True):
    """No start needs what lies before a place in the log: a snapshot behind it is whole, and so is an older one.

    Attributes:
        seq: First event behind it, the first of its segment.
        chain: Chain that this segment names, 32 bytes.
    """

    seq: int
    chain: bytes


class RetireDue(msgspec.Struct, frozen=True):
    """What lies before a place in the archive is to be given up; a snapshot of that very moment was put there.

    Attributes:
        seq: First event behind it, the first of its segment.
        chain: Chain that this segment names, 32 bytes.
        reason: Why, for people.
    """

    seq: int
    chain: bytes
    reason: str


class RoomWanted(msgspec.Struct, frozen=True):
    """The disk is full: records of so many bytes are to be given up, for the reason that is named."""

    bytes: int
    reason: str


class WriteDue(msgspec.Struct, frozen=True):
    """A boundary is to be written to disk, as `disk_write` says.

    Attributes:
        layout: Number of its layout.
        block: Hash of its last whole block, empty for the root.
        residue: Tokens after that.
        residue_hash: Their hash.
        tries: How often room was made on disk for it.
    """

    layout: int
    block: bytes
    residue: int
    residue_hash: bytes
    tries: int = 0


class DemoteDue(msgspec.Struct, frozen=True):
    """Memory of a tenant is short: what goes next is to be written to disk; `tries` as above."""

    tenant: str
    tries: int = 0


class DegradeDue(msgspec.Struct, frozen=True):
    """Too many restores failed; no further one is to begin, for the reason that is given."""

    reason: str


class ProbeDue(msgspec.Struct, frozen=True):
    """It is time to try whether the disk can be read again."""


class Probed(msgspec.Struct, frozen=True):
    """What a probe came to, told as of one object in `RestoreDone`."""

    error: str


class WarmDue(msgspec.Struct, frozen=True):
    """The next prefix of a warm-up is to be brought back.

    Attributes:
        tenant: Whose; all tenants' if empty.
        layout: First bytes of the digest of their layout.
        block: Hash of a block on their path, empty for any.
        seen: Prefixes that it has looked at.
        left: Bytes that it may still bring.
    """

    tenant: str
    layout: bytes
    block: bytes
    seen: int
    left: int


class SaveDue(msgspec.Struct, frozen=True):
    """The daemon is about to stop: what would be lost of some cells is to be written to disk; `tries` as above.

    Attributes:
        cells: Their numbers, most recently used first; some may be gone by now.
    """

    cells: tuple[int, ...] = ()
    tries: int = 0


Command = (
    Ask
    | Start
    | Adopted
    | Stop
    | EngineJoined
    | EngineGone
    | ConnectionEnded
    | EngineSilent
    | TopologyOrphaned
    | ArenaMade
    | ArenaFailed
    | Copied
    | Converted
    | Verified
    | Written
    | RestoreDone
    | ArchiveDue
    | RetireDue
    | RoomWanted
    | RecordsCopied
    | RecordsLost
    | RestoreLate
    | Scrubbed
    | TierNoted
    | Moved
    | MemoryDue
    | WriteDue
    | DemoteDue
    | SaveDue
    | WarmDue
    | DegradeDue
    | ProbeDue
    | Probed
)
