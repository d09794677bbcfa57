"""Which objects a boundary consists of: the rows of its path, the window pages that it needs, and its own."""

from collections.abc import Iterator

from kvledger.errors import NotFoundError
from kvledger.geometry import BOUNDARY, Slot, bits
from kvledger.wire.requests import Boundary
from kvledgerd.core.index import Cell, Copy, Node
from kvledgerd.core.known_layout import KnownLayout

__all__ = ["BoundaryPath", "Parts", "boundary_path", "find_parts", "masks_of", "needed", "path_to"]


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


def path_to(known: KnownLayout, node: Node, residue: int, cell: Cell | None) -> BoundaryPath:
    """Return the path of a boundary by its last whole block, its tokens after that, and its cell if it has one."""
    return BoundaryPath(node.path(), node, cell, node.depth * known.layout.block_tokens + residue)


def masks_of(objects: list[Copy]) -> dict[int, int]:
    """Return the cells of objects, by number, each with a mask of its slots among them."""
    found: dict[int, int] = {}
    for cell, slot in objects:
        found[cell.id] = found.get(cell.id, 0) | 1 << slot
    return found


class Parts:
    """The objects of a boundary that are there, how many lack, and the first of those as text for people."""

    __slots__ = ("first_lacking", "found", "lacking")

    def __init__(self) -> None:
        self.found: list[Copy] = []
        self.lacking = 0
        self.first_lacking = ""

    def collect(
        self, known: KnownLayout, cell: Cell | None, mask: int, spare: int, where: str, slots: tuple[Slot, ...]
    ) -> None:
        """Take in what one place needs to hold; what is `spare` may lack."""
        have = mask & (cell.memory | cell.disk) if cell is not None else 0
        if cell is not None:
            self.found += [(cell, slot) for slot in bits(have)]
        gone = mask & ~have & ~spare
        if gone and not self.lacking:
            spec = known.geometry.groups[slots[next(iter(bits(gone)))].group]
            self.first_lacking = f"{spec.name} ({spec.kind.name}) {where}"
        self.lacking += gone.bit_count()


def find_parts(known: KnownLayout, at: BoundaryPath, *, replayed: bool = False) -> Parts:
    """Return what a boundary consists of: rows of its path, window pages that it needs, and its own.

    Args:
        known: The layout.
        at: The boundary.
        replayed: Whether states that a replay rebuilds may lack: what there is of such a boundary is worth restoring.
    """
    parts, geometry = Parts(), known.geometry
    replays = geometry.replays if replayed else ()
    spare_in_block = sum(geometry.block_masks[group] for group in replays)
    spare = sum(geometry.boundary_masks[group] for group in replays)
    for block, cell, mask in needed(known, at):
        if block == BOUNDARY:
            parts.collect(known, cell, mask, spare, f"at {at.position}", geometry.boundary_slots)
        else:
            where = f"of the block at {block * known.layout.block_tokens}"
            parts.collect(known, cell, mask, spare_in_block, where, geometry.block_slots)
    return parts


def needed(known: KnownLayout, at: BoundaryPath) -> Iterator[tuple[int, Cell | None, int]]:
    """Yield block number or `BOUNDARY`, the cell if there is one, and the mask of slots that a resume needs of it."""
    for block, mask in enumerate(_block_needs(known, at)):
        yield block, at.path[block].cell(known.number), mask
    yield BOUNDARY, at.cell, known.geometry.need_of_all(at.position)


def _block_needs(known: KnownLayout, at: BoundaryPath) -> list[int]:
    """Return the block mask that each block of the path has to hold; a window ends behind the last of them."""
    geometry = known.geometry
    needs = [known.rows_mask] * len(at.path)
    for group in geometry.windows:
        pages, per_block = geometry.window_pages(group, at.position), geometry.pages(group)
        first, skipped = divmod(pages.start, per_block)
        for block in range(first, min(len(needs), -(-pages.stop // per_block))):
            needs[block] |= geometry.block_masks[group]
        if pages and first < len(needs):
            for page in range(skipped):
                needs[first] &= ~geometry.page_mask(group, page)
    return needs
