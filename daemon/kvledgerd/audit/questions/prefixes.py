"""The life of a prefix: what happened to a boundary and to the blocks that it stands on, and who was offered it."""

from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Select, and_, func, or_, select

from kvledger.counts import counted
from kvledger.errors import CallerError
from kvledgerd.audit.questions.boundaries import stands_on_blocks
from kvledgerd.audit.questions.lives import Entry
from kvledgerd.audit.questions.tables import (
    CELL,
    EVENT,
    LAYOUT,
    LOOKUP,
    NODE,
    OBJECT_EVENT,
    OFFER,
    PREFIX_EVENT,
    before,
)

__all__ = ["PrefixLife", "PrefixRecord", "list_prefixes", "prefix_life"]


class PrefixRecord(msgspec.Struct, frozen=True):
    """A boundary or block.

    Attributes:
        cell: Its cell, by which it is named.
        model: Model of its layout.
        layout: Number of the layout.
        position: Tokens before its end.
        residue: How many of them follow the last whole block; -1 for a block.
        hash: Chain hash of its last whole block, empty if there is none.
    """

    cell: int
    model: str
    layout: int
    position: int
    residue: int
    hash: str


class PrefixLife(msgspec.Struct, frozen=True):
    """A prefix, and all that happened to it and to the blocks that it stands on."""

    prefix: PrefixRecord
    entries: list[Entry]


def list_prefixes(connection: Connection, beginning: str = "") -> list[PrefixRecord]:
    """Return every boundary that was ever stored; with digits of a hash, the blocks and boundaries that it names.

    Args:
        connection: Where to ask.
        beginning: First hexadecimal digits of the chain hash of the last whole block.
    """
    wanted = _cells().order_by(CELL.c.cell)
    if beginning:
        wanted = wanted.where(NODE.c.hash.startswith(beginning.lower(), autoescape=True))
    else:
        wanted = wanted.where(or_(CELL.c.residue >= 0, stands_on_blocks()))
    return [_record(row) for row in connection.execute(wanted)]


def prefix_life(connection: Connection, cell: int) -> PrefixLife:
    """Return everything that is told about one prefix.

    Raises:
        CallerError: there was no such cell.
    """
    row = connection.execute(_cells().where(CELL.c.cell == cell)).first()
    if row is None:
        remedy = "list them with `kvledger audit prefixes`"
        raise CallerError(f"no cell {cell} is known", field="prefix", remedy=remedy)
    entries = [*_of_objects(connection, row), *_of_prefix(connection, row), *_offered(connection, row)]
    return PrefixLife(_record(row), sorted(entries, key=lambda entry: entry.seq))


def _cells() -> Select[Any]:
    return (
        select(CELL, LAYOUT.c.model, NODE.c.hash)
        .join(LAYOUT, LAYOUT.c.layout == CELL.c.layout)
        .outerjoin(NODE, NODE.c.node == CELL.c.node)
    )


def _record(row: Row[Any]) -> PrefixRecord:
    return PrefixRecord(row.cell, row.model, row.layout, row.position, row.residue, row.hash or "")


def _of_objects(connection: Connection, row: Row[Any]) -> list[Entry]:
    """Return what happened to its objects, those of one event together."""
    path = before(select(CELL.c.node).where(CELL.c.cell == row.cell))
    on_path = and_(CELL.c.layout == row.layout, CELL.c.residue < 0, CELL.c.node.in_(select(path.c.node)))
    told = (
        select(
            OBJECT_EVENT.c.seq,
            OBJECT_EVENT.c.what,
            func.count().label("objects"),
            func.min(OBJECT_EVENT.c.number).label("first"),
            func.min(EVENT.c.time_ms).label("time_ms"),
            func.min(EVENT.c.actor).label("actor"),
        )
        .join(CELL, CELL.c.cell == OBJECT_EVENT.c.cell)
        .outerjoin(EVENT, EVENT.c.seq == OBJECT_EVENT.c.seq)
        .where(or_(CELL.c.cell == row.cell, on_path))
        .group_by(OBJECT_EVENT.c.seq, OBJECT_EVENT.c.what)
        .order_by(OBJECT_EVENT.c.seq, func.min(OBJECT_EVENT.c.number))
    )
    found = connection.execute(told)
    return [Entry(r.seq, r.time_ms or 0, r.actor or "", r.what, counted(r.objects, "object")) for r in found]


def _of_prefix(connection: Connection, row: Row[Any]) -> list[Entry]:
    told = (
        select(PREFIX_EVENT, EVENT.c.time_ms, EVENT.c.actor)
        .join(EVENT, EVENT.c.seq == PREFIX_EVENT.c.seq)
        .where(PREFIX_EVENT.c.cell == row.cell)
        .order_by(PREFIX_EVENT.c.seq)
    )
    return [Entry(r.seq, r.time_ms, r.actor, f"prefix {r.what}", r.detail) for r in connection.execute(told)]


def _offered(connection: Connection, row: Row[Any]) -> list[Entry]:
    """Return the look-ups that offered to resume right here."""
    here = OFFER.c.cell == row.cell
    if row.residue <= 0:
        here = or_(here, and_(OFFER.c.node == row.node, OFFER.c.residue == 0))
    told = (
        select(LOOKUP.c.seq, LOOKUP.c.engine, LOOKUP.c.lease, OFFER.c.number, OFFER.c.ready, OFFER.c.approx)
        .add_columns(EVENT.c.time_ms, EVENT.c.actor)
        .join(LOOKUP, LOOKUP.c.seq == OFFER.c.seq)
        .join(EVENT, EVENT.c.seq == LOOKUP.c.seq)
        .where(here, LOOKUP.c.layout == row.layout)
        .order_by(LOOKUP.c.seq, OFFER.c.number)
    )
    found = []
    for r in connection.execute(told):
        what = ("offered" if r.ready else "found on disk") + (" as an approximation" if r.approx else "")
        detail = f"to engine {r.engine} under lease {r.lease}, as offer {r.number}"
        found.append(Entry(r.seq, r.time_ms, r.actor, what, detail))
    return found
