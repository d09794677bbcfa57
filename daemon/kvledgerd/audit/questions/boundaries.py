"""Boundaries and what is kept of them: those with states of their own, and those that stand on blocks alone."""

from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, case, exists, func, select

from kvledgerd.audit.questions.kept import is_kept, state_now
from kvledgerd.audit.questions.resumes import End, resumes_at
from kvledgerd.audit.questions.tables import CELL, LAYOUT, OBJECT, UNIT, UNIT_EVENT

__all__ = ["BOUNDARIES", "Boundary", "boundaries_at", "has_boundary", "stands_on_blocks"]

BOUNDARIES: Final = 200
"""Boundaries of one answer."""


class Boundary(msgspec.Struct, frozen=True):
    """A boundary.

    Attributes:
        cell: Its cell; that of its last block if it stands on blocks alone.
        node: Its last whole block.
        layout: Number of its layout.
        model: Model of that.
        position: Tokens before it.
        residue: How many of them follow the last whole block; -1 if it stands on blocks alone.
        kept: Objects of its own that are kept now.
        had: Objects of its own that it ever had.
        kinds: Kinds of these.
        resumes: Whether a prompt can resume there now; None if these tables are too old to tell.
    """

    cell: int
    node: int
    layout: int
    model: str
    position: int
    residue: int
    kept: int
    had: int
    kinds: list[str]
    resumes: bool | None


class _Own(NamedTuple):
    """Objects that lie at a boundary itself."""

    kept: int
    had: int
    kinds: list[str]


def stands_on_blocks() -> ColumnElement[bool]:
    """Tell of a block's cell whether a boundary was stored at its end that has no cell, since it is made of blocks."""
    own = CELL.alias("own")
    here = and_(UNIT.c.node == CELL.c.node, UNIT.c.layout == CELL.c.layout, UNIT.c.position == CELL.c.position)
    with_cell = exists().where(own.c.node == CELL.c.node, own.c.layout == CELL.c.layout, own.c.residue == 0)
    return and_(CELL.c.residue < 0, _stored(here), ~with_cell)


def has_boundary(node: ColumnElement[int]) -> ColumnElement[bool]:
    """Tell whether a boundary was ever stored behind a block."""
    return exists().where(CELL.c.node == node, CELL.c.residue >= 0) | _stored(UNIT.c.node == node)


def _stored(which: ColumnElement[bool]) -> ColumnElement[bool]:
    committed = exists().where(UNIT_EVENT.c.unit == UNIT.c.unit, UNIT_EVENT.c.what == "committed")
    return exists().where(which, UNIT.c.boundary, committed)


def boundaries_at(connection: Connection, nodes: Sequence[int]) -> dict[int, list[Boundary]]:
    """Return the boundaries behind blocks, newest first, by block."""
    wanted = (
        select(CELL, LAYOUT.c.model, LAYOUT.c.block_tokens)
        .join(LAYOUT, LAYOUT.c.layout == CELL.c.layout)
        .where(CELL.c.node.in_(nodes), (CELL.c.residue >= 0) | stands_on_blocks())
        .order_by(CELL.c.cell.desc())
        .limit(BOUNDARIES)
    )
    rows = list(_newest(connection.execute(wanted)))
    own = _own(connection, [row.cell for row in rows if row.residue >= 0])
    ends = [End(row.layout, row.node, row.position, row.block_tokens) for row in rows]
    resumes = resumes_at(connection, ends)
    found: dict[int, list[Boundary]] = {}
    for row, end in zip(rows, ends, strict=True):
        kept, had, kinds = own.get(row.cell, _Own(0, 0, []))
        can = resumes.get(end)
        whole = None if can is None else can and kept == had
        one = Boundary(row.cell, row.node, row.layout, row.model, row.position, row.residue, kept, had, kinds, whole)
        found.setdefault(row.node, []).append(one)
    return found


def _newest(rows: Any) -> Iterator[Any]:
    """Yield rows of cells, newest first; of blocks that were forgotten and stored anew the newest alone."""
    seen: set[tuple[int, int]] = set()
    for row in rows:
        if row.residue >= 0 or (row.layout, row.node) not in seen:
            yield row
        if row.residue < 0:
            seen.add((row.layout, row.node))


def _own(connection: Connection, cells: Sequence[int]) -> dict[int, _Own]:
    objects = (
        select(OBJECT.c.cell, OBJECT.c.kind, state_now().label("state")).where(OBJECT.c.cell.in_(cells)).subquery()
    )
    counted = select(
        objects.c.cell,
        objects.c.kind,
        func.sum(case((is_kept(objects.c.state), 1), else_=0)).label("kept"),
        func.count().label("had"),
    )
    found: dict[int, _Own] = {}
    for row in connection.execute(counted.group_by(objects.c.cell, objects.c.kind).order_by(objects.c.kind)):
        kept, had, kinds = found.get(row.cell, _Own(0, 0, []))
        found[row.cell] = _Own(kept + int(row.kept), had + row.had, [*kinds, row.kind])
    return found
