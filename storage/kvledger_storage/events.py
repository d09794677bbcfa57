"""Everything that can happen to the cache, as it stands in the log.

Events record outcomes (the chosen victim, offset, number), so that replaying them needs no clock, no random number and
no environment; and only what the state at their sequence number does not already tell. An event is logged as a msgpack
array ``[time in ms since 1970, actor, [name, fields...]]``; the name carries the version of the event's form.

Objects are named (cell, slot): a cell is everything that one layout keeps at one place (a block or a boundary).
"""

from typing import Annotated

import msgspec
from msgspec import Meta

from kvledger.kinds import Kind
from kvledger.layout import Layout
from kvledger.verdict import Cut
from kvledger_storage.copy_events import (
    Blob,
    BoundaryName,
    DegradationChanged,
    ObjectName,
    ObjectsEvicted,
    ObjectsVerified,
    Offloaded,
    OffloadFailed,
    OffloadStarted,
    PrefixForgotten,
    PrefixKept,
    RestoreFinished,
    RestoreStarted,
    VerifyStarted,
    WriteDeclined,
)
from kvledger_storage.device_events import DeviceEvent
from kvledger_storage.disk_events import DiskEvent
from kvledger_storage.epoch_events import EpochAdded, EpochChanged, KernelRetired
from kvledger_storage.event_form import EventForm, Placement
from kvledger_storage.history_events import ArchiveRetired, SegmentsArchived
from kvledger_storage.quota_events import ArenaRekinded, QuotaMoved, QuotaSet
from kvledger_storage.relocation_events import Relocated, RelocationStarted
from kvledger_storage.topology_events import (
    GraphObject,
    Process,
    RecaptureClosed,
    RecaptureOpened,
    TopologyBroken,
    TopologyChanged,
    TopologyEnded,
    TopologyRegistered,
)
from kvledger_storage.unit_events import (
    BoundaryRefused,
    PutFinished,
    PutStarted,
    TicketJoined,
    TicketsCommitted,
    UnitAborted,
    UnitCommitted,
    UnitReserved,
)
from kvledger_storage.upcasting import UPCASTERS, upcast

__all__ = [
    "ArchiveRetired",
    "ArenaAdded",
    "ArenaDropped",
    "ArenaRekinded",
    "ArenaRequested",
    "Blob",
    "BoundaryName",
    "BoundaryRefused",
    "Checkpoint",
    "DegradationChanged",
    "EngineEntered",
    "EngineHeard",
    "EngineLeft",
    "EpochAdded",
    "EpochChanged",
    "Event",
    "EventError",
    "GraphObject",
    "IncarnationStarted",
    "IncarnationStopped",
    "KernelRetired",
    "LayoutRegistered",
    "LeaseEnded",
    "LeaseSettled",
    "Logged",
    "LookedUp",
    "ObjectName",
    "ObjectsEvicted",
    "ObjectsVerified",
    "OfferRecord",
    "OffloadFailed",
    "OffloadStarted",
    "Offloaded",
    "Placement",
    "PrefixForgotten",
    "PrefixKept",
    "Process",
    "PutFinished",
    "PutStarted",
    "QuotaMoved",
    "QuotaSet",
    "Reach",
    "RecaptureClosed",
    "RecaptureOpened",
    "Relocated",
    "RelocationStarted",
    "RestoreFinished",
    "RestoreStarted",
    "SegmentsArchived",
    "TicketJoined",
    "TicketsCommitted",
    "TopologyBroken",
    "TopologyChanged",
    "TopologyEnded",
    "TopologyRegistered",
    "UnitAborted",
    "UnitCommitted",
    "UnitReserved",
    "VerifyStarted",
    "Wish",
    "WriteDeclined",
    "decode",
    "encode",
]


class OfferRecord(EventForm, frozen=True):
    """An offer of a verdict: its boundary, what must be replayed, whether it lay in memory, and is approximate."""

    node: int
    residue: int
    residue_hash: bytes
    replay: int
    ready: bool
    approx: bool = False


class IncarnationStarted(EventForm, frozen=True, tag="incarnation_started.1"):
    """A daemon took over; what engines of older ones held is gone, with device pools and unpinned layouts.

    Attributes:
        incarnation: Its number.
        boot_id: Boot of the machine, 16 bytes.
        log_id: Id of the log, 16 bytes.
        serial: First receipt number that it may hand out; higher than any handed out before.
        session_lost: The older incarnation did not close its log: at most one batch of its session events is missing.
        tail_repaired: An unsynced tail of the log was lost.
    """

    incarnation: int
    boot_id: bytes
    log_id: bytes
    serial: int
    session_lost: bool
    tail_repaired: bool


class IncarnationStopped(EventForm, frozen=True, tag="incarnation_stopped.1"):
    """A daemon ended in order: nothing of its session is missing."""

    incarnation: int


class EngineEntered(EventForm, frozen=True, tag="engine_entered.1"):
    """An engine's first connection."""

    engine: int
    key: bytes
    tenant: str
    uid: int
    pid: int
    name: str


class EngineHeard(EventForm, frozen=True, tag="engine_heard.1"):
    """An engine fell silent, or was heard again."""

    engine: int
    silent: bool


class EngineLeft(EventForm, frozen=True, tag="engine_left.1"):
    """An engine ended: its leases are released, its units aborted, its device pools gone, unpinned layouts retired."""

    engine: int
    reason: str


class LayoutRegistered(EventForm, frozen=True, tag="layout_registered.1"):
    """A layout became known to a tenant, as part of an epoch."""

    number: int
    tenant: str
    epoch: int
    layout: Layout


