"""Who read an object: the look-ups that handed it out, and what became of their leases.

A look-up's path is kept, and of each group and shard the tokens that it handed out. So an object was handed out if
its block lies on the path of an offer, or it belongs to the offer's boundary, and its tokens lie within those.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, ScalarSelect, Select, exists, func, select

from kvledgerd.audit.questions.tables import (
    CELL,
    DELIVERY,
    ENGINE,
    EVENT,
    LEASE_EVENT,
    LOOKUP,
    OBJECT,
    OFFER,
    behind,
)

__all__ = ["LeaseNote", "ReadRecord", "lease_notes", "reads_of"]

_AT_ONCE: Final = 500
"""Leases of one query; SQLite takes at most 32,766 parameters."""


class ReadRecord(msgspec.Struct, frozen=True):
    """One look-up that named an object.

    Attributes:
        seq: The look-up.
        time_ms: When, ms since 1970.
        actor: Who caused it, as the log has it.
        engine: Who asked.
        engine_name: What people call it.
        uid: Its user.
        pid: Its process.
        lease: The lease.
        position: Where the offer lets it resume.
        offer: Which of the offers.
        is_only: Whether the look-up made no other offer.
        how: ``read`` if it was handed out, alone or as the offer that was kept; ``offered`` if the client has not said
            which one it keeps; ``not taken`` if it kept another; ``found on disk`` if it has to be restored first.
    """

    seq: int
    time_ms: int
    actor: str
    engine: int
    engine_name: str
    uid: int
    pid: int
    lease: int
    position: int
    offer: int
    is_only: bool
    how: str


class LeaseNote(msgspec.Struct, frozen=True):
    """What became of a lease."""

    seq: int
    time_ms: int
    actor: str
    lease: int
    what: str
    offer: int | None
    reason: str


def reads_of(connection: Connection, cell: int, slot: int) -> list[ReadRecord]:
    """Return the look-ups that named an object, in the order of the log."""
    offered = connection.execute(_offers_of(connection, cell, slot)).all()
    leases = [row.lease for row in offered]
    kept = {note.lease: note.offer for note in lease_notes(connection, leases) if note.what == "settled"}
    found = []
    for _, some in groupby(offered, key=lambda row: row.seq):
        rows = list(some)
        mine = next((row for row in rows if row.number == kept.get(row.lease)), rows[0])
        found.append(_record(mine, kept))
    return found


def _record(row: Row[Any], kept: dict[int, int | None]) -> ReadRecord:
    if not row.ready:
        how = "found on disk"
    elif row.lease in kept:
        how = "read" if kept[row.lease] == row.number else "not taken"
    else:
        how = "read" if row.offers == 1 else "offered"
    who = (row.engine, row.name or "", row.uid or 0, row.pid or 0)
    return ReadRecord(row.seq, row.time_ms, row.actor, *who, row.lease, row.position, row.number, row.offers == 1, how)


def _offers_of(connection: Connection, cell: int, slot: int) -> Select[Any]:
    """Return a query for the offers that hand an object out, by look-up and place."""
    mine = (
        select(OBJECT, CELL.c.layout, CELL.c.node, CELL.c.residue)
        .join(CELL, CELL.c.cell == OBJECT.c.cell)
        .where(OBJECT.c.cell == cell, OBJECT.c.slot == slot)
    )
    one = connection.execute(mine).one()
    handed_out = exists().where(
        DELIVERY.c.seq == OFFER.c.seq,
        DELIVERY.c.offer == OFFER.c.number,
        DELIVERY.c.number == one.number,
        DELIVERY.c.shard == one.shard,
        DELIVERY.c.first_token <= one.first_token,
        DELIVERY.c.end_token >= one.end_token,
    )
    on_path = OFFER.c.cell == cell if one.residue >= 0 else OFFER.c.node.in_(select(behind(one.node).c.node))
    others = _count_of_offers()
    return (
        select(
            LOOKUP.c.seq,
            EVENT.c.time_ms,
            EVENT.c.actor,
            LOOKUP.c.engine,
            ENGINE.c.name,
            ENGINE.c.uid,
            ENGINE.c.pid,
            LOOKUP.c.lease,
            OFFER.c.position,
            OFFER.c.number,
            OFFER.c.ready,
            others.label("offers"),
        )
        .join(OFFER, OFFER.c.seq == LOOKUP.c.seq)
        .join(EVENT, EVENT.c.seq == LOOKUP.c.seq)
        .outerjoin(ENGINE, ENGINE.c.engine == LOOKUP.c.engine)
        .where(LOOKUP.c.lease > 0, LOOKUP.c.layout == one.layout, on_path, handed_out)
        .order_by(LOOKUP.c.seq, OFFER.c.number)
    )


def _count_of_offers() -> ScalarSelect[int]:
    """Return how many offers a look-up made."""
    other = OFFER.alias("other")
    return select(func.count()).select_from(other).where(other.c.seq == LOOKUP.c.seq).scalar_subquery()


def lease_notes(connection: Connection, leases: Sequence[int]) -> list[LeaseNote]:
    """Return what became of leases, in the order of the log."""
    found: list[LeaseNote] = []
    distinct = list(dict.fromkeys(leases))
    for first in range(0, len(distinct), _AT_ONCE):
        notes = (
            select(LEASE_EVENT, EVENT.c.time_ms, EVENT.c.actor)
            .join(EVENT, EVENT.c.seq == LEASE_EVENT.c.seq)
            .where(LEASE_EVENT.c.lease.in_(distinct[first : first + _AT_ONCE]))
        )
        found += [
            LeaseNote(row.seq, row.time_ms, row.actor, row.lease, row.what, row.offer, row.reason)
            for row in connection.execute(notes)
        ]
    return sorted(found, key=lambda note: (note.seq, note.lease))
