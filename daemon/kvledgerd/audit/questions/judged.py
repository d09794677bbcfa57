"""Verdicts: the latest ones with what cut them, and all of them counted by reason over time; not the daemon's own."""

import msgspec
from sqlalchemy import Connection, case, func, or_, select

from kvledgerd.audit.questions.tables import CUT, EVENT, LAYOUT, LOOKUP, USED, lookups
from kvledgerd.audit.verdicts import VerdictRecord

__all__ = ["ReasonCount", "latest_verdicts", "reasons"]


class ReasonCount(msgspec.Struct, frozen=True):
    """Verdicts of one stretch of time that one reason cut most.

    Attributes:
        time_ms: Where the stretch begins, ms since 1970.
        code: Reason of the longest cut, empty where nothing was cut.
        layer: Layer of that cut, 0 where nothing was cut.
        verdicts: How many verdicts.
        misses: How many of them offered nothing.
        tokens: Tokens of their prompts.
        hash_tokens: What a plain hash cache would have claimed of these.
        offered_tokens: What the deepest boundaries that were offered spare.
        cut_tokens: Tokens of these longest cuts.
    """

    time_ms: int
    code: str
    layer: int
    verdicts: int
    misses: int
    tokens: int
    hash_tokens: int
    offered_tokens: int
    cut_tokens: int


def latest_verdicts(connection: Connection, *, last: int, misses: bool = False, engine: int = 0) -> list[VerdictRecord]:
    """Return the latest verdicts, oldest first; arguments as for `kvledgerd.audit.verdicts.verdicts`."""
    wanted = lookups().where(USED).order_by(LOOKUP.c.seq.desc()).limit(last)
    if misses:
        wanted = wanted.where(or_(LOOKUP.c.lease == 0, LOOKUP.c.offered_tokens < LOOKUP.c.hash_tokens))
    if engine:
        wanted = wanted.where(LOOKUP.c.engine == engine)
    rows = connection.execute(wanted).all()
    found = []
    for row in reversed(rows):
        why = connection.execute(select(CUT.c.detail).where(CUT.c.seq == row.seq).order_by(CUT.c.number)).scalars()
        found.append(
            VerdictRecord(
                row.seq,
                row.time_ms,
                row.engine,
                row.name or "",
                row.model,
                row.tokens,
                row.hash_tokens,
                row.offered_tokens,
                row.lease,
                list(why),
            )
        )
    return found


def reasons(connection: Connection, every_ms: int) -> list[ReasonCount]:
    """Return all verdicts counted by the reason of their longest cut, in stretches of `every_ms` milliseconds."""
    start = (EVENT.c.time_ms - EVENT.c.time_ms % every_ms).label("start")
    code, layer = func.coalesce(CUT.c.code, "").label("code"), func.coalesce(CUT.c.layer, 0).label("layer")
    counted = (
        select(
            start,
            code,
            layer,
            func.count().label("verdicts"),
            func.sum(case((LOOKUP.c.lease == 0, 1), else_=0)).label("misses"),
            func.sum(LOOKUP.c.tokens).label("tokens"),
            func.sum(LOOKUP.c.hash_tokens).label("hash_tokens"),
            func.sum(LOOKUP.c.offered_tokens).label("offered_tokens"),
            func.coalesce(func.sum(CUT.c.end_token - CUT.c.start_token), 0).label("cut_tokens"),
        )
        .select_from(LOOKUP)
        .join(EVENT, EVENT.c.seq == LOOKUP.c.seq)
        .join(LAYOUT, LAYOUT.c.layout == LOOKUP.c.layout)
        .where(USED)
        .outerjoin(CUT, (CUT.c.seq == LOOKUP.c.seq) & (CUT.c.number == 0))
        .group_by(start, code, layer)
        .order_by(start, code, layer)
    )
    # The sum of a bigint is a decimal on PostgreSQL
    return [ReasonCount(r.start, r.code, r.layer, *(int(n) for n in tuple(r)[3:])) for r in connection.execute(counted)]