class ArenaRequested(EventForm, frozen=True, tag="arena_requested.1"):
    """An arena is being made."""

    job: int
    arena: int
    tenant: str
    kind: Kind
    bytes: int


class ArenaAdded(EventForm, frozen=True, tag="arena_added.1"):
    """An arena joined its pool."""

    job: int
    arena: int


class ArenaDropped(EventForm, frozen=True, tag="arena_dropped.1"):
    """An arena is gone, with the memory copies that lay in it."""

    arena: int
    reason: str


class Wish(EventForm, frozen=True):
    """What a caller wanted of a look-up: the fields of the request that are no tokens."""

    leave: int
    minimum: int
    align: int
    restore: bool
    replay: bool
    approx: bool
    recompute: int


Reach = tuple[int, int, int]
"""Number of a kind, tokens that are recoverable, tokens that are ready."""


class LookedUp(EventForm, frozen=True, tag="looked_up.1"):
    """A verdict.

    Attributes:
        lease: Its receipt, 0 on a miss.
        engine: Who asked.
        layout: Number of the layout.
        tree: Number of the index tree.
        node: Deepest node that matched.
        tokens: Length of the prompt.
        hash_tokens: What a plain hash cache would have claimed.
        usable_tokens: Tokens of the best offer.
        offers: What was leased, best first.
        cuts: The four longest cuts.
        wish: What the caller wanted, so that the same verdict can be reached again.
        reach: Of a hash hit, how far it was recoverable and how far it lay ready, in tokens: first of the whole, with
            the number 0, then of each kind that the layout caches, taken alone.
    """

    lease: int
    engine: int
    layout: int
    tree: int
    node: int
    tokens: int
    hash_tokens: int
    usable_tokens: int
    offers: tuple[OfferRecord, ...]
    cuts: tuple[Cut, ...]
    wish: Wish
    reach: tuple[Reach, ...] = ()


class LeaseSettled(EventForm, frozen=True, tag="lease_settled.1"):
    """One offer of a lease was kept, the others were given back."""

    lease: int
    offer: int


class LeaseEnded(EventForm, frozen=True, tag="lease_ended.1"):
    """A lease ended: released by its owner, or revoked since its silent owner's bytes were wanted."""

    lease: int
    reason: str


class Checkpoint(EventForm, frozen=True, tag="checkpoint.1"):
    """Digest of the state after all events before this one; a replay that disagrees refuses."""

    digest: Annotated[int, Meta(ge=0)]


Event = (
    IncarnationStarted
    | IncarnationStopped
    | EngineEntered
    | EngineHeard
    | EngineLeft
    | EpochAdded
    | EpochChanged
    | KernelRetired
    | LayoutRegistered
    | ArenaRequested
    | ArenaAdded
    | ArenaDropped
    | ArenaRekinded
    | QuotaMoved
    | QuotaSet
    | LookedUp
    | LeaseSettled
    | LeaseEnded
    | BoundaryRefused
    | UnitReserved
    | TicketJoined
    | TicketsCommitted
    | PutStarted
    | PutFinished
    | UnitCommitted
    | UnitAborted
    | ObjectsEvicted
    | PrefixForgotten
    | VerifyStarted
    | ObjectsVerified
    | OffloadStarted
    | Offloaded
    | OffloadFailed
    | WriteDeclined
    | PrefixKept
    | DegradationChanged
    | RestoreStarted
    | RestoreFinished
    | RelocationStarted
    | Relocated
    | TopologyRegistered
    | RecaptureOpened
    | TopologyChanged
    | RecaptureClosed
    | TopologyBroken
    | TopologyEnded
    | SegmentsArchived
    | ArchiveRetired
    | DeviceEvent
    | DiskEvent
    | Checkpoint
)


class Logged(msgspec.Struct, frozen=True, array_like=True):
    """An event as it stands in the log.

    Attributes:
        time_ms: Wall time, ms since 1970; stamps the event and decides nothing.
        actor: Who caused it: ``engine:<number>``, ``daemon``, ``operator``.
        event: What happened.
    """

    time_ms: int
    actor: str
    event: Event


class EventError(Exception):
    """Bytes of the log are no event of a form that this version knows."""


class _AnyForm(msgspec.Struct, frozen=True, array_like=True):
    """An event of any form, which may be an older one."""

    time_ms: int
    actor: str
    event: list[object]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Logged)
_any_form = msgspec.msgpack.Decoder(_AnyForm)


def encode(event: Event, time_ms: int, actor: str) -> bytes:
    """Return the bytes of an event for the log."""
    return _encoder.encode(Logged(time_ms, actor, event))


def decode(raw: bytes | memoryview) -> Logged:
    """Return the event that the bytes of the log describe, in its newest form.

    Raises:
        EventError: the bytes are no event, or one of a newer form.
    """
    try:
        return _decoder.decode(raw)
    except msgspec.DecodeError as error:
        found = _of_older_form(raw)
        if found is not None:
            return found
        message = f"not an event that this version knows ({error}); run a version at least as new as the log"
        raise EventError(message) from error


def _of_older_form(raw: bytes | memoryview) -> Logged | None:
    """Return what an event of an older form says, None if it is of none."""
    try:
        found = _any_form.decode(raw)
        newest = upcast(found.event, UPCASTERS)
        return None if newest is found.event else msgspec.convert((found.time_ms, found.actor, newest), Logged)
    except (msgspec.DecodeError, LookupError, TypeError, ValueError):
        return None
