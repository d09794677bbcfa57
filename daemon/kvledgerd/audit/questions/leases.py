"""The life of a lease, and from it back to the objects that its holder read and to those who stored them."""

from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Select, and_, func, or_, select

from kvledger.counts import counted
from kvledger.errors import CallerError
from kvledgerd.audit.names import ObjectName
from kvledgerd.audit.questions.lives import Entry
from kvledgerd.audit.questions.reads import lease_notes
from kvledgerd.audit.questions.tables import (
    CELL,
    DELIVERY,
    ENGINE,
    EVENT,
    GROUP,
    LAYOUT,
    LOOKUP,
    OBJECT,
    OBJECT_EVENT,
    OFFER,
    UNIT,
    before,
    place_text,
)

__all__ = ["LeaseLife", "LeaseObject", "OfferView", "lease_life", "lease_of"]


class OfferView(msgspec.Struct, frozen=True):
    """An offer of a look-up: where it lets resume, and whether it lay in memory, was kept, and was approximate."""

    number: int
    position: int
    replay: int
    ready: bool
    kept: bool
    approx: bool


class LeaseObject(msgspec.Struct, frozen=True):
    """An object that was handed out under a lease, and who had stored the bytes that were read.

    Attributes:
        name: ``<cell>.<slot>``.
        group: Its group.
        shard: Its shard.
        place: Tokens that it stands for.
        bytes: Its size.
        stored_seq: The commit that brought these bytes, 0 if it was retired from the log.
        stored_by: Engine that committed, 0 if it was retired.
        stored_name: What people call that engine.
        fingerprint: Fingerprint that was committed.
    """

    name: str
    group: str
    shard: int
    place: str
    bytes: int
    stored_seq: int
    stored_by: int
    stored_name: str
    fingerprint: str


class LeaseLife(msgspec.Struct, frozen=True):
    """A lease: whose it was, what it offered, what happened to it, and what was read under it.

    Attributes:
        lease: Its receipt.
        engine: Who held it.
        engine_name: What people call it.
        uid: Its user.
        pid: Its process.
        model: Model of the layout.
        tokens: Length of the prompt.
        offers: What it offered, best first.
        entries: What happened to it.
        objects: What the kept offer handed out, or all offers if none was kept by name.
    """

    lease: int
    engine: int
    engine_name: str
    uid: int
    pid: int
    model: str
    tokens: int
    offers: list[OfferView]
    entries: list[Entry]
    objects: list[LeaseObject]


def lease_of(connection: Connection, seq: int) -> int:
    """Return the lease of a look-up.

    Raises:
        CallerError: the event is no look-up, or was a miss.
    """
    lease = connection.execute(select(LOOKUP.c.lease).where(LOOKUP.c.seq == seq)).scalar()
    if not lease:
        why = "it was a miss" if lease == 0 else "it is no look-up that is known"
        remedy = "name a hit, as `kvledger audit why` lists them"
        raise CallerError(f"event {seq} has no lease: {why}", field="seq", remedy=remedy)
    return int(lease)


def lease_life(connection: Connection, lease: int) -> LeaseLife:
    """Return everything that is told about one lease.

    Raises:
        CallerError: there was no such lease.
    """
    found = (
        select(LOOKUP, EVENT.c.time_ms, EVENT.c.actor, LAYOUT.c.model, ENGINE.c.name, ENGINE.c.uid, ENGINE.c.pid)
        .join(EVENT, EVENT.c.seq == LOOKUP.c.seq)
        .join(LAYOUT, LAYOUT.c.layout == LOOKUP.c.layout)
        .outerjoin(ENGINE, ENGINE.c.engine == LOOKUP.c.engine)
        .where(LOOKUP.c.lease == lease)
    )
    one = connection.execute(found).first() if lease > 0 else None
    if one is None:
        remedy = "name one that `kvledger audit why --json` shows"
        raise CallerError(f"no lease {lease} is known", field="lease", remedy=remedy)
    notes = lease_notes(connection, [lease])
    kept = next((note.offer for note in notes if note.what == "settled"), None)
    rows = connection.execute(select(OFFER).where(OFFER.c.seq == one.seq).order_by(OFFER.c.number)).all()
    offers = [OfferView(r.number, r.position, r.replay, r.ready, r.number == kept, r.approx) for r in rows]
    granted = f"{counted(len(offers), 'offer')} for {counted(one.tokens, 'token')}"
    entries = [Entry(one.seq, one.time_ms, one.actor, "granted", granted)]
    for note in notes:
        detail = f"offer {note.offer}" if note.what == "settled" else note.reason
        entries.append(Entry(note.seq, note.time_ms, note.actor, note.what, detail))
    who = (one.engine, one.name or "", one.uid or 0, one.pid or 0)
    objects = _objects(connection, one, [r for r in rows if r.ready and kept in {None, r.number}])
    return LeaseLife(lease, *who, one.model, one.tokens, offers, entries, objects)


