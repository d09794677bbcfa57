"""Requests: what a client sends. Every one gets exactly one reply with its id, a `Failed` at worst.

Bytes of the cache never cross this socket; they are found through handles.
"""

from typing import Annotated

from msgspec import Meta

from kvledger.kinds import Kind
from kvledger.layout import Layout
from kvledger.wire.disk_requests import SetScrub, Warm
from kvledger.wire.epoch_requests import Epochs, SetEpoch
from kvledger.wire.evictions import Evict, EvictMany
from kvledger.wire.fields import (
    MAX_ID,
    Boundary,
    GroupName,
    Hashes,
    Id,
    Message,
    Name,
    Small,
    Ticket,
    Tokens,
)
from kvledger.wire.hello import PROTOCOL_VERSION, Hello
from kvledger.wire.quotas import Quotas, SetQuota
from kvledger.wire.tenants import Tenants

__all__ = [
    "PROTOCOL_VERSION",
    "Abort",
    "Acquire",
    "Arenas",
    "AskPages",
    "Boundary",
    "ChangeTopology",
    "CloseRecapture",
    "Commit",
    "Describe",
    "DropPool",
    "DropTopology",
    "Epochs",
    "Evict",
    "EvictMany",
    "Fingerprints",
    "FreePages",
    "GivePagesUp",
    "Hello",
    "Join",
    "Offload",
    "OpenRecapture",
    "Put",
    "PutRange",
    "Quotas",
    "Register",
    "RegisterPool",
    "RegisterTopology",
    "Release",
    "Renew",
    "ReportFilled",
    "Request",
    "Reserve",
    "Restore",
    "Ring",
    "SetEpoch",
    "SetQuota",
    "SetScrub",
    "Settle",
    "Status",
    "Tenants",
    "Topologies",
    "TopologyPart",
    "Warm",
]


class PutRange(Message, frozen=True):
    """A range of one object that lies in the ring.

    Attributes:
        kind: Kind of the object; `RoutingError` if it is another.
        index: Number of the object in the unit's order.
        offset: First byte within the object; ranges of one object come in order.
        ring_offset: First byte within the ring.
        length: Bytes.
    """

    kind: Kind
    index: Small
    offset: Small
    ring_offset: Id
    length: Annotated[int, Meta(ge=1, le=2**31)]


class TopologyPart(Message, frozen=True):
    """Objects that a captured graph reads: what one offer of a lease handed out.

    Attributes:
        lease: The lease, held by this engine.
        offer: Number of the offer; 0 once the lease is settled.
        groups: Indices of the groups in the layout; all if empty.
    """

    lease: Id
    offer: Small
    groups: Annotated[list[Small], Meta(max_length=256)]


TopologyParts = Annotated[list[TopologyPart], Meta(max_length=256)]


class Register(Message, frozen=True, tag="register"):
    """Make a layout known."""

    layout: Layout


class Ring(Message, frozen=True, tag="ring"):
    """Hand in the staging ring whose descriptor was just sent over the descriptor socket."""

    size: Annotated[int, Meta(ge=4096, le=1 << 40)]


class Acquire(Message, frozen=True, tag="acquire"):
    """Look up a prompt and lease what is usable, in one decision.

    Attributes:
        layout: Number that `Registered` gave.
        tokens: Length of the prompt.
        hashes: Chain hashes of its whole blocks, 32 bytes each.
        leave: Tokens that must be left to compute.
        minimum: Fewer usable tokens than this are a miss.
        align: The caller's own alignment, tokens.
        restore: Whether boundaries that lie on disk are offered as well; see `Offer.ready`.
        replay: Whether the caller can recompute tokens to rebuild windows.
        approx: Whether the caller accepts approximate state.
        recompute: Tokens a second that the caller computes; a boundary on disk is offered only where reading it back
            takes no longer, at the rate of the restores so far. 0 offers all that can be restored.
    """

    layout: Small
    tokens: Tokens
    hashes: Hashes
    leave: Tokens = 1
    minimum: Tokens = 0
    align: Annotated[int, Meta(ge=1, le=2**31)] = 1
    restore: bool = True
    replay: bool = False
    approx: bool = False
    recompute: Tokens = 0


class Settle(Message, frozen=True, tag="settle"):
    """Keep one offer of a lease and give the others back."""

    lease: Id
    offer: Small


class Renew(Message, frozen=True, tag="renew"):
    """Show that a lease is still wanted."""

    lease: Id


