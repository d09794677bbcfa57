"""Applying events about reservations: reserve, put, commit, abort."""

from kvledger.geometry import BOUNDARY, UnitObject
from kvledger.kinds import Kind
from kvledger_storage.events import (
    BoundaryRefused,
    PutFinished,
    PutStarted,
    TicketJoined,
    TicketsCommitted,
    UnitAborted,
    UnitCommitted,
    UnitReserved,
)
from kvledgerd.core.holdings import Unit
from kvledgerd.core.index import Cell, Node, object_words
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.placement.aging import reorder, stamp
from kvledgerd.core.placement.apply_memory import grow_older, recall_unit
from kvledgerd.core.placement.pools import Extent, paged, stretches
from kvledgerd.core.state import OUTCOMES_KEPT, Outcome, State
from kvledgerd.core.structure import (
    blocks_of,
    couple,
    ensure_cell,
    extend_path,
    give,
    link_rows,
    note_outcome,
    pin,
    prune,
    take,
    touch_boundary,
    unpin,
)
from kvledgerd.core.units.material import note_stored
from kvledgerd.core.units.provenance import note_lineage

__all__ = [
    "boundary_refused",
    "cells_of",
    "give_up_unit",
    "note_ending",
    "put_finished",
    "put_started",
    "release_unit",
    "ticket_joined",
    "tickets_committed",
    "unit_aborted",
    "unit_committed",
    "unit_reserved",
]


def boundary_refused(state: State, event: BoundaryRefused) -> None:
    """Count what would have been written for nothing."""
    del event
    state.stored_unusable += 1


def unit_reserved(state: State, event: UnitReserved) -> None:
    """Take the slots of a unit and pin what was there already."""
    known = state.layouts[event.layout]
    node = extend_path(state, known.tree, event.parent, event.fresh)
    unit = Unit(event.unit, event.engine, event.layout, node.path(), node)
    unit.first_block, unit.boundary = event.first_block, event.boundary
    unit.residue, unit.residue_hash = event.residue, event.residue_hash
    unit.lineage, unit.approx = event.lineage, event.approx
    unit.holder = event.connection
    end = unit.end(known.layout.block_tokens)
    unit.objects = known.geometry.unit_objects(
        event.first_block, end, boundary=event.boundary, all_pages=event.all_pages
    )
    unit.places = [place if place[0] else None for place in event.placements]
    unit.filled = [0] * len(unit.objects)
    unit.prints = [b""] * len(unit.objects)
    unit.converts = bool(event.sources)
    _take_places(state, known, unit)
    _pin_sources(state, unit, event.sources)
    grow_older(state, known.tenant)
    recall_unit(state, known, unit)
    node.holds += 1
    state.serial = max(state.serial, event.unit + 1)
    state.units[unit.id] = unit
    state.engines[event.engine].units[unit.id] = None


def _take_places(state: State, known: KnownLayout, unit: Unit) -> None:
    there = [item for item, place in zip(unit.objects, unit.places, strict=True) if place is None]
    pinned = {cell.id: cell for cell in cells_of(known, unit, there).values()}
    for kind, extents in _extents(known, unit, unit.missing()).items():
        state.objects += len(extents)
        for stretch in stretches(extents):
            take(state, known, kind, *stretch)
    if unit.boundary and unit.first_block and known.geometry.rows:
        # Rows go leaf by leaf, so the last block before the unit keeps all that it stands on
        last = unit.path[unit.first_block - 1].cell(known.number)
        if last is not None:
            pinned[last.id] = last
    unit.pinned = list(pinned.values())
    for cell in unit.pinned:
        pin(cell)


def _pin_sources(state: State, unit: Unit, sources: tuple[int, ...]) -> None:
    for number in sources:
        pin(state.cells[number])
        unit.pinned.append(state.cells[number])


def _extents(known: KnownLayout, unit: Unit, indices: list[int]) -> dict[Kind, list[Extent]]:
    """Return the extents of objects that a unit brings, by kind."""
    found: dict[Kind, list[Extent]] = {}
    kinds, objects, places = known.slot_kinds, unit.objects, unit.places
    for index in indices:
        item, place = objects[index], places[index]
        assert place is not None
        found.setdefault(kinds[item.slot], []).append((place[0], place[1], paged(item.length)))
    return found


def cells_of(known: KnownLayout, unit: Unit, items: list[UnitObject]) -> dict[int, Cell]:
    """Return the cells in which objects of a unit belong, by their blocks, as far as there are any yet."""
    found = {}
    for block in dict.fromkeys([item.block for item in items]):
        if block == BOUNDARY:
            cell = unit.node.boundary(known.number, unit.residue, unit.residue_hash)
        else:
            cell = unit.path[block].cell(known.number)
        if cell is not None:
            found[block] = cell
    return found


def ticket_joined(state: State, event: TicketJoined) -> None:
    """Note which connection brings what a ticket stands for."""
    state.units[event.unit].joined[event.ticket] = event.connection