def _objects(connection: Connection, lookup: Row[Any], offers: list[Row[Any]]) -> list[LeaseObject]:
    found: dict[ObjectName, LeaseObject] = {}
    for offer in offers:
        stored = {(row.cell, row.slot): row for row in connection.execute(_stored(lookup, offer))}
        for row in connection.execute(_handed_out(lookup, offer)):
            name = ObjectName(row.cell, row.slot)
            who = stored.get(name)
            found.setdefault(name, _object(row, who))
    return list(found.values())


def _object(row: Row[Any], who: Row[Any] | None) -> LeaseObject:
    place = place_text(row.first_token, row.end_token)
    head = (f"{row.cell}.{row.slot}", row.name, row.shard, place, row.bytes)
    if who is None:
        return LeaseObject(*head, 0, 0, "", "")
    return LeaseObject(*head, who.seq, who.engine or 0, who.name or "", who.fingerprint or "")


def _handed_out(lookup: Row[Any], offer: Row[Any]) -> Select[Any]:
    """Return a query for the objects that an offer handed out, in token order of each group and shard."""
    path = before(select(OFFER.c.node).where(OFFER.c.seq == lookup.seq, OFFER.c.number == offer.number))
    within = and_(
        DELIVERY.c.seq == lookup.seq,
        DELIVERY.c.offer == offer.number,
        DELIVERY.c.number == OBJECT.c.number,
        DELIVERY.c.shard == OBJECT.c.shard,
        DELIVERY.c.first_token <= OBJECT.c.first_token,
        DELIVERY.c.end_token >= OBJECT.c.end_token,
    )
    on_path = and_(CELL.c.layout == lookup.layout, CELL.c.residue < 0, CELL.c.node.in_(select(path.c.node)))
    return (
        select(OBJECT, GROUP.c.name)
        .join(CELL, CELL.c.cell == OBJECT.c.cell)
        .join(GROUP, and_(GROUP.c.layout == CELL.c.layout, GROUP.c.number == OBJECT.c.number))
        .join(DELIVERY, within)
        .where(or_(CELL.c.cell == offer.cell, on_path), OBJECT.c.seq <= lookup.seq)
        .order_by(OBJECT.c.number, OBJECT.c.shard, OBJECT.c.first_token, OBJECT.c.cell, OBJECT.c.slot)
    )


def _stored(lookup: Row[Any], offer: Row[Any]) -> Select[Any]:
    """Return a query for the commits that had brought these objects when they were looked up."""
    names = _handed_out(lookup, offer).order_by(None).subquery()
    brought = OBJECT_EVENT.c.what.in_(("committed", "resident"))
    newest = (
        select(OBJECT_EVENT.c.cell, OBJECT_EVENT.c.slot, func.max(OBJECT_EVENT.c.seq).label("seq"))
        .join(names, and_(names.c.cell == OBJECT_EVENT.c.cell, names.c.slot == OBJECT_EVENT.c.slot))
        .where(brought, OBJECT_EVENT.c.seq <= lookup.seq)
        .group_by(OBJECT_EVENT.c.cell, OBJECT_EVENT.c.slot)
        .subquery()
    )
    same = and_(
        newest.c.cell == OBJECT_EVENT.c.cell,
        newest.c.slot == OBJECT_EVENT.c.slot,
        newest.c.seq == OBJECT_EVENT.c.seq,
    )
    return (
        select(
            OBJECT_EVENT.c.cell,
            OBJECT_EVENT.c.slot,
            OBJECT_EVENT.c.seq,
            OBJECT_EVENT.c.fingerprint,
            UNIT.c.engine,
            ENGINE.c.name,
        )
        .join(newest, same)
        .outerjoin(UNIT, UNIT.c.unit == OBJECT_EVENT.c.unit)
        .outerjoin(ENGINE, ENGINE.c.engine == UNIT.c.engine)
        .where(brought)
    )
