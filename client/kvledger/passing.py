"""What one process of an engine hands to another: a hit to read, or a ticket to bring a rank's part of a unit.

An engine has a scheduler and ranks, each with its own connection. They have channels of their own, so a hit or a ticket
travels there as bytes, and costs no round trip to the daemon. The bytes are addresses and receipts of one incarnation
and one engine, and are checked as such; they hold nothing that the cache keeps, and they are no right: the daemon asks
the connection who it is.
"""

from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta

from kvledger.errors import CallerError, LeaseLost
from kvledger.wire.fields import EngineId, Hash, Id, Message, Small, Tokens
from kvledger.wire.replies import HandleRun, Offer
from kvledger.wire.requests import Boundary

__all__ = ["Origin", "PassedHit", "PassedTicket", "packed", "unpacked"]

P = TypeVar("P", "PassedHit", "PassedTicket")


class Origin(Message, frozen=True):
    """Where receipts and addresses are valid: one engine and one run of the daemon over one log."""

    engine: EngineId
    log_id: Annotated[bytes, Meta(max_length=16)]
    incarnation: Id

    def require(self, here: "Origin", what: str) -> None:
        """Return if this process speaks to the same daemon as the one that passed something, as the same engine.

        Raises:
            CallerError: It is another engine.
            LeaseLost: The daemon has been restarted since, or is another one.
        """
        if self.engine != here.engine:
            remedy = "open the caches of all processes of one engine with the same engine id"
            raise CallerError(f"this {what} belongs to another engine", field="engine", remedy=remedy)
        if (self.log_id, self.incarnation) != (here.log_id, here.incarnation):
            wrong = f"this {what} is of incarnation {self.incarnation}, the daemon is in {here.incarnation}"
            raise LeaseLost(wrong, field="incarnation", remedy="look up or reserve again")


class PassedHit(Message, frozen=True, tag="kvledger hit 1"):
    """A hit: its boundary with all handles, or a miss.

    Attributes:
        origin: Where it is valid.
        layout: Digest of the layout.
        asked: Length of the prompt.
        lease: The receipt, which stays its owner's.
        hash_tokens: What a plain hash cache would have claimed.
        offer: The boundary, None on a miss.
        rows: Rows of whole blocks below it.
    """

    origin: Origin
    layout: Hash
    asked: Tokens
    lease: Id
    hash_tokens: Tokens
    offer: Offer | None
    rows: list[HandleRun]


class PassedTicket(Message, frozen=True, tag="kvledger ticket 1"):
    """A ticket: which objects of a unit its rank brings.

    Attributes:
        origin: Where it is valid.
        layout: Digest of the layout.
        unit: The reservation.
        rank: The rank, which is the number of the ticket.
        first_block: First block whose rows the unit brings.
        end: End of the unit, tokens.
        boundary: Whether the end becomes a boundary.
        all_pages: Whether every window page of its blocks belongs to it.
        present: Bitmap over the unit's objects of those that were there already.
        persist: The unit's boundary, if its commit is acknowledged only once that is durable.
    """

    origin: Origin
    layout: Hash
    unit: Id
    rank: Small
    first_block: Small
    end: Tokens
    boundary: bool
    all_pages: bool
    present: bytes
    persist: Boundary | None = None


def packed(what: PassedHit | PassedTicket) -> bytes:
    """Return the bytes that another process of the engine unpacks."""
    return msgspec.msgpack.encode(what)


def unpacked(data: bytes, kind: type[P]) -> P:
    """Return what `packed` was given.

    Raises:
        CallerError: These are other bytes.
    """
    try:
        return msgspec.msgpack.decode(data, type=kind)
    except (msgspec.DecodeError, TypeError) as error:
        name = "hit" if kind is PassedHit else "ticket"
        remedy = f"pass what {'Hit.export' if kind is PassedHit else 'Unit.tickets'}() returned, unchanged"
        raise CallerError(f"these bytes are no {name}: {error}", field=name, remedy=remedy) from error
