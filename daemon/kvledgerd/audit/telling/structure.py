"""Rows about what things are: engines, layouts, blocks, cells, objects, units."""

from collections.abc import Iterator

from kvledger.geometry import Geometry, UnitObject
from kvledger_storage.audit_sql.rows import (
    CellRow,
    EngineRow,
    LayoutGroupRow,
    LayoutRow,
    NodeRow,
    ObjectRow,
    UnitRow,
)
from kvledger_storage.audit_sql.thing_rows import WHOLE_PATH
from kvledgerd.core.device_pools.device import Asked
from kvledgerd.core.holdings import Engine, Unit
from kvledgerd.core.index import Cell, Node
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.state import State

__all__ = ["cell_row", "described", "engine_row", "layout_rows", "node_row", "object_row", "unit_row"]


def engine_row(seq: int, engine: Engine) -> EngineRow:
    """Return the row of an engine."""
    return EngineRow(engine.number, seq, engine.key.hex(), engine.tenant, engine.uid, engine.pid, engine.name)


def layout_rows(seq: int, known: KnownLayout) -> Iterator[LayoutRow | LayoutGroupRow]:
    """Yield the row of a layout and those of its groups."""
    layout, epoch = known.layout, known.epoch
    digest = layout.digest.hex()
    yield LayoutRow(
        known.number, seq, known.tenant, epoch.number, layout.model, epoch.weights, digest, layout.block_tokens
    )
    for number, spec in enumerate(layout.groups):
        kind, form, reach = spec.kind.name, spec.form.value, _reach(known.geometry, number)
        yield LayoutGroupRow(known.number, number, seq, spec.name, kind, form, spec.shards, reach)


def _reach(geometry: Geometry, group: int) -> int:
    if group in geometry.rows:
        return WHOLE_PATH
    return geometry.window_reach(group) if group in geometry.windows else 0


def node_row(seq: int, node: Node) -> NodeRow:
    """Return the row of a block."""
    return NodeRow(node.id, seq, node.parent.id if node.parent is not None else 0, node.depth, node.hash.hex())


def cell_row(state: State, seq: int, cell: Cell) -> CellRow:
    """Return the row of a cell."""
    position = cell.node.depth * state.layouts[cell.layout].layout.block_tokens + max(cell.residue, 0)
    return CellRow(cell.id, seq, cell.layout, cell.node.id, position, cell.residue)


def described(known: KnownLayout, cell: Cell, slot: int) -> UnitObject:
    """Return what an object is: its group, shard, tokens and bytes."""
    if cell.is_block:
        return known.geometry.block_object(cell.node.depth - 1, slot)
    return known.geometry.boundary_object(cell.node.depth * known.layout.block_tokens + cell.residue, slot)


def object_row(state: State, seq: int, cell: Cell, slot: int) -> ObjectRow:
    """Return the row of an object."""
    known = state.layouts[cell.layout]
    item = described(known, cell, slot)
    end = item.first_token + item.tokens
    kind = known.layout.groups[item.group].kind.name
    return ObjectRow(cell.id, slot, seq, item.group, item.shard, kind, item.first_token, end, item.length)


def unit_row(state: State, seq: int, unit: Unit | Asked) -> UnitRow:
    """Return the row of a reservation."""
    end = len(unit.path) * state.layouts[unit.layout].layout.block_tokens + unit.residue
    return UnitRow(unit.id, seq, unit.engine, unit.layout, unit.node.id, unit.first_block, end, unit.boundary)
