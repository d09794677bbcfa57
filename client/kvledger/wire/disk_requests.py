"""Requests about the disk tier as a whole, for operators."""

from typing import Annotated

from msgspec import Meta

from kvledger.wire.fields import Hash, Id, Message

__all__ = ["SetScrub", "Warm"]


class SetScrub(Message, frozen=True, tag="set_scrub"):
    """Pause the scrubber or let it go on.

    Attributes:
        paused: Whether it reads nothing until it is told to go on; that outlives the daemon.
        now: Whether a pass begins as soon as it may, however long ago the last one ended.
    """

    paused: bool
    now: bool = False


class Warm(Message, frozen=True, tag="warm"):
    """Bring prefixes back from disk ahead of need, those used most recently first, into memory that is free.

    Attributes:
        layout: First bytes of the digest of their layout; empty for any.
        block: Chain hash of a block on their path; empty for any.
        bytes: How many bytes to bring at most; 0 for as many as memory may have.
    """

    layout: Annotated[bytes, Meta(max_length=32)] = b""
    block: Hash = b""
    bytes: Id = 0
