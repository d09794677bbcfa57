"""What is kept now: the newest state of objects, counted by kind, and of each boundary and block by name."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, case, func, select

from kvledgerd.audit.questions.tables import CELL, GROUP, LAYOUT, OBJECT, OBJECT_EVENT, place_text
from kvledgerd.core.transitions import IN_MEMORY, ON_DISK_TOO

__all__ = [
    "BOUNDARIES",
    "OBJECTS",
    "Boundary",
    "Kept",
    "KeptObject",
    "boundaries_at",
    "newest_state",
    "objects_at",
    "tally",
]

BOUNDARIES: Final = 200
"""Boundaries of one answer."""
OBJECTS: Final = 400
"""Objects of one answer."""
_MEMORY: Final = frozenset(state.name for state in IN_MEMORY)
_DISK: Final = frozenset(state.name for state in ON_DISK_TOO)
_KINDS: Final = ("COMPRESSED_KV", "INDEXER_STATE", "SWA_WINDOW", "UNCOMPRESSED_TAIL")


class Kept(msgspec.Struct, frozen=True):
    """Objects of one kind: how many have a copy in memory, on disk, at all, and their bytes, each counted once."""

    kind: str
    memory: int
    disk: int
    objects: int
    bytes: int


class Boundary(msgspec.Struct, frozen=True):
    """A boundary: its cell, layout and model, tokens before it, and how many of the objects that it had are kept."""

    cell: int
    node: int
    layout: int
    model: str
    position: int
    residue: int
    kept: int
    had: int

    @property
    def is_whole(self) -> bool:
        """Whether all that it ever had of its own is kept; what it stands on is told by its blocks."""
        return self.kept == self.had


class KeptObject(msgspec.Struct, frozen=True):
    """An object by name, with the state that it has now."""

    name: str
    cell: int
    layout: int
    model: str
    group: str
    kind: str
    shard: int
    place: str
    bytes: int
    state: str


def newest_state() -> ColumnElement[bool]:
    """Return the condition that a row of `object_event` is the newest one that tells a state of its object."""
    other = OBJECT_EVENT.alias("newer")
    same = (other.c.cell == OBJECT_EVENT.c.cell, other.c.slot == OBJECT_EVENT.c.slot, other.c.state.is_not(None))
    newest = select(func.max(other.c.seq)).where(*same).correlate(OBJECT_EVENT).scalar_subquery()
    return and_(OBJECT_EVENT.c.state.is_not(None), OBJECT_EVENT.c.seq == newest)


def tally(rows: Iterable[tuple[str, str, int, int]]) -> list[Kept]:
    """Return what is kept by kind.

    Args:
        rows: Kind, state, number of objects, their bytes.
    """
    found = dict[str, list[int]]()
    for kind, state, objects, size in rows:
        if state in _MEMORY or state in _DISK:
            one = found.setdefault(kind, [0, 0, 0, 0])
            more = (objects * (state in _MEMORY), objects * (state in _DISK), objects, size)
            found[kind] = [a + b for a, b in zip(one, more, strict=True)]
    order = [*_KINDS, *sorted(found.keys() - set(_KINDS))]
    return [Kept(kind, *found[kind]) for kind in order if kind in found]


def boundaries_at(connection: Connection, nodes: Sequence[int]) -> dict[int, list[Boundary]]:
    """Return the boundaries behind blocks, newest first, by block."""
    is_kept = case((OBJECT_EVENT.c.state.in_(sorted(_MEMORY | _DISK)), 1), else_=0)
    states = (
        select(OBJECT_EVENT.c.cell, func.sum(is_kept).label("kept"), func.count().label("had"))
        .where(newest_state())
        .where(OBJECT_EVENT.c.cell.in_(select(CELL.c.cell).where(CELL.c.node.in_(nodes), CELL.c.residue >= 0)))
        .group_by(OBJECT_EVENT.c.cell)
        .subquery()
    )
    wanted = (
        select(CELL, LAYOUT.c.model, states.c.kept, states.c.had)
        .join(LAYOUT, LAYOUT.c.layout == CELL.c.layout)
        .outerjoin(states, states.c.cell == CELL.c.cell)
        .where(CELL.c.node.in_(nodes), CELL.c.residue >= 0)
        .order_by(CELL.c.cell.desc())
        .limit(BOUNDARIES)
    )
    found: dict[int, list[Boundary]] = {}
    for r in connection.execute(wanted):
        one = Boundary(r.cell, r.node, r.layout, r.model, r.position, r.residue, int(r.kept or 0), r.had or 0)
        found.setdefault(r.node, []).append(one)
    return found


def objects_at(connection: Connection, where: ColumnElement[bool]) -> list[KeptObject]:
    """Return the objects of the cells that fit a condition, with their states, at most `OBJECTS`."""
    wanted = (
        select(OBJECT, CELL.c.layout, LAYOUT.c.model, GROUP.c.name, OBJECT_EVENT.c.state)
        .join(CELL, CELL.c.cell == OBJECT.c.cell)
        .join(LAYOUT, LAYOUT.c.layout == CELL.c.layout)
        .join(GROUP, and_(GROUP.c.layout == CELL.c.layout, GROUP.c.number == OBJECT.c.number))
        .join(OBJECT_EVENT, and_(OBJECT_EVENT.c.cell == OBJECT.c.cell, OBJECT_EVENT.c.slot == OBJECT.c.slot))
        .where(where, newest_state())
        .order_by(OBJECT.c.cell, OBJECT.c.slot)
        .limit(OBJECTS)
    )
    return [_object(row) for row in connection.execute(wanted)]


def _object(r: Any) -> KeptObject:
    place = place_text(r.first_token, r.end_token)
    return KeptObject(f"{r.cell}.{r.slot}", r.cell, r.layout, r.model, r.name, r.kind, r.shard, place, r.bytes, r.state)
