"""Rows about what happened: to objects, units and boundaries, and what look-ups were answered."""

from typing import NamedTuple

__all__ = [
    "CutRow",
    "DeliveryRow",
    "EngineEndRow",
    "EvictionRow",
    "LeaseEventRow",
    "LookupRow",
    "ObjectEventRow",
    "OfferRow",
    "PrefixEventRow",
    "UnitEventRow",
]


class EngineEndRow(NamedTuple):
    """An engine ended, by itself or with the daemon.

    Attributes:
        engine: Its number.
        seq: The event.
        reason: Why.
    """

    engine: int
    seq: int
    reason: str


class UnitEventRow(NamedTuple):
    """A unit ended.

    Attributes:
        unit: Its receipt.
        seq: The event.
        what: ``committed`` or ``aborted``.
        detail: The rest, for people.
    """

    unit: int
    seq: int
    what: str
    detail: str


class ObjectEventRow(NamedTuple):
    """Something happened to an object. Who read it is told by `lookup`, `offer` and `delivery`.

    Attributes:
        seq: The event.
        number: Place among the rows of its event.
        cell: Cell of the object.
        slot: Slot of the object.
        what: What happened, in one word or two.
        state: State that it has since then; NULL if it has the one from before.
        unit: The reservation that brought it, NULL if none did.
        fingerprint: Fingerprint that was committed, NULL if none was.
        detail: The rest, for people.
    """

    seq: int
    number: int
    cell: int
    slot: int
    what: str
    state: str | None
    unit: int | None
    fingerprint: str | None
    detail: str


class PrefixEventRow(NamedTuple):
    """Something happened to a boundary as a whole.

    Attributes:
        seq: The event.
        number: Place among the rows of its event.
        cell: Cell of the boundary.
        what: What happened.
        detail: The rest, for people.
    """

    seq: int
    number: int
    cell: int
    what: str
    detail: str


class EvictionRow(NamedTuple):
    """Copies were dropped by one decision; `object_event` names them under the same seq.

    Attributes:
        seq: The event.
        place: Where they went from: ``memory``, ``disk``, ``memory and disk``, or a device pool.
        reason: Why.
        objects: How many.
    """

    seq: int
    place: str
    reason: str
    objects: int


class LookupRow(NamedTuple):
    """A verdict.

    Attributes:
        seq: The event.
        lease: Its receipt, 0 on a miss.
        engine: Who asked.
        layout: Number of the layout.
        node: Deepest block that matched, 0 for none.
        tokens: Length of the prompt.
        hash_tokens: What a plain hash cache would have claimed.
        recoverable_tokens: How far that was recoverable.
        ready_tokens: How far it lay ready.
        usable_tokens: Best boundary that was offered and lies at the end of a block.
        offered_tokens: Deepest boundary that was offered.
        wish: What the caller wanted, as JSON.
    """

    seq: int
    lease: int
    engine: int
    layout: int
    node: int
    tokens: int
    hash_tokens: int
    recoverable_tokens: int
    ready_tokens: int
    usable_tokens: int
    offered_tokens: int
    wish: str


class OfferRow(NamedTuple):
    """A boundary that a verdict offered, best first.

    Attributes:
        seq: The verdict.
        number: Its place among the offers, from 0 on.
        node: Its last whole block, 0 for none.
        cell: The boundary's cell, 0 if it keeps nothing of its own.
        position: Tokens before it.
        residue: How many of them follow the last whole block.
        replay: Tokens that must be computed again.
        ready: Whether it lay in memory; otherwise it has to be restored first.
        approx: Whether it was an approximation.
    """

    seq: int
    number: int
    node: int
    cell: int
    position: int
    residue: int
    replay: int
    ready: bool
    approx: bool


class CutRow(NamedTuple):
    """Why tokens of a prompt were not usable: the longest runs of a verdict.

    Attributes:
        seq: The verdict.
        number: Its place, longest first, from 0 on.
        layer: Layer of validation that cut.
        code: Reason.
        start_token: First token of the run.
        end_token: Token behind the last.
        group_name: Group that cut, empty if none did.
        detail: All of it, for people.
    """

    seq: int
    number: int
    layer: int
    code: str
    start_token: int
    end_token: int
    group_name: str
    detail: str


class DeliveryRow(NamedTuple):
    """What an offer handed out of one group and shard; or of one that was not ready, what has to be restored for it.

    Attributes:
        seq: The verdict.
        offer: Number of the offer.
        number: Group in the layout.
        shard: Shard.
        first_token: First token of the run.
        end_token: Token behind the last; equal to `first_token` for a snapshot.
    """

    seq: int
    offer: int
    number: int
    shard: int
    first_token: int
    end_token: int


class LeaseEventRow(NamedTuple):
    """A lease was settled or ended.

    Attributes:
        seq: The event.
        lease: Its receipt.
        what: ``settled`` or ``ended``.
        offer: The offer that was kept; NULL at an end.
        reason: Why it ended, empty if it was settled.
    """

    seq: int
    lease: int
    what: str
    offer: int | None
    reason: str
