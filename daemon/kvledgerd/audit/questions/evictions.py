"""What evictions displaced, and for whom: one decision makes room and takes it, so its events stand side by side."""

from typing import Any, Final

import msgspec
from sqlalchemy import Connection, Row, Select, and_, func, select

from kvledger.errors import CallerError
from kvledgerd.audit.questions.tables import (
    CELL,
    EVENT,
    EVICTION,
    GROUP,
    LAYOUT,
    OBJECT,
    OBJECT_EVENT,
    place_text,
)

__all__ = ["Displaced", "EvictionRecord", "KindDisplaced", "displaced_by", "evictions"]

_MAKES_ROOM: Final = ("ObjectsEvicted", "DeviceFreed", "PrefixForgotten", "LeaseEnded", "TopologyBroken")
"""Events by which a decision makes room; the next one behind them is what the room was made for."""
_NEAR: Final = 64
"""How many events behind an eviction its cause is looked for."""


class KindDisplaced(msgspec.Struct, frozen=True):
    """What an eviction displaced of one kind."""

    kind: str
    objects: int
    bytes: int


class EvictionRecord(msgspec.Struct, frozen=True):
    """One eviction.

    Attributes:
        seq: Its event.
        time_ms: When, ms since 1970.
        actor: Whose request it was, as the log has it.
        place: Where the copies went from.
        reason: Why.
        objects: How many objects lost a copy.
        kinds: The same by kind, with bytes.
        made_for: Event for which room was made, 0 if it was for none.
        made_for_name: What that event is.
    """

    seq: int
    time_ms: int
    actor: str
    place: str
    reason: str
    objects: int
    kinds: list[KindDisplaced]
    made_for: int
    made_for_name: str


class Displaced(msgspec.Struct, frozen=True):
    """An object that an eviction displaced."""

    name: str
    model: str
    group: str
    kind: str
    place: str
    bytes: int


def evictions(connection: Connection, last: int) -> list[EvictionRecord]:
    """Return the latest evictions, oldest first."""
    wanted = (
        select(EVICTION, EVENT.c.time_ms, EVENT.c.actor)
        .join(EVENT, EVENT.c.seq == EVICTION.c.seq)
        .order_by(EVICTION.c.seq.desc())
        .limit(last)
    )
    return [_record(connection, row) for row in reversed(connection.execute(wanted).all())]


def _record(connection: Connection, row: Row[Any]) -> EvictionRecord:
    kinds = (
        select(OBJECT.c.kind, func.count().label("objects"), func.sum(OBJECT.c.bytes).label("bytes"))
        .join(OBJECT_EVENT, and_(OBJECT_EVENT.c.cell == OBJECT.c.cell, OBJECT_EVENT.c.slot == OBJECT.c.slot))
        .where(OBJECT_EVENT.c.seq == row.seq, OBJECT_EVENT.c.what.in_(("dropped", "freed")))
        .group_by(OBJECT.c.kind)
        .order_by(OBJECT.c.kind)
    )
    by_kind = [KindDisplaced(k.kind, k.objects, int(k.bytes)) for k in connection.execute(kinds)]
    seq, name = _cause(connection, row)
    return EvictionRecord(row.seq, row.time_ms, row.actor, row.place, row.reason, row.objects, by_kind, seq, name)


def _cause(connection: Connection, row: Row[Any]) -> tuple[int, str]:
    """Return what the room was made for: the next event of the same decision that makes none itself."""
    if row.reason == "asked":
        return 0, ""
    behind = (
        select(EVENT.c.seq, EVENT.c.name, EVENT.c.actor)
        .where(EVENT.c.seq > row.seq, EVENT.c.seq <= row.seq + _NEAR)
        .order_by(EVENT.c.seq)
    )
    for one in connection.execute(behind):
        if one.actor != row.actor:
            return 0, ""
        if one.name not in _MAKES_ROOM:
            return one.seq, one.name
    return 0, ""


def displaced_by(connection: Connection, seq: int) -> list[Displaced]:
    """Return the objects that one eviction displaced.

    Raises:
        CallerError: the event is no eviction.
    """
    if connection.execute(select(EVICTION.c.seq).where(EVICTION.c.seq == seq)).first() is None:
        remedy = "name one that `kvledger audit evictions` lists"
        raise CallerError(f"event {seq} is no eviction that is known", field="seq", remedy=remedy)
    return [
        Displaced(f"{r.cell}.{r.slot}", r.model, r.name, r.kind, place_text(r.first_token, r.end_token), r.bytes)
        for r in connection.execute(_objects(seq))
    ]


def _objects(seq: int) -> Select[Any]:
    return (
        select(OBJECT, LAYOUT.c.model, GROUP.c.name)
        .join(OBJECT_EVENT, and_(OBJECT_EVENT.c.cell == OBJECT.c.cell, OBJECT_EVENT.c.slot == OBJECT.c.slot))
        .join(CELL, CELL.c.cell == OBJECT.c.cell)
        .join(LAYOUT, LAYOUT.c.layout == CELL.c.layout)
        .join(GROUP, and_(GROUP.c.layout == CELL.c.layout, GROUP.c.number == OBJECT.c.number))
        .where(OBJECT_EVENT.c.seq == seq, OBJECT_EVENT.c.what.in_(("dropped", "freed")))
        .order_by(OBJECT_EVENT.c.number)
    )
