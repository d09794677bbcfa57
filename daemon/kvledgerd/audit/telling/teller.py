"""The teller: takes the log event by event, changes a state of its own as the daemon did, and writes rows about it."""

from collections.abc import Iterator
from pathlib import Path

import msgspec

from kvledger_storage import device_events, events
from kvledger_storage.audit_sql.rows import (
    EngineEndRow,
    EventRow,
    EvictionRow,
    LeaseEventRow,
    ObjectEventRow,
    PrefixEventRow,
    UnitEventRow,
)
from kvledger_storage.events import Event, Logged
from kvledgerd.audit.plain import plain_fields
from kvledgerd.audit.telling.changes import Change, Memory, why, why_ended
from kvledgerd.audit.telling.coverage import is_whole
from kvledgerd.audit.telling.lookups import lookup_rows
from kvledgerd.audit.telling.notes import Note, held_by, notes_of
from kvledgerd.audit.telling.sheet import Sheet
from kvledgerd.audit.telling.structure import cell_row, engine_row, layout_rows, node_row, object_row, unit_row
from kvledgerd.core.apply import apply
from kvledgerd.core.index import Cell
from kvledgerd.core.state import State
from kvledgerd.replaying import MISFITS, contradiction

__all__ = ["Teller"]

_DESCRIBED = {"committed", "resident"}
_ENDERS = (
    events.EngineLeft,
    events.IncarnationStarted,
    events.EpochChanged,
    events.KernelRetired,
    device_events.DevicePoolEnded,
)
"""Events that end leases, units and engines without naming them."""


