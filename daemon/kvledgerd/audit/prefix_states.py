"""The states of a prefix as the log tells them: FULL, COMPRESSED and the others, each with version and time.

A boundary is looked at after each event that can change a copy. It is followed by its name (layout, blocks, residue)
and not by its cell, so that one that is gone and stored anew is the same prefix in a further version.
"""

from pathlib import Path
from typing import NamedTuple

import msgspec

from kvledger.errors import CallerError
from kvledger.verdict import Exactness
from kvledger_storage import disk_events, events
from kvledgerd.audit.replay import Damage, moments
from kvledgerd.core.copies.parts import path_to
from kvledgerd.core.copies.prefix_state import PrefixState, exactness_of, prefix_state
from kvledgerd.core.state import State

__all__ = ["StateChange", "prefix_states"]

_CHANGING = (
    events.UnitCommitted,
    events.ObjectsEvicted,
    events.ObjectsVerified,
    events.PrefixForgotten,
    events.OffloadStarted,
    events.Offloaded,
    events.RestoreFinished,
    events.ArenaDropped,
    events.EpochChanged,
    events.KernelRetired,
    events.EngineLeft,
    events.IncarnationStarted,
    disk_events.RecordsDamaged,
    disk_events.RestoreOverdue,
)
"""Events that can change where the objects of a prefix are kept, or give it the cell by which it is asked for."""


class StateChange(msgspec.Struct, frozen=True):
    """One change.

    Attributes:
        version: How many states the prefix has been in, from 1 on.
        seq: The event that brought it about.
        time_ms: When that was logged, ms since 1970.
        actor: Who caused it.
        state: The state from then on.
        exactness: Whether all of what is kept of it is exact from then on, or a part is an approximation.
        event: Type of the event.
    """

    version: int
    seq: int
    time_ms: int
    actor: str
    state: PrefixState
    exactness: Exactness
    event: str


class _Name(NamedTuple):
    layout: int
    block: bytes
    residue: int
    residue_hash: bytes


class _Stamp(NamedTuple):
    seq: int
    time_ms: int
    actor: str
    event: str


def prefix_states(data: Path, cell: int, damage: Damage | None = None) -> list[StateChange]:
    """Return the states of a prefix, oldest first; see `moments` for `damage`.

    Args:
        data: The data directory.
        cell: A boundary, or a block, which stands for the boundary at its end.
        damage: Where to put the damaged place of a log, which then ends there.

    Raises:
        CallerError: the log knows no such cell.
    """
    found: list[StateChange] = []
    name: _Name | None = None
    stamp: _Stamp | None = None
    state: State | None = None
    for moment in moments(data, damage):
        state = moment.state
        name = name or _name(state, cell)
        if name is not None and stamp is not None:
            _look(state, name, stamp, found)
        changing = isinstance(moment.event, _CHANGING)
        kind = type(moment.event).__name__
        stamp = _Stamp(moment.seq, moment.time_ms, moment.actor, kind) if changing else None
    if state is not None and stamp is not None:
        name = name or _name(state, cell)
        if name is not None:
            _look(state, name, stamp, found)
    if name is None:
        remedy = "list them with `kvledger audit prefixes`"
        raise CallerError(f"no cell {cell} is known", field="prefix", remedy=remedy)
    return found


def _name(state: State, number: int) -> _Name | None:
    cell = state.cells.get(number)
    if cell is None:
        return None
    block = cell.node.hash if cell.node.parent is not None else b""
    return _Name(cell.layout, block, max(cell.residue, 0), cell.residue_hash)


def _look(state: State, name: _Name, stamp: _Stamp, found: list[StateChange]) -> None:
    before = (found[-1].state, found[-1].exactness) if found else None
    now = _state(state, name, before[0] if before is not None else None)
    if now == before or (before is None and now[0] is PrefixState.GONE):
        return
    found.append(StateChange(len(found) + 1, stamp.seq, stamp.time_ms, stamp.actor, *now, stamp.event))


def _state(state: State, name: _Name, before: PrefixState | None) -> tuple[PrefixState, Exactness]:
    known = state.layouts.get(name.layout)
    node = None
    if known is not None:
        node = known.tree.nodes.get(name.block) if name.block else known.tree.root
    if known is None or node is None:
        return PrefixState.GONE, Exactness.EXACT
    at = path_to(known, node, name.residue, node.boundary(known.number, name.residue, name.residue_hash))
    now = prefix_state(known, at, before)
    return now, Exactness.EXACT if now is PrefixState.GONE else exactness_of(known, at)
