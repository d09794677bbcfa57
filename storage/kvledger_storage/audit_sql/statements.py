"""What a projection reads and writes, each in the transaction of whoever calls.

A database is never half of one log and half of another: it names its log, and each watermark names the chain behind its
last frame. Where that chain and the log disagree, a power cut took back a tail that had been read before it was synced,
and the rows behind the last watermark that both know are taken back as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import func, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite

from kvledger_storage.audit_sql.rows import ObjectEventRow, SourceRow, WatermarkRow
from kvledger_storage.audit_sql.schema import TABLE_OF

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from kvledger_storage.audit_sql.rows import AnyRow

__all__ = ["insert_rows", "newest_mark", "source_of", "states_now", "storable", "take_back", "watermarks"]


def source_of(connection: Connection) -> str:
    """Return the id of the log that is told about, empty if nothing was projected yet."""
    return connection.execute(select(TABLE_OF[SourceRow].c.log_id)).scalar() or ""


def watermarks(connection: Connection) -> Iterator[WatermarkRow]:
    """Yield the watermarks, newest first."""
    marks = TABLE_OF[WatermarkRow]
    for row in connection.execute(select(marks).order_by(marks.c.seq.desc())):
        yield WatermarkRow(*row)


def newest_mark(connection: Connection) -> WatermarkRow | None:
    """Return how far the log was projected, None if nothing was."""
    return next(watermarks(connection), None)


def storable(text: str) -> str:
    """Return a text as every database takes it: PostgreSQL refuses NUL, which any engine may have in its name."""
    return text.replace("\0", "\u2400")


def insert_rows(connection: Connection, rows: Mapping[type[AnyRow], Sequence[AnyRow]]) -> None:
    """Insert rows, their texts as `storable` has them; what is there already stays as it is."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    for form, some in rows.items():
        names = list(TABLE_OF[form].c.keys())
        statement = insert(TABLE_OF[form]).on_conflict_do_nothing()
        connection.execute(statement, [dict(zip(names, map(_storable, row), strict=True)) for row in some])


def _storable(value: object) -> object:
    return storable(value) if isinstance(value, str) else value


def take_back(connection: Connection, seq: int) -> None:
    """Remove what was written about events behind `seq`."""
    for one in TABLE_OF.values():
        connection.execute(one.delete().where(one.c.seq > seq))


def states_now(connection: Connection) -> dict[tuple[int, int], str]:
    """Return the state of each object that is there, by cell and slot."""
    told = TABLE_OF[ObjectEventRow].c
    has_state = told.state.is_not(None)
    newest = select(told.cell, told.slot, func.max(told.seq)).where(has_state).group_by(told.cell, told.slot)
    found = select(told.cell, told.slot, told.state).where(
        has_state, told.state != "VACANT", tuple_(told.cell, told.slot, told.seq).in_(newest)
    )
    return {(cell, slot): state for cell, slot, state in connection.execute(found)}