class Teller:
    """Tells a log from one event on.

    Args:
        directory: The log's directory, to name the place of an event that does not fit.
        state: The state before that event; it is changed from then on.

    Attributes:
        sheet: What was told and not yet taken.
    """

    def __init__(self, directory: Path, state: State) -> None:
        self._directory = directory
        self.state = state
        self.sheet = Sheet()
        state.changed_cells()
        self._memory = Memory(state)
        self._open_units = dict.fromkeys((*(u.id for u in state.units.values() if not u.aborted), *state.asked))

    def take(self) -> Sheet:
        """Return what was told since the last call."""
        told, self.sheet = self.sheet, Sheet()
        return told

    def tell(self, seq: int, logged: Logged) -> None:
        """Apply one event and write down what it says and does.

        Raises:
            LogRotError: It does not fit the state, which is then of no more use; nothing is written about it.
        """
        event, state = logged.event, self.state
        leases, engines = list(state.leases), list(state.engines)
        next_node, next_cell = state.next_node, state.next_cell
        try:
            held = held_by(state, event)
            apply(state, event)
        except MISFITS as error:
            raise contradiction(self._directory, seq, error) from error
        fields = msgspec.json.encode(plain_fields(event)).decode() if is_whole(type(event)) else None
        self.sheet.add(EventRow(seq, logged.time_ms, logged.actor, type(event).__name__, fields))
        self._structure(seq, event, next_node, next_cell)
        changed = {cell.id: cell for cell in state.changed_cells()}
        self._objects(seq, event, list(notes_of(state, event, held, changed)), changed)
        self._holdings(seq, event)
        if isinstance(event, _ENDERS):
            self._ended(seq, event, leases, engines)

    def _structure(self, seq: int, event: Event, next_node: int, next_cell: int) -> None:
        """Write rows about what is new."""
        state, add = self.state, self.sheet.add
        for number in range(next_node, state.next_node):
            if number in state.nodes:
                add(node_row(seq, state.nodes[number]))
        for number in range(next_cell, state.next_cell):
            if number in state.cells:
                add(cell_row(state, seq, state.cells[number]))
        self._of_event(seq, event)

    def _of_event(self, seq: int, event: Event) -> None:
        """Write what an event begins that has rows of its own."""
        state, add = self.state, self.sheet.add
        match event:
            case events.EngineEntered():
                add(engine_row(seq, state.engines[event.engine]))
            case events.LayoutRegistered():
                self.sheet.extend(layout_rows(seq, state.layouts[event.number]))
            case events.UnitReserved():
                add(unit_row(state, seq, state.units[event.unit]))
                self._open_units[event.unit] = None
            case device_events.PagesAsked():
                add(unit_row(state, seq, state.asked[event.unit]))
                self._open_units[event.unit] = None
            case events.LookedUp():
                self.sheet.extend(lookup_rows(state, seq, event))
            case events.ObjectsEvicted() | device_events.DeviceFreed():
                self._eviction(seq, event)

    def _eviction(self, seq: int, event: events.ObjectsEvicted | device_events.DeviceFreed) -> None:
        if isinstance(event, events.ObjectsEvicted):
            place = " and ".join(name for name, on in (("memory", event.memory), ("disk", event.disk)) if on)
        else:
            place = f"device pool {event.pool}"
        self.sheet.add(EvictionRow(seq, place, event.reason, len(event.objects)))

    def _objects(self, seq: int, event: Event, notes: list[Note], changed: dict[int, Cell]) -> None:
        """Write what happened to objects: the event's own words first, then all else that changed."""
        state, memory = self.state, self._memory
        changes = {(c.cell.id, c.slot): c for cell in changed.values() for c in memory.changes(state, cell)}
        told = [self._noted(note, changes.pop((note.cell, note.slot), None)) for note in notes]
        told += [self._changed(event, change) for change in changes.values()]
        freed = {(note.cell, note.slot) for note in notes if note.what == "freed"}
        losses = [loss for cell in changed.values() for loss in memory.losses(state, cell)]
        for loss in losses:
            if (loss.cell.id, loss.slot) not in freed:
                detail = f"with device pool {loss.pool}: {why_ended(event)}"
                told.append((loss.cell.id, loss.slot, "lost", None, None, None, detail))
        for number, row in enumerate(told):
            self.sheet.add(ObjectEventRow(seq, number, *row))
        for note in notes:
            if note.what in _DESCRIBED:
                cell = state.cells[note.cell]
                memory.note_pooled(state, cell)
                self.sheet.add(object_row(state, seq, cell, note.slot))
        self._prefixes(seq, event, changed)

    def _noted(
        self, note: Note, change: Change | None
    ) -> tuple[int, int, str, str | None, int | None, str | None, str]:
        state = change.after.name if change is not None else None
        return note.cell, note.slot, note.what, state, note.unit, note.fingerprint, note.detail

    def _changed(self, event: Event, change: Change) -> tuple[int, int, str, str | None, int | None, str | None, str]:
        what, detail = why(self.state, event, change)
        return change.cell.id, change.slot, what, change.after.name, None, None, detail

    def _prefixes(self, seq: int, event: Event, changed: dict[int, Cell]) -> None:
        number = 0
        for cell in changed.values():
            has = self._memory.manifest(self.state, cell)
            if has is not None:
                what, detail = ("on disk", "") if has else ("forgotten", why_ended(event))
                self.sheet.add(PrefixEventRow(seq, number, cell.id, what, detail))
                number += 1

    def _holdings(self, seq: int, event: Event) -> None:
        """Write what became of units and leases that the event names."""
        match event:
            case events.UnitCommitted() | device_events.PagesFilled():
                self._unit_ended(seq, event.unit, "committed", f"commit {event.commit_id}")
            case events.UnitAborted() | device_events.PagesGivenUp():
                self._unit_ended(seq, event.unit, "aborted", event.reason)
            case events.LeaseSettled():
                self.sheet.add(LeaseEventRow(seq, event.lease, "settled", event.offer, ""))
            case events.LeaseEnded():
                self.sheet.add(LeaseEventRow(seq, event.lease, "ended", None, event.reason))

    def _unit_ended(self, seq: int, unit: int, what: str, detail: str) -> None:
        if unit in self._open_units:
            del self._open_units[unit]
            self.sheet.add(UnitEventRow(unit, seq, what, detail))

    def _ended(self, seq: int, event: Event, leases: list[int], engines: list[int]) -> None:
        """Write what ended with an event that does not name it."""
        state, reason = self.state, why_ended(event)
        for lease in leases:
            if lease not in state.leases:
                self.sheet.add(LeaseEventRow(seq, lease, "ended", None, reason))
        for unit in list(self._gone_units()):
            self._unit_ended(seq, unit, "aborted", reason)
        for engine in engines:
            if engine not in state.engines:
                said = event.reason if isinstance(event, events.EngineLeft) else reason
                self.sheet.add(EngineEndRow(engine, seq, said))

    def _gone_units(self) -> Iterator[int]:
        for unit in self._open_units:
            there = self.state.units.get(unit)
            if unit not in self.state.asked and (there is None or there.aborted):
                yield unit
