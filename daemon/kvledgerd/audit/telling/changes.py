"""What changed of objects and boundaries: the state behind an event compared with what was told before it.

Cells tell that they changed, whatever event was the cause, so that an event nobody has written a word about still
leaves the states of all objects right.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.epochs import EpochState
from kvledger.geometry import bits
from kvledger_storage import events
from kvledgerd.core.index import Cell
from kvledgerd.core.state import State
from kvledgerd.core.transitions import ObjectState

__all__ = ["Change", "Loss", "Memory", "why", "why_ended"]

_VACANT = int(ObjectState.VACANT)


class Change(NamedTuple):
    """An object came into another state, from VACANT or to it if it begins or ends."""

    cell: Cell
    slot: int
    before: ObjectState
    after: ObjectState


class Loss(NamedTuple):
    """A copy on a device is gone."""

    cell: Cell
    slot: int
    pool: int


class Memory:
    """States, device copies and manifests as they were told last; all of it is taken from the state at the start."""

    def __init__(self, state: State) -> None:
        self._states = {cell.id: bytes(cell.states) for cell in state.cells.values()}
        self._manifests = {cell.id: None for cell in state.cells.values() if cell.manifest is not None}
        self._pooled = {cell.id: _masks(state, cell) for cell in state.cells.values() if cell.pooled}

    def changes(self, state: State, cell: Cell) -> list[Change]:
        """Return which objects of a cell are in another state than was told, and remember the new ones."""
        before = self._states.get(cell.id) or bytes(len(cell.states))
        after = bytes(cell.states)
        if cell.id in state.cells:
            self._states[cell.id] = after
        else:
            self._states.pop(cell.id, None)
            after = bytes(len(after))
        if before == after:
            return []
        pairs = enumerate(zip(before, after, strict=True))
        return [Change(cell, slot, ObjectState(b), ObjectState(a)) for slot, (b, a) in pairs if a != b]

    def losses(self, state: State, cell: Cell) -> Iterator[Loss]:
        """Yield which copies of a cell are gone from device pools, and remember what is left."""
        before = self._pooled.get(cell.id)
        if before:
            self.note_pooled(state, cell)
            now = self._pooled.get(cell.id, {})
            for pool, mask in before.items():
                for slot in bits(mask & ~now.get(pool, 0)):
                    yield Loss(cell, slot, pool)

    def note_pooled(self, state: State, cell: Cell) -> None:
        """Remember what lies of a cell in device pools."""
        masks = _masks(state, cell) if cell.pooled else {}
        if masks:
            self._pooled[cell.id] = masks
        else:
            self._pooled.pop(cell.id, None)

    def manifest(self, state: State, cell: Cell) -> bool | None:
        """Return whether a boundary came to disk or, with False, is no prefix any more; None if nothing changed."""
        has = cell.manifest is not None and cell.id in state.cells
        if has == (cell.id in self._manifests):
            return None
        if has:
            self._manifests[cell.id] = None
        else:
            del self._manifests[cell.id]
        return has


def _masks(state: State, cell: Cell) -> dict[int, int]:
    return {pool.id: pool.cells[cell.id] for pool in state.device_pools.values() if cell.id in pool.cells}


def why(state: State, event: events.Event, change: Change) -> tuple[str, str]:
    """Return in one word or two, and for people, why an object changed that its event does not name."""
    match event:
        case events.ArenaDropped():
            in_vain = "" if change.cell.used else "; no boundary ever stood on it"
            return "dropped", f"from memory with arena {event.arena}: {event.reason}{in_vain}"
        case events.PrefixForgotten():
            return "dropped", f"from disk with its prefix: {event.reason}"
        case events.IncarnationStarted():
            return _interrupted(change), "the daemon was started anew"
    if change.after != _VACANT:
        return change.after.name.lower(), f"by {type(event).__name__}"
    reason = _why_invalid(state, event, change.cell)
    return ("invalid", reason) if reason else ("gone", f"with {type(event).__name__}")


def _why_invalid(state: State, event: events.Event, cell: Cell) -> str:
    match event:
        case events.EpochChanged():
            return f"{state.layouts[cell.layout].epoch.name} was retired"
        case events.KernelRetired():
            return f"kernel ABI {event.name} {event.number} was retired"
        case events.EngineLeft():
            return f"engine {event.engine} ended, whose alone it was"
        case _:
            return ""


def _interrupted(change: Change) -> str:
    if change.after == _VACANT:
        return "invalid"
    return "restore failed" if change.before is ObjectState.RESTORING else "offload failed"


def why_ended(event: events.Event) -> str:
    """Return for people why something ended with an event that does not name it."""
    match event:
        case events.EngineLeft():
            return f"its engine ended: {event.reason}"
        case events.IncarnationStarted():
            return "the daemon was started anew"
        case events.EpochChanged() | events.KernelRetired() if _retires(event):
            return "its epoch or kernel was retired"
        case _:
            return str(getattr(event, "reason", type(event).__name__))


def _retires(event: events.EpochChanged | events.KernelRetired) -> bool:
    return isinstance(event, events.KernelRetired) or event.state is EpochState.RETIRED