class Release(Message, frozen=True, tag="release"):
    """Give a lease back."""

    lease: Id


class Fingerprints(Message, frozen=True, tag="fingerprints"):
    """Ask for the committed fingerprints of what a lease covers."""

    lease: Id


class Arenas(Message, frozen=True, tag="arenas"):
    """Ask for the descriptors of arenas again, for example after a fork of the mapping code."""

    arenas: Annotated[list[Small], Meta(max_length=256)]


class Reserve(Message, frozen=True, tag="reserve"):
    """Reserve what a unit lacks and keep what is there already where it is.

    Attributes:
        layout: Number that `Registered` gave.
        end: End of the unit; with `boundary` it may carry a residue.
        first_block: First block whose rows the unit holds.
        boundary: Whether the unit makes its end a boundary.
        all_pages: Whether every window page of its blocks belongs to it.
        approx: Whether what it brings was computed over an approximation, such as a hit that was one.
    """

    layout: Small
    end: Boundary
    first_block: Small = 0
    boundary: bool = True
    all_pages: bool = False
    approx: bool = False


class Join(Message, frozen=True, tag="join"):
    """Take a ticket of a reservation that another connection of this engine made.

    The objects of the ticket are put and committed by this connection from now on, from its own ring. If it ends before
    it has committed them, the unit is aborted.

    Attributes:
        unit: The reservation.
        ticket: The rank whose objects it brings.
    """

    unit: Id
    ticket: Annotated[int, Meta(ge=0, le=1023)]


class Put(Message, frozen=True, tag="put"):
    """Hand ranges over from the ring; they may be reused when the reply has come."""

    unit: Id
    ranges: Annotated[list[PutRange], Meta(min_length=1, max_length=4096)]


class Commit(Message, frozen=True, tag="commit"):
    """Commit tickets of a unit; with the last of them the unit is published, all of it or nothing.

    Attributes:
        unit: The reservation.
        fingerprints: XXH3-128 of the objects that the tickets bring, 16 bytes each in the unit's order; empty if not
            sent.
        ticket: The ticket; -1 for all that this connection holds and has not committed.
    """

    unit: Id
    fingerprints: Hashes = b""
    ticket: Ticket = -1


class Abort(Message, frozen=True, tag="abort"):
    """Give a reservation up."""

    unit: Id


class Offload(Message, frozen=True, tag="offload"):
    """Write a boundary with everything it needs to disk; acts on `Kind.DISK_PREFIX` only.

    Attributes:
        layout: Number that `Registered` gave.
        at: The boundary.
        drop_memory: Drop the memory copies once the disk copies are durable.
        kind: `Kind.DISK_PREFIX`.
        exact: Keep every bit there is, whatever precision an operator chose for the disk.
    """

    layout: Small
    at: Boundary
    drop_memory: bool = False
    kind: Kind = Kind.DISK_PREFIX
    exact: bool = False


class Restore(Message, frozen=True, tag="restore"):
    """Bring a boundary back into memory, verified; acts on `Kind.DISK_PREFIX` only.

    What another layout of the same rows keeps in memory is converted, where this one keeps it nowhere.

    Attributes:
        layout: Number that `Registered` gave.
        at: The boundary.
        wait_ms: How long to wait; 0 starts the restore and answers `Pending`. Asking again joins it.
        kind: `Kind.DISK_PREFIX`.
    """

    layout: Small
    at: Boundary
    wait_ms: Annotated[int, Meta(ge=0, le=3_600_000)] = 30_000
    kind: Kind = Kind.DISK_PREFIX


class RegisterPool(Message, frozen=True, tag="register_pool"):
    """Set pages on a device aside; the bytes stay the engine's, and only this engine sees what lies there.

    Attributes:
        layout: Number that `Registered` gave; the pool holds objects of this layout only.
        device: What the engine calls the device.
        memory: What names the memory itself, so that registering it twice is recognised.
        address: Address of its first byte in the engine's address space.
        size: Bytes.
        pages: Pages of each group, in the order of the layout.
        rank: The only rank whose objects lie there, -1 for all.
        pool: Number of a pool to be found again after a restart, since a topology kept something; 0 for a new one.
    """

    layout: Small
    device: Name
    memory: Annotated[bytes, Meta(max_length=64)]
    address: Id
    size: Annotated[int, Meta(ge=1, le=MAX_ID)]
    pages: Annotated[list[Small], Meta(max_length=4096)]
    rank: Annotated[int, Meta(ge=-1, le=2047)] = -1
    pool: Small = 0


