"""Requests about dropping copies: along a path that an engine knows, and of many objects for whoever knows none."""

from typing import Annotated

from msgspec import Meta

from kvledger.kinds import Kind
from kvledger.wire.fields import Boundary, GroupName, Hash, Id, Message, Small

__all__ = ["Evict", "EvictMany", "EvictedMany"]


class Evict(Message, frozen=True, tag="evict"):
    """Drop copies of objects of one kind: of one boundary's or path's group, or of one object by its number.

    Attributes:
        kind: Kind of what is dropped; `RoutingError` if it is another.
        layout: Number that `Registered` gave.
        at: Boundary at which, or path along which, objects are dropped.
        group: Only this group; empty for all of the kind.
        block: Only this block; -1 for the boundary's own objects, -2 for all of the path and the boundary.
        page: Only this page of the block; -1 for all.
        disk: Drop the disk copies as well.
    """

    kind: Kind
    layout: Small
    at: Boundary
    group: GroupName = ""
    block: Annotated[int, Meta(ge=-2, le=2**31)] = -2
    page: Annotated[int, Meta(ge=-1, le=2**31)] = -1
    disk: bool = False


class EvictMany(Message, frozen=True, tag="evict_many"):
    """Drop copies of one kind of the caller's tenant, a bounded number of places a time.

    Attributes:
        kind: Kind of what is dropped; of `Kind.DISK_PREFIX` manifests go, with what only their boundaries keep on disk.
        layout: First bytes of the digest of their layout; empty for any.
        block: Chain hash of a block on their path; empty for any.
        position: Only what belongs to boundaries at this position, tokens; -1 for all.
        memory: Drop memory copies.
        disk: Drop disk copies.
        dry_run: Change nothing, and answer as if.
        after: Where to go on: 0 at first, then `EvictedMany.next`.
    """

    kind: Kind
    layout: Annotated[bytes, Meta(max_length=32)] = b""
    block: Hash = b""
    position: Annotated[int, Meta(ge=-1, le=2**40)] = -1
    memory: bool = True
    disk: bool = False
    dry_run: bool = False
    after: Id = 0


class EvictedMany(Message, frozen=True, tag="evicted_many"):
    """What went of the places that were looked at, and what stayed there.

    Attributes:
        objects: Objects, or manifests, that lost copies.
        memory_bytes: Bytes of their memory copies.
        disk_bytes: Bytes of their disk copies.
        leased: Objects that stayed since a lease names them.
        pinned: Objects that stayed since a captured graph reads them.
        busy: Objects that stayed since they are being copied, read, written or built upon.
        next: Where to go on, 0 if all was looked at.
    """

    objects: Small
    memory_bytes: Id
    disk_bytes: Id
    leased: Small = 0
    pinned: Small = 0
    busy: Small = 0
    next: Id = 0
