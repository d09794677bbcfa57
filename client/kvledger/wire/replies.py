"""Replies: what the daemon answers."""

from typing import Annotated

from msgspec import Meta, field

from kvledger.epochs import EpochState
from kvledger.verdict import Cut, Exactness
from kvledger.wire.disk_replies import Offloaded, Pending, Restored, Warming
from kvledger.wire.evictions import EvictedMany
from kvledger.wire.fields import MAX_ID, Hash, Id, Message, Name, Small, Tokens
from kvledger.wire.quotas import QuotaList
from kvledger.wire.tenants import TenantList

__all__ = [
    "Acquired",
    "ArenaList",
    "Committed",
    "Described",
    "DeviceVictim",
    "Done",
    "EpochInfo",
    "EpochList",
    "EpochSet",
    "Evicted",
    "EvictedMany",
    "Failed",
    "FingerprintList",
    "HandleRun",
    "Joined",
    "NotResident",
    "ObjectInfo",
    "Offer",
    "Offloaded",
    "PagesGiven",
    "Pending",
    "PoolRegistered",
    "QuotaList",
    "Registered",
    "Reply",
    "Reserved",
    "Restored",
    "StatusReport",
    "TenantList",
    "TopologyList",
    "TopologyRegistered",
    "TopologyReport",
    "Waiting",
    "Warming",
    "Welcome",
]


class Failed(Message, frozen=True, tag="failed"):
    """A refusal: `kvledger.errors.error_from_wire` turns it into the typed error."""

    code: Name
    message: Annotated[str, Meta(max_length=4096)]
    field: Annotated[str, Meta(max_length=256)] = ""
    remedy: Annotated[str, Meta(max_length=1024)] = ""


class Welcome(Message, frozen=True, tag="welcome"):
    """Answer to `Hello`.

    Attributes:
        version: Protocol version from now on.
        incarnation: Run of the daemon; leases and units of another are void.
        log_id: Id of the log, 16 bytes: the cache that this daemon keeps.
        root_key: Secret of the tenant, root of its chain hashes, 32 bytes.
        tenant: Name of the tenant.
        frame_max: Largest request frame, bytes.
        ring_max: Largest staging ring, bytes.
    """

    version: Small
    incarnation: Id
    log_id: Annotated[bytes, Meta(max_length=16)]
    root_key: Hash
    tenant: Name
    frame_max: Id
    ring_max: Id


class Registered(Message, frozen=True, tag="registered"):
    """A layout's number, valid for this incarnation."""

    layout: Small
    digest: Hash


class HandleRun(Message, frozen=True):
    """Objects of one group and shard that lie at equal distances in one arena and share one generation.

    Attributes:
        group: Group index in the layout.
        shard: Part of the group, of those that its ranks hold one each.
        first_token: First token of the first object; the boundary for snapshots.
        tokens: Tokens of each object, 0 for snapshots.
        step: Tokens from one object's first token to the next one's.
        count: Number of objects.
        arena: Arena id, whose descriptor came over the descriptor socket before this reply; or number of a device pool.
        offset: First byte of the first object in the arena's data.
        stride: Bytes from one object to the next.
        length: Bytes of each object.
        generation: What the generation table shows at every page of each object as long as the bytes are these.
        prints: `fp64` of each object, 8 bytes little-endian, if `arena` is a device pool of the asking engine: there is
            no descriptor and no generation table then. Empty in arenas.
    """

    group: Small
    shard: Small
    first_token: Tokens
    tokens: Tokens
    step: Tokens
    count: Small
    arena: Small
    offset: Id
    stride: Annotated[int, Meta(ge=-MAX_ID, le=MAX_ID)]
    length: Small
    generation: Id
    prints: bytes = b""


class Offer(Message, frozen=True):
    """A boundary at which the request may resume.

    Attributes:
        position: The boundary, tokens.
        residue: How many of them follow the last whole block.
        residue_hash: Hash of these; the offer holds only for a prompt whose tokens have it. Empty without residue.
        exactness: What a resume here yields.
        replay: Tokens before the boundary that must be recomputed, without writing over cached rows.
        runs: Window pages, residue rows and snapshots of this boundary; rows of whole blocks stand in `Acquired.rows`.
        ready: False if part of it lies on disk: `Restore` it and look up again. Its runs are empty then.
        read_bytes: Bytes that have to be read back first.
        read_ms: How long that takes at the rate of the restores so far, 0 before the first.
    """

    position: Tokens
    residue: Small
    residue_hash: Hash
    exactness: Exactness
    replay: Tokens
    runs: list[HandleRun]
    ready: bool = True
    read_bytes: Id = 0
    read_ms: Id = 0


