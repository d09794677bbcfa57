"""The cache after an event of the past, in numbers."""

from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Select, Table, and_, func, select

from kvledger.errors import CallerError
from kvledgerd.audit.questions.tables import (
    ENGINE,
    ENGINE_END,
    EVENT,
    LEASE_EVENT,
    LOOKUP,
    OBJECT,
    OBJECT_EVENT,
    UNIT,
    UNIT_EVENT,
)

__all__ = ["MomentCounts", "state_at"]


class MomentCounts(msgspec.Struct, frozen=True):
    """What there was after one event.

    Attributes:
        seq: That event.
        time_ms: When it was recorded, ms since 1970.
        objects: Kind to state to number of objects.
        bytes: Kind to bytes of these objects, each counted once wherever its copies lie.
        held: Engines alive, leases and units open.
    """

    seq: int
    time_ms: int
    objects: dict[str, dict[str, int]]
    bytes: dict[str, int]
    held: dict[str, int]


def state_at(connection: Connection, seq: int | None = None) -> MomentCounts:
    """Return what there was after event `seq`, or after the last one.

    Raises:
        CallerError: the event is not known.
    """
    if seq is None:
        seq = connection.execute(select(func.max(EVENT.c.seq))).scalar() or 0
    time_ms = connection.execute(select(EVENT.c.time_ms).where(EVENT.c.seq == seq)).scalar()
    if time_ms is None:
        remedy = "name an event between the first and the watermark, or ask with --consistent"
        raise CallerError(f"event {seq} is not known", field="at", remedy=remedy)
    objects: dict[str, dict[str, int]] = {}
    sizes: dict[str, int] = {}
    for kind, state, count, size in connection.execute(_objects_at(seq)):
        objects.setdefault(kind, {})[state] = count
        sizes[kind] = sizes.get(kind, 0) + int(size)
    return MomentCounts(seq, time_ms, objects, sizes, _held(connection, seq))


def _objects_at(seq: int) -> Select[Any]:
    told = OBJECT_EVENT.c
    newest = (
        select(told.cell, told.slot, func.max(told.seq).label("seq"))
        .where(told.state.is_not(None), told.seq <= seq)
        .group_by(told.cell, told.slot)
        .subquery()
    )
    same = and_(newest.c.cell == told.cell, newest.c.slot == told.slot, newest.c.seq == told.seq)
    return (
        select(OBJECT.c.kind, told.state, func.count(), func.sum(OBJECT.c.bytes))
        .select_from(OBJECT_EVENT)
        .join(newest, same)
        .join(OBJECT, and_(OBJECT.c.cell == told.cell, OBJECT.c.slot == told.slot))
        .where(told.state.is_not(None), told.state != "VACANT")
        .group_by(OBJECT.c.kind, told.state)
        .order_by(OBJECT.c.kind, told.state)
    )


def _held(connection: Connection, seq: int) -> dict[str, int]:
    def count(rows: Table, *conditions: ColumnElement[bool]) -> int:
        wanted = select(func.count()).select_from(rows).where(rows.c.seq <= seq, *conditions)
        return int(connection.execute(wanted).scalar() or 0)

    ended = LEASE_EVENT.c.what == "ended"
    return {
        "engines": count(ENGINE) - count(ENGINE_END),
        "leases": count(LOOKUP, LOOKUP.c.lease > 0) - count(LEASE_EVENT, ended),
        "units": count(UNIT) - count(UNIT_EVENT),
    }
