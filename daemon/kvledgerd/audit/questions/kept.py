"""What is kept now: the newest state of objects, counted by kind, and of each one by name."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, and_, func, select

from kvledgerd.audit.questions.tables import CELL, GROUP, LAYOUT, OBJECT, OBJECT_EVENT, place_text
from kvledgerd.core.transitions import IN_MEMORY, ON_DISK_TOO, ObjectState

__all__ = [
    "OBJECTS",
    "Kept",
    "KeptObject",
    "is_kept",
    "objects_at",
    "state_now",
    "tally",
]

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


def state_now() -> ColumnElement[str]:
    """Return the newest state of each object that a query names, found by index; VACANT where none was ever told."""
    told = OBJECT_EVENT.c
    newest = (
        select(told.state)
        .where(told.cell == OBJECT.c.cell, told.slot == OBJECT.c.slot, told.state.is_not(None))
        .order_by(told.seq.desc(), told.number.desc())
        .limit(1)
    )
    return func.coalesce(newest.correlate(OBJECT).scalar_subquery(), ObjectState.VACANT.name)


def is_kept(state: ColumnElement[str]) -> ColumnElement[bool]:
    """Tell of a state whether it is one of an object with a copy in memory or on disk."""
    return state.in_(sorted(_MEMORY | _DISK))


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


def objects_at(connection: Connection, where: ColumnElement[bool]) -> list[KeptObject]:
    """Return the objects of the cells that fit a condition, with their states, at most `OBJECTS`."""
    wanted = (
        select(OBJECT, CELL.c.layout, LAYOUT.c.model, GROUP.c.name, state_now().label("state"))
        .join(CELL, CELL.c.cell == OBJECT.c.cell)
        .join(LAYOUT, LAYOUT.c.layout == CELL.c.layout)
        .join(GROUP, and_(GROUP.c.layout == CELL.c.layout, GROUP.c.number == OBJECT.c.number))
        .where(where)
        .order_by(OBJECT.c.cell, OBJECT.c.slot)
        .limit(OBJECTS)
    )
    return [_object(row) for row in connection.execute(wanted)]


def _object(r: Any) -> KeptObject:
    place = place_text(r.first_token, r.end_token)
    return KeptObject(f"{r.cell}.{r.slot}", r.cell, r.layout, r.model, r.name, r.kind, r.shard, place, r.bytes, r.state)
