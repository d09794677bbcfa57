"""What a retirement ends: the cells of an epoch, of all its layouts or of those with one kernel ABI."""

from kvledgerd.core.epoch.epochs import Epoch
from kvledgerd.core.index import Cell
from kvledgerd.core.state import State

__all__ = ["count_objects", "ending_cells", "kernels_of"]


def ending_cells(state: State, epoch: Epoch, kernel: tuple[str, int] | None = None) -> list[Cell]:
    """Return the cells that end when an epoch is retired, or one kernel ABI (name, number) in it."""
    layouts = {
        known.number: None
        for known in state.layouts.values()
        if known.epoch is epoch
        and (kernel is None or any((abi.name, abi.number) == kernel for abi in known.layout.abi.values()))
    }
    return [cell for cell in state.cells.values() if cell.layout in layouts]


def kernels_of(state: State, epoch: Epoch) -> list[tuple[str, int]]:
    """Return every kernel ABI (name, number) that a layout of an epoch has, sorted."""
    layouts = [known.layout for known in state.layouts.values() if known.epoch is epoch]
    return sorted({(abi.name, abi.number) for layout in layouts for abi in layout.abi.values()})


def count_objects(state: State, cells: list[Cell]) -> int:
    """Return how many objects lie in cells, wherever their copies are: in memory, on disk or on a device."""
    masks = {cell.id: cell.memory | cell.disk for cell in cells}
    for pool in state.device_pools.values():
        for number, mask in pool.cells.items():
            if number in masks:
                masks[number] |= mask
    return sum(mask.bit_count() for mask in masks.values())