class DropPool(Message, frozen=True, tag="drop_pool"):
    """Take a device pool back; refused while a lease, pages that are asked for or a topology cover something there."""

    pool: Small


class AskPages(Message, frozen=True, tag="ask_pages"):
    """Ask for pages of a device pool for what a unit lacks there; the engine fills them and reports it.

    Attributes:
        pool: Number that `PoolRegistered` gave.
        end: End of the unit; with `boundary` it may carry a residue.
        first_block: First block whose rows the unit holds.
        boundary: Whether the unit makes its end a boundary.
        all_pages: Whether every window page of its blocks belongs to it.
    """

    pool: Small
    end: Boundary
    first_block: Small = 0
    boundary: bool = True
    all_pages: bool = False


class ReportFilled(Message, frozen=True, tag="report_filled"):
    """Say that asked pages are filled: from now on verdicts to this engine name them.

    Attributes:
        unit: What `PagesGiven` named.
        prints: `fp64` of each object that was brought, 8 bytes little-endian each, in the unit's order.
        settled: Tokens of the prompt that are settled; fewer than the unit's end are refused, for what is speculative
            may still change.
    """

    unit: Id
    prints: Hashes
    settled: Tokens


class GivePagesUp(Message, frozen=True, tag="give_pages_up"):
    """Give asked pages back without filling them."""

    unit: Id


class FreePages(Message, frozen=True, tag="free_pages"):
    """Free copies of one kind in a device pool along a settled prefix; what is leased, asked for or pinned stays.

    Attributes:
        kind: Kind of what is freed; `RoutingError` if `group` is of another. Coupled partners go along.
        pool: Number that `PoolRegistered` gave.
        at: The settled prefix: speculative tokens are no part of it.
        group: Only this group; empty for all of the kind.
        whole: Free everything of the kind along the prefix and at its end. Otherwise only what a resume at its end, or
            behind it, needs no more: window pages before the window.
    """

    kind: Kind
    pool: Small
    at: Boundary
    group: GroupName = ""
    whole: bool = False


class Describe(Message, frozen=True, tag="describe"):
    """Ask what is stored along a path and at one boundary of it."""

    layout: Small
    at: Boundary


class Status(Message, frozen=True, tag="status"):
    """Ask for the daemon's state in numbers."""


class RegisterTopology(Message, frozen=True, tag="register_topology"):
    """Pin what a captured graph reads in place, until the topology is dropped or the engine's processes have ended."""

    parts: TopologyParts


class OpenRecapture(Message, frozen=True, tag="open_recapture"):
    """Say that a topology's graph is not replayed for now, so that what it reads may change."""

    topology: Id


class ChangeTopology(Message, frozen=True, tag="change_topology"):
    """Change what a topology pins; only inside its recapture window.

    Attributes:
        topology: The topology.
        add: What it shall pin; an object that it pins already is taken at the address that it has now.
        remove: What it shall pin no longer, unless `add` names it too.
        whole: `add` names all that it shall pin; everything else is removed.
    """

    topology: Id
    add: TopologyParts
    remove: TopologyParts
    whole: bool = False


class CloseRecapture(Message, frozen=True, tag="close_recapture"):
    """Say that a topology's graph was captured anew and may be replayed."""

    topology: Id


class DropTopology(Message, frozen=True, tag="drop_topology"):
    """Say that a topology's graph will never be replayed again."""

    topology: Id


class Topologies(Message, frozen=True, tag="topologies"):
    """Ask for the topologies of this engine, those that it registered before a restart of the daemon included."""


Request = (
    Hello
    | Register
    | Ring
    | Acquire
    | Settle
    | Renew
    | Release
    | Fingerprints
    | Arenas
    | Reserve
    | Join
    | Put
    | Commit
    | Abort
    | Evict
    | EvictMany
    | Quotas
    | Tenants
    | SetQuota
    | SetScrub
    | Offload
    | Restore
    | Warm
    | RegisterPool
    | DropPool
    | AskPages
    | ReportFilled
    | GivePagesUp
    | FreePages
    | Describe
    | RegisterTopology
    | OpenRecapture
    | ChangeTopology
    | CloseRecapture
    | DropTopology
    | Topologies
    | Epochs
    | SetEpoch
    | Status
)
