"""Which objects a boundary consists of: the rows of its path, the window pages that it needs, and its own."""

from kvledger.errors import NotFoundError
from kvledger.wire.requests import Boundary
from kvledgerd.core.holdings import KnownLayout
from kvledgerd.core.index import Cell, Node

__all__ = ["BoundaryPath", "boundary_path", "find_parts"]


class BoundaryPath:
    """A boundary as it was found in the index: nodes of its blocks, its end, and its cell if it has one."""

    __slots__ = ("cell", "node", "path", "position")

    def __init__(self, path: list[Node], node: Node, cell: Cell | None, position: int) -> None:
        self.path = path
        self.node = node
        self.cell = cell
        self.position = position


def boundary_path(known: KnownLayout, at: Boundary, position: int) -> BoundaryPath:
    """Return a boundary's path; raises NotFoundError if not all of its blocks are known."""
    path = known.tree.match(at.hashes)
    if len(path) < len(at.hashes) // 32:
        end = len(path) * known.layout.block_tokens
        raise NotFoundError(f"of {position} tokens only {end} are known", field="at", remedy="commit the prefix first")
    node = path[-1] if path else known.tree.root
    return BoundaryPath(path, node, node.boundary(known.number, at.residue, at.residue_hash), position)


def find_parts(known: KnownLayout, at: BoundaryPath) -> tuple[list[tuple[Cell, int]], list[str]]:
    """Return the objects of a boundary that are there, and what lacks, each as text for people."""
    found: list[tuple[Cell, int]] = []
    lacks: list[str] = []
    for block, mask in _block_needs(known, at):
        start = block * known.layout.block_tokens
        _collect(known, at.path[block].cell(known.number), mask, f"of the block at {start}", found, lacks)
    need = 0
    geometry = known.geometry
    for group in (*geometry.rows, *geometry.windows, *geometry.snapshots):
        need |= geometry.boundary_need(group, at.position)
    _collect(known, at.cell, need, f"at {at.position}", found, lacks, boundary=True)
    return found, lacks


def _block_needs(known: KnownLayout, at: BoundaryPath) -> list[tuple[int, int]]:
    geometry = known.geometry
    rows = 0
    for group in geometry.rows:
        rows |= geometry.block_masks[group]
    needs = [rows] * len(at.path)
    for group in geometry.windows:
        for page in geometry.window_pages(group, at.position):
            block, number = divmod(page, geometry.pages(group))
            if block < len(needs):
                needs[block] |= geometry.page_mask(group, number)
    return list(enumerate(needs))


def _collect(
    known: KnownLayout,
    cell: Cell | None,
    mask: int,
    where: str,
    found: list[tuple[Cell, int]],
    lacks: list[str],
    *,
    boundary: bool = False,
) -> None:
    slots = known.geometry.boundary_slots if boundary else known.geometry.block_slots
    for slot in range(mask.bit_length()):
        if not mask >> slot & 1:
            continue
        if cell is not None and (cell.memory | cell.disk) >> slot & 1:
            found.append((cell, slot))
        else:
            spec = known.geometry.groups[slots[slot].group]
            lacks.append(f"{spec.name} ({spec.kind.name}) {where}")
