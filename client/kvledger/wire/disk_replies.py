"""Replies about disk prefixes: what was written, what was read back, and how far a restore is."""

from kvledger.wire.fields import Id, Message, Small

__all__ = ["Offloaded", "Pending", "Restored", "Warming"]


class Offloaded(Message, frozen=True, tag="offloaded"):
    """A boundary is on disk, durable: objects and bytes written now, and objects that were there already."""

    objects: Small
    bytes: Id
    already: Small = 0


class Restored(Message, frozen=True, tag="restored"):
    """A boundary is in memory, verified: number of objects and bytes read."""

    objects: Small
    bytes: Id


class Pending(Message, frozen=True, tag="pending"):
    """A restore is under way; asking again joins it.

    Attributes:
        job: The job that is waited for.
        done: Objects that it has read and verified; nobody sees one of them before all were tried.
        total: Objects that it brings.
        done_bytes: Bytes that it has read and verified.
        total_bytes: Bytes that it brings.
    """

    job: Id
    done: Id
    total: Id
    done_bytes: Id = 0
    total_bytes: Id = 0


class Warming(Message, frozen=True, tag="warming"):
    """A warm-up is under way.

    Attributes:
        job: The job that it waits for, 0 if there is none.
        objects: Objects that the job brings.
        bytes: Their bytes.
        seen: Prefixes that it has looked at.
        total: Prefixes among which it chooses.
    """

    job: Id
    objects: Small
    bytes: Id
    seen: Small
    total: Small