class Acquired(Message, frozen=True, tag="acquired"):
    """The verdict, with its lease.

    Attributes:
        lease: The receipt, 0 if nothing is usable.
        offers: Best first; the first whose residue matches the prompt is the one to take.
        rows: Rows of whole blocks, up to the deepest offer.
        hash_tokens: What a plain hash cache would have claimed.
        usable_tokens: Tokens of the best offer without residue.
        restorable: Every boundary without residue at which the prompt could resume, ascending.
        coverage: Tokens up to which each group, taken alone, could resume.
        wanted: Boundaries at which a state is worth keeping while the rest is computed.
        cuts: Why tokens are not usable, longest run first, at most 32.
        cuts_more: Number of further cuts.
    """

    lease: Id
    offers: list[Offer]
    rows: list[HandleRun]
    hash_tokens: Tokens
    usable_tokens: Tokens
    restorable: list[Tokens]
    coverage: list[Tokens]
    wanted: list[Tokens]
    cuts: list[Cut]
    cuts_more: Small = 0


class FingerprintList(Message, frozen=True, tag="fingerprint_list"):
    """Fingerprints in the order of `rows` and then of each offer's runs, 16 bytes an object."""

    fingerprints: bytes


class ArenaList(Message, frozen=True, tag="arena_list"):
    """The arenas whose descriptors were sent again."""

    arenas: list[Small]


class Reserved(Message, frozen=True, tag="reserved"):
    """A reservation.

    Attributes:
        unit: The receipt; also the generation of all its slots.
        present: Bitmap over the unit's objects, least significant bit first: committed already, and kept where
            it is as long as the reservation is open.
    """

    unit: Id
    present: bytes


class Committed(Message, frozen=True, tag="committed"):
    """A unit is published.

    Attributes:
        commit_id: Couples rows with their indexer.
        stored: Number of objects that were kept.
        duplicates: Number of objects that another commit had published meanwhile; its bytes stay, these were dropped.
        differing: How many of the duplicates had another fingerprint.
    """

    commit_id: Id
    stored: Small
    duplicates: Small = 0
    differing: Small = 0


class Joined(Message, frozen=True, tag="joined"):
    """A ticket belongs to this connection now; `abort` its unit if nobody will use it.

    Attributes:
        unit: The reservation.
        objects: Number of objects that the ticket brings.
    """

    unit: Id
    objects: Small


class Waiting(Message, frozen=True, tag="waiting"):
    """A ticket is committed; nothing of the unit is published before the others are.

    Attributes:
        tickets: Number of tickets that are still to be committed.
    """

    tickets: Small


class Evicted(Message, frozen=True, tag="evicted"):
    """Number of copies dropped, and of those that a lease or a job keeps."""

    dropped: Small
    kept: Small = 0


class PoolRegistered(Message, frozen=True, tag="pool_registered"):
    """A device pool.

    Attributes:
        pool: Its number, from the counter of arenas: a handle whose place is this number lies there.
        kept: Copies that a topology kept since an older incarnation, and that verdicts name again.
    """

    pool: Small
    kept: Small = 0


class DeviceVictim(Message, frozen=True):
    """A copy that made room, of an object that lies nowhere else: its bytes are there until the engine writes.

    Attributes:
        hash: Chain hash of its block; of a boundary's last whole block, empty before the first.
        residue: Tokens of the boundary after that block, -1 if the object belongs to the block.
        residue_hash: Their hash.
        group: Group index.
        shard: Rank.
        page: Page within the block.
        offset: First byte in the pool.
        length: Bytes.
        fp64: As it was reported, 8 bytes little-endian.
    """

    hash: Hash
    residue: Annotated[int, Meta(ge=-1, le=2**31)]
    residue_hash: Hash
    group: Small
    shard: Small
    page: Small
    offset: Id
    length: Small
    fp64: Annotated[bytes, Meta(min_length=8, max_length=8)]


class PagesGiven(Message, frozen=True, tag="pages_given"):
    """Pages of a device pool.

    Attributes:
        unit: The receipt; also the generation of all these pages.
        present: Bitmap over the unit's objects, those of the pool's rank only, least significant bit first: resident
            already, and kept where it is as long as the unit is open.
        offsets: First byte in the pool of each object that is not, in the unit's order.
        victims: Copies that made room and lie nowhere else, at most 1,024.
        victims_more: Number of further ones.
    """

    unit: Id
    present: bytes
    offsets: list[Id]
    victims: list[DeviceVictim]
    victims_more: Small = 0


