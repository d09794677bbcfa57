"""Requests about the disk tier as a whole, for operators."""

from kvledger.wire.fields import Message

__all__ = ["SetScrub"]


class SetScrub(Message, frozen=True, tag="set_scrub"):
    """Pause the scrubber or let it go on.

    Attributes:
        paused: Whether it reads nothing until it is told to go on; that outlives the daemon.
        now: Whether a pass begins as soon as it may, however long ago the last one ended.
    """

    paused: bool
    now: bool = False
