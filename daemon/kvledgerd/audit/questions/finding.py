"""Search: what a number, a name, or the first digits of a hash may mean."""

import re
from collections.abc import Iterator
from typing import Final

import msgspec
from sqlalchemy import Connection, Table, select

from kvledger.counts import counted
from kvledger_storage.audit_sql.statements import storable
from kvledgerd.audit.questions.engines import list_engines
from kvledgerd.audit.questions.tables import CELL, ENGINE, LAYOUT, LOOKUP, NODE, OBJECT

__all__ = ["FOUND", "HASH_DIGITS", "Found", "find"]

FOUND: Final = 50
"""Things of one sort that an answer names."""
HASH_DIGITS: Final = 4
"""Digits of a hash that a search needs at least: fewer name half the tree."""
_NUMBER_DIGITS: Final = 18


class Found(msgspec.Struct, frozen=True):
    """A thing: `sort` is engine, object, lease, verdict, prefix, block or model, `name` names it, `says` tells more."""

    sort: str
    name: str
    says: str


def find(connection: Connection, text: str) -> list[Found]:
    """Return what a text may mean, the surest first."""
    text = storable(text.strip())
    return [*_numbered(connection, text), *_hashed(connection, text), *_named(connection, text)] if text else []


def _numbered(connection: Connection, text: str) -> Iterator[Found]:
    found = re.fullmatch(rf"([0-9]{{1,{_NUMBER_DIGITS}}})(?:\.([0-9]{{1,{_NUMBER_DIGITS}}}))?", text)
    if found is None:
        return
    number = int(found[1])
    if found[2]:
        here = (OBJECT.c.cell == number, OBJECT.c.slot == int(found[2]))
        for row in connection.execute(select(OBJECT.c.kind).where(*here)):
            yield Found("object", f"{number}.{int(found[2])}", row.kind)
        return
    for row in connection.execute(select(ENGINE.c.name).where(ENGINE.c.engine == number)):
        yield Found("engine", str(number), row.name)
    held = select(LOOKUP.c.seq).where(LOOKUP.c.lease == number, LOOKUP.c.lease > 0)
    for row in connection.execute(held):
        yield Found("lease", str(number), f"of verdict {row.seq}")
    for sort, table, column in (("verdict", LOOKUP, "seq"), ("prefix", CELL, "cell"), ("block", NODE, "node")):
        if _is_there(connection, table, column, number):
            yield Found(sort, str(number), "")


def _is_there(connection: Connection, table: Table, column: str, number: int) -> bool:
    return connection.execute(select(table.c[column]).where(table.c[column] == number)).first() is not None


def _hashed(connection: Connection, text: str) -> Iterator[Found]:
    digits = text.lower()
    if not re.fullmatch(rf"[0-9a-f]{{{HASH_DIGITS},64}}", digits):
        return
    # A range and not a pattern, since only that is sure to use the index
    near = (NODE.c.hash >= digits, NODE.c.hash < digits + "g")
    for row in connection.execute(select(NODE).where(*near).order_by(NODE.c.hash).limit(FOUND)):
        yield Found("block", str(row.node), f"{row.hash}, {counted(row.depth, 'block')} from the root")


def _named(connection: Connection, text: str) -> Iterator[Found]:
    for one in list_engines(connection, last=FOUND, named=text):
        yield Found("engine", str(one.engine), one.name)
    models = select(LAYOUT).where(LAYOUT.c.model.icontains(text, autoescape=True)).order_by(LAYOUT.c.layout)
    for row in connection.execute(models.limit(FOUND)):
        yield Found("model", row.model, f"layout {row.layout}, weights {row.weights}")