class ObjectInfo(Message, frozen=True):
    """One object as `Describe` shows it.

    Attributes:
        cell: First half of the object's number.
        slot: Second half of it.
        block: Block number, -1 for the boundary.
        group: Group index.
        shard: Part of the group, of those that its ranks hold one each.
        page: Page within the block.
        state: Name of its state.
        length: Bytes.
        fingerprint: XXH3-128, 16 bytes.
        commit_id: Commit that made it.
        leased: Number of leases, jobs and topologies that keep its memory where it is.
        pool: Device pool of the asking engine in which a copy lies, 0 if none.
        stored: Bytes of its disk copy, 0 if there is none; fewer than `length` if that is quantised.
        approx: Whether no exact copy is left of it.
    """

    cell: Id
    slot: Small
    block: Annotated[int, Meta(ge=-1, le=2**31)]
    group: Small
    shard: Small
    page: Small
    state: Name
    length: Small
    fingerprint: Hash
    commit_id: Id
    leased: Small
    pool: Small = 0
    stored: Small = 0
    approx: bool = False


class Described(Message, frozen=True, tag="described"):
    """What is stored along a path and at its boundary, by block and slot."""

    objects: list[ObjectInfo]
    more: Small = 0


class NotResident(Message, frozen=True, tag="not_resident"):
    """A refusal: what a graph is to read in place is not all in memory, verified.

    Attributes:
        objects: Those that are not, at most 64, with their states; ``UNVERIFIED`` is in memory and not yet compared
            with its fingerprint, ``VACANT`` is not stored at all. Their cell is 0 where there is none.
        more: Number of further ones.
    """

    objects: list[ObjectInfo]
    more: Small = 0


class TopologyReport(Message, frozen=True, tag="topology"):
    """A topology as it stands, durable.

    Attributes:
        topology: Its number, which a restart of the daemon does not change.
        objects: How many objects it pins.
        bytes: Memory that they take, whole pages.
        lost: How many of them are no longer what was registered, so that the graph must not be replayed.
        recapturing: Its recapture window is open.
    """

    topology: Id
    objects: Small
    bytes: Id
    lost: Small = 0
    recapturing: bool = False


class TopologyRegistered(Message, frozen=True, tag="topology_registered"):
    """A new topology; it stays until it is dropped, or its engine's processes have ended."""

    topology: TopologyReport


class TopologyList(Message, frozen=True, tag="topology_list"):
    """All topologies of an engine, oldest first."""

    topologies: list[TopologyReport]


class EpochInfo(Message, frozen=True):
    """One epoch.

    Attributes:
        model: Name of the model.
        weights: Digest of the weights; empty for unnamed ones, which belong to one engine.
        state: Where it is in its life.
        share: Per cent of the caps on memory and disk that its objects may take.
        layouts: How many layouts belong to it.
        memory_bytes: What it holds in memory, reservations and what leases keep included.
        disk_bytes: What its records take on disk.
        kernels: Kernel ABIs that were retired in it, as ``name number``.
        engine: The engine that it belongs to, 0 for none.
    """

    model: Annotated[str, Meta(max_length=256)]
    weights: Annotated[str, Meta(max_length=128)]
    state: EpochState
    share: Small
    layouts: Small
    memory_bytes: Id
    disk_bytes: Id
    kernels: list[str]
    engine: Small


class EpochList(Message, frozen=True, tag="epoch_list"):
    """All epochs of a tenant, in the order in which they came."""

    epochs: list[EpochInfo]


class EpochSet(Message, frozen=True, tag="epoch_set"):
    """An epoch is what was asked for, durably.

    Attributes:
        before: What it was before; None if it was not known.
        drained: Weights of the epoch that drains instead; empty if none does.
        invalid: Objects that became invalid.
    """

    before: EpochState | None
    drained: Annotated[str, Meta(max_length=128)]
    invalid: Id


class StatusReport(Message, frozen=True, tag="status_report"):
    """The daemon in numbers.

    Attributes:
        incarnation: Run of the daemon.
        seq: Sequence number of the last event.
        digest: Digest of the state, 8 bytes as hexadecimal.
        counters: Name to number; docs/status.md explains each.
        notes: What keeps the daemon from doing all that it should, by what it is about, for people.
    """

    incarnation: Id
    seq: Id
    digest: Name
    counters: dict[str, int]
    notes: dict[str, str] = field(default_factory=dict)


class Done(Message, frozen=True, tag="done"):
    """It is done, and there is nothing more to say."""


Reply = (
    Failed
    | Welcome
    | Registered
    | Acquired
    | Pending
    | FingerprintList
    | ArenaList
    | Reserved
    | Joined
    | Committed
    | Waiting
    | Evicted
    | EvictedMany
    | QuotaList
    | TenantList
    | Offloaded
    | Restored
    | Warming
    | PoolRegistered
    | PagesGiven
    | Described
    | NotResident
    | TopologyRegistered
    | TopologyReport
    | TopologyList
    | EpochList
    | EpochSet
    | StatusReport
    | Done
)
