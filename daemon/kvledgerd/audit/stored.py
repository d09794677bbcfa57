"""What is stored at the end of the log."""

from collections.abc import Iterator
from pathlib import Path

from kvledgerd.audit.names import ObjectName
from kvledgerd.audit.replay import Damage, last_state
from kvledgerd.core.index import Cell
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.state import State
from kvledgerd.core.transitions import DeviceState

__all__ = ["list_objects"]


def list_objects(data: Path, damage: Damage | None = None) -> Iterator[tuple[ObjectName, str, str, str]]:
    """Yield name, group, place and state of every object that is stored at the end of the log; see `moments`."""
    state = last_state(data, damage)
    if state is None:
        return
    for cell in state.cells.values():
        known = state.layouts[cell.layout]
        for slot in range(len(cell.states)):
            held = _states(state, cell, slot)
            if held:
                group = known.layout.groups[known.slot_groups[slot]].name
                yield ObjectName(cell.id, slot), group, place_of(known, cell, slot), held


def _states(state: State, cell: Cell, slot: int) -> str:
    """Return what there is of an object: its state in memory and on disk, and device pools; empty if nothing is."""
    found = [cell.state(slot).name] if (cell.memory | cell.disk) >> slot & 1 else []
    pools = state.device_pools.values() if cell.pooled else ()
    found += [
        f"{DeviceState.RESIDENT.name} in device pool {pool.id}" for pool in pools if (cell.id, slot) in pool.copies
    ]
    return ", ".join(found)


def place_of(known: KnownLayout, cell: Cell, slot: int) -> str:
    """Return the tokens that an object stands for, for people."""
    size = known.layout.block_tokens
    if not cell.is_block:
        return f"boundary at {cell.node.depth * size + cell.residue}"
    page = known.geometry.block_slots[slot].page
    start = (cell.node.depth - 1) * size
    spec = known.layout.groups[known.slot_groups[slot]]
    if known.geometry.pages(known.slot_groups[slot]) > 1:
        start, size = start + page * spec.page_tokens, spec.page_tokens
    return f"tokens [{start}, {start + size})"
