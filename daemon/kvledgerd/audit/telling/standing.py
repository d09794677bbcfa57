"""What stood before the first event that can be told: rows for all that an older, retired part of the log has made."""

from collections.abc import Iterator, Mapping

from kvledger.geometry import bits
from kvledger_storage.audit_sql.rows import AnyRow, ObjectEventRow
from kvledgerd.audit.telling.structure import cell_row, engine_row, layout_rows, node_row, object_row, unit_row
from kvledgerd.core.state import State

__all__ = ["standing_rows"]


def standing_rows(state: State, seq: int, known: Mapping[tuple[int, int], str]) -> Iterator[AnyRow]:
    """Yield rows for what a state holds.

    Args:
        state: The state after event `seq`.
        seq: That event.
        known: State of each object that the database believes to be there, by cell and slot.
    """
    for engine in state.engines.values():
        yield engine_row(seq, engine)
    for layout in state.layouts.values():
        yield from layout_rows(seq, layout)
    for node in state.nodes.values():
        yield node_row(seq, node)
    for unit in state.units.values():
        yield unit_row(state, seq, unit)
    for asked in state.asked.values():
        yield unit_row(state, seq, asked)
    for cell in state.cells.values():
        yield cell_row(state, seq, cell)
        pooled = (pool.cells.get(cell.id, 0) for pool in state.device_pools.values())
        for slot in bits(cell.memory | cell.disk | _union(pooled)):
            yield object_row(state, seq, cell, slot)
    yield from _objects(state, seq, known)


def _objects(state: State, seq: int, known: Mapping[tuple[int, int], str]) -> Iterator[ObjectEventRow]:
    """Yield in which state each object stands, and which are gone of those that were there."""
    now = {
        (cell.id, slot): cell.state(slot).name
        for cell in state.cells.values()
        for slot in bits(cell.memory | cell.disk)
    }
    gone = [(name, "gone", "VACANT") for name in known if name not in now]
    stood = [(name, "stood", value) for name, value in now.items() if known.get(name) != value]
    for number, (name, what, value) in enumerate((*gone, *stood)):
        yield ObjectEventRow(seq, number, *name, what, value, None, None, "after events that were retired")


def _union(masks: Iterator[int]) -> int:
    found = 0
    for mask in masks:
        found |= mask
    return found
