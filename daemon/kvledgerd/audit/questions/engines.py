"""Engines: who was there, from which process, how it ended, and how its look-ups fared."""

from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Select, case, func, select

from kvledger.errors import NotFoundError
from kvledgerd.audit.questions.tables import ENGINE, ENGINE_END, EVENT, LOOKUP, UNIT, UNIT_EVENT

__all__ = ["EngineLife", "EngineRecord", "engine_life", "list_engines"]


class EngineRecord(msgspec.Struct, frozen=True):
    """An engine.

    Attributes:
        engine: Its number.
        name: What people call it.
        tenant: Its tenant.
        uid: Its user.
        pid: Process of its first connection.
        entered: The event of its entry.
        time_ms: When that was, ms since 1970.
        ended: The event of its end, 0 while it is there.
        ended_ms: When that was, 0 while it is there.
        reason: Why it ended.
    """

    engine: int
    name: str
    tenant: str
    uid: int
    pid: int
    entered: int
    time_ms: int
    ended: int
    ended_ms: int
    reason: str


class EngineLife(msgspec.Struct, frozen=True):
    """An engine and its sums: verdicts, misses, tokens asked for, claimed by hash and offered, units by their end."""

    engine: EngineRecord
    verdicts: int
    misses: int
    tokens: int
    hash_tokens: int
    offered_tokens: int
    units: dict[str, int]


def list_engines(connection: Connection, *, last: int, before: int = 0, named: str = "") -> list[EngineRecord]:
    """Return engines, newest first.

    Args:
        connection: Where to ask.
        last: At most so many.
        before: Only those with a lower number; 0 for the newest.
        named: Only those whose name holds this text, in capitals or not.
    """
    wanted = _engines().order_by(ENGINE.c.engine.desc()).limit(last)
    if before:
        wanted = wanted.where(ENGINE.c.engine < before)
    if named:
        wanted = wanted.where(ENGINE.c.name.icontains(named, autoescape=True))
    return [_record(row) for row in connection.execute(wanted)]


def engine_life(connection: Connection, engine: int) -> EngineLife:
    """Return one engine with its sums.

    Raises:
        NotFoundError: There was never such an engine.
    """
    row = connection.execute(_engines().where(ENGINE.c.engine == engine)).first()
    if row is None:
        remedy = "`kvledger audit engines` lists them"
        raise NotFoundError(f"no engine {engine} is known", field="engine", remedy=remedy)
    one = _record(row)
    # Verdicts have no index by engine; between its entry and its end they are found by their events
    its = [LOOKUP.c.engine == engine, LOOKUP.c.seq >= one.entered]
    its += [LOOKUP.c.seq <= one.ended] if one.ended else []
    sums = select(
        func.count(),
        func.sum(case((LOOKUP.c.lease == 0, 1), else_=0)),
        func.sum(LOOKUP.c.tokens),
        func.sum(LOOKUP.c.hash_tokens),
        func.sum(LOOKUP.c.offered_tokens),
    ).where(*its)
    verdicts, misses, tokens, hash_tokens, offered = (int(number or 0) for number in connection.execute(sums).one())
    units = (
        select(func.coalesce(UNIT_EVENT.c.what, "open").label("what"), func.count().label("units"))
        .select_from(UNIT)
        .outerjoin(UNIT_EVENT, UNIT_EVENT.c.unit == UNIT.c.unit)
        .where(UNIT.c.engine == engine, UNIT.c.seq >= one.entered)
        .group_by(UNIT_EVENT.c.what)
    )
    ends = {row.what: row.units for row in connection.execute(units)}
    return EngineLife(one, verdicts, misses, tokens, hash_tokens, offered, ends)


def _engines() -> Select[Any]:
    start, end = EVENT.alias("entry"), EVENT.alias("leaving")
    return (
        select(ENGINE, start.c.time_ms, ENGINE_END.c.seq.label("ended"), ENGINE_END.c.reason)
        .add_columns(end.c.time_ms.label("ended_ms"))
        .outerjoin(start, start.c.seq == ENGINE.c.seq)
        .outerjoin(ENGINE_END, ENGINE_END.c.engine == ENGINE.c.engine)
        .outerjoin(end, end.c.seq == ENGINE_END.c.seq)
    )


def _record(r: Row[Any]) -> EngineRecord:
    begun = (r.engine, r.name, r.tenant, r.uid, r.pid, r.seq, r.time_ms or 0)
    return EngineRecord(*begun, r.ended or 0, r.ended_ms or 0, r.reason or "")