def tickets_committed(state: State, event: TicketsCommitted) -> None:
    """Note tickets that wait for the others."""
    state.units[event.unit].done.update(dict.fromkeys(event.tickets))


def put_started(state: State, event: PutStarted) -> None:
    """Count bytes that are being copied."""
    unit = state.units[event.unit]
    for index, length in event.ranges:
        unit.filled[index] += length
    unit.jobs[event.job] = None
    state.serial = max(state.serial, event.job + 1)


def put_finished(state: State, event: PutFinished) -> None:
    """Note the fingerprints of objects that are complete; free the slots if the unit was given up meanwhile."""
    unit = state.units[event.unit]
    del unit.jobs[event.job]
    for index, fingerprint in event.fingerprints:
        unit.prints[index] = fingerprint
    note_outcome(state, event.job, Outcome(error=event.error))
    if unit.aborted and not unit.jobs:
        release_unit(state, unit)


def note_ending(state: State, unit: Unit, how: str) -> None:
    """Keep how a unit ended, for those of its engine that still hold a ticket of it."""
    state.endings[unit.id] = (unit.engine, how)
    if len(state.endings) > OUTCOMES_KEPT:
        state.endings.popitem(last=False)


def unit_committed(state: State, event: UnitCommitted) -> None:
    """Publish a unit's objects."""
    unit = state.units[event.unit]
    known = state.layouts[unit.layout]
    dropped = dict.fromkeys(event.dropped)
    published = _publish(state, known, unit, [i for i in unit.missing() if i not in dropped], event.commit_id)
    if known.layout.strict_provenance:
        note_lineage(known, unit)
    stamp(state, known, published)
    # The end of a path first, or each block before it would enter an order only to leave it again.
    for cell in reversed(published):
        state.touch(cell)
        reorder(state, cell)
    link_rows(known, published)
    _give_places(state, known, unit, [i for i in unit.missing() if i in dropped])
    state.serial = max(state.serial, event.commit_id + 1)
    note_stored(state, known, blocks_of(unit.node, known.number), published, boundary=unit.boundary)
    if unit.boundary or known.rows_suffice:
        touch_boundary(state, known, unit.node, unit.residue, _boundary_of(unit, known.number))
    note_ending(state, unit, f"it was published as commit {event.commit_id}")
    _forget(state, known, unit)


def _publish(state: State, known: KnownLayout, unit: Unit, indices: list[int], commit_id: int) -> list[Cell]:
    """Make objects of a unit visible and return the cells in which they lie, each once."""
    blocks: dict[int, dict[int, bytes]] = {}  # in the order of the objects, of each slot what its cell keeps
    objects, places, prints = unit.objects, unit.places, unit.prints
    for index in indices:
        item, place = objects[index], places[index]
        assert place is not None
        slots = blocks.setdefault(item.block, {})
        slots[item.slot] = object_words(place, unit.id, prints[index], commit_id)
    cells = []
    for block, slots in blocks.items():
        if block == BOUNDARY:
            cell = ensure_cell(state, known, unit.node, unit.residue, unit.residue_hash)
        else:
            cell = ensure_cell(state, known, unit.path[block])
        cell.publish(slots, approx=unit.approx)
        if cell.uncoupled or len(slots) < len(cell.states):
            couple(known, cell)  # what was there may be of another commit, or may have been
        cells.append(cell)
    return cells


def _boundary_of(unit: Unit, layout: int) -> list[Cell]:
    cell = unit.node.boundary(layout, unit.residue, unit.residue_hash)
    return [cell] if cell is not None else []


def unit_aborted(state: State, event: UnitAborted) -> None:
    """Give a unit up."""
    unit = state.units[event.unit]
    note_ending(state, unit, event.reason)
    give_up_unit(state, unit)


def give_up_unit(state: State, unit: Unit) -> None:
    """Free a unit's slots, or leave that to the last copy that runs into them."""
    unit.aborted = True
    engine = state.engines.get(unit.engine)
    if engine is not None:
        engine.units.pop(unit.id, None)
    if not unit.jobs:
        release_unit(state, unit)


def release_unit(state: State, unit: Unit) -> None:
    """Free all slots of a unit and forget it."""
    known = state.layouts[unit.layout]
    _give_places(state, known, unit, unit.missing())
    _forget(state, known, unit)


def _give_places(state: State, known: KnownLayout, unit: Unit, indices: list[int]) -> None:
    for kind, extents in _extents(known, unit, indices).items():
        state.objects -= len(extents)
        for stretch in stretches(extents):
            give(state, known, kind, *stretch)


def _forget(state: State, known: KnownLayout, unit: Unit) -> None:
    del state.units[unit.id]
    engine = state.engines.get(unit.engine)
    if engine is not None:
        engine.units.pop(unit.id, None)
    for cell in unit.pinned:
        unpin(state, cell)
    end: Node = unit.node
    end.holds -= 1  # only now: what goes with the last pin must not take the end of the path with it
    prune(state, known.tree, end)
