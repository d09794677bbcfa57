"""What a look-up sees of the index: the matched path, and how far each group reaches along it.

One pass over the path answers for all candidates: rows are covered up to their first gap, and a window's pages are
counted as a run that ends at each block. A candidate is then judged without looking at the path again.
"""

from itertools import accumulate

from kvledgerd.core.device_pools.device import NO_DEVICE, Sight
from kvledgerd.core.index import Cell, Node, cells_along
from kvledgerd.core.known_layout import KnownLayout

__all__ = ["Look"]


class Look:
    """A matched path, seen through one layout.

    Args:
        known: The asking layout.
        path: Matched nodes from the first block on.
        use_disk: Whether copies on disk count.
        sight: What the asking engine has on its own devices, which counts for it as memory does.
        approx: Whether approximations count; what is on a device is none.

    Attributes:
        cells: What the layout keeps of each block of the path.
        whole: Whether the rows of all groups are there and coupled along the whole path, the usual case.
        covered: Blocks up to the first gap of each group of rows.
        coupled: Blocks up to the first that is not coupled, for each group of rows.
        runs: For each window the tokens of whole pages that end without a gap at each block.
    """

    def __init__(
        self, known: KnownLayout, path: list[Node], *, use_disk: bool, sight: Sight = NO_DEVICE, approx: bool = False
    ) -> None:
        self.known = known
        self.geometry = known.geometry
        self.block_tokens = known.layout.block_tokens
        self.path = path
        self.use_disk = use_disk
        self.sight = sight
        self.approx = approx
        self.cells = cells_along(path, known.number)
        self.whole = whole = self._whole()
        if whole:
            self.covered = self.coupled = dict.fromkeys(self.geometry.rows, len(path))
        else:
            self.covered = {g: self._covered(g) for g in self.geometry.rows}
            self.coupled = {g: self._coupled(g) for g in self.geometry.rows}
        self.runs = {g: self._runs(g) for g in self.geometry.windows}
        self._damaged: dict[int, list[int]] = {}

    def doubtful(self, position: int, depth: int, cell: Cell | None) -> tuple[int, ...]:
        """Return the groups that may lack something at a boundary, in the order in which they are judged.

        At the end of a block no rows are lacking where all are there along the path, and unless there are windows one
        comparison tells of all that the boundary keeps itself.
        """
        geometry, need = self.geometry, self.geometry.need_at_blocks
        if not self.whole or position != depth * self.block_tokens:
            return geometry.cached
        if need is None or geometry.windows or (need and (cell is None or self.has(cell) & need != need)):
            return geometry.states
        return ()

    def has(self, cell: Cell) -> int:
        """Return the mask of a cell's slots that count as there."""
        have = cell.memory | cell.disk if self.use_disk else cell.memory
        if cell.approx and not self.approx:
            have &= ~cell.approx
        return have | self.sight.mask(cell) if cell.pooled else have

    def uncoupled(self, cell: Cell) -> int:
        """Return the mask of keys whose rows come from another commit; on a device both are from one, or neither is."""
        return cell.uncoupled & ~self.sight.mask(cell) if cell.pooled else cell.uncoupled

    def node(self, depth: int) -> Node:
        """Return the node of the first `depth` blocks."""
        return self.path[depth - 1] if depth else self.known.tree.root

    def damaged(self, group: int, first: int, end: int) -> bool:
        """Tell whether a group's last copy was found damaged in one of the blocks [first, end).

        A wide window asks this for every block that falls, so the path is counted once and not looked at again.
        """
        counts = self._damaged.get(group)
        if counts is None:
            mask = self.geometry.block_masks[group]
            marks = (cell is not None and cell.damaged & mask != 0 for cell in self.cells)
            counts = self._damaged[group] = list(accumulate(marks, initial=0))
        return first < end and counts[end] > counts[first]

    def _whole(self) -> bool:
        mask, disk = self.known.rows_mask, self.use_disk
        for cell in self.cells:
            if cell is None:
                return False
            have = cell.memory | cell.disk if disk else cell.memory
            # No call is spent on the usual block
            usual = have & mask == mask and not (cell.uncoupled or cell.approx)
            if not usual and (self.has(cell) & mask != mask or self.uncoupled(cell) & mask):
                return False
        return True

    def _covered(self, group: int) -> int:
        mask = self.geometry.block_masks[group]
        for block, cell in enumerate(self.cells):
            if cell is None or self.has(cell) & mask != mask:
                return block
        return len(self.cells)

    def _coupled(self, group: int) -> int:
        mask = self.geometry.block_masks[group]
        for block, cell in enumerate(self.cells):
            if cell is not None and self.uncoupled(cell) & mask:
                return block
        return len(self.cells)

    def _runs(self, group: int) -> list[int]:
        """Return, for each number of blocks, the tokens of whole pages that are there without a gap before its end."""
        spec, whole = self.geometry.groups[group], self.geometry.block_masks[group]
        runs = [0]
        for cell in self.cells:
            have = self.has(cell) if cell is not None else 0
            if have & whole == whole:
                runs.append(runs[-1] + self.block_tokens)
            else:
                runs.append(self.trailing_pages(group, have) * spec.page_tokens)
        return runs

    def trailing_pages(self, group: int, have: int) -> int:
        """Return how many of a block's last pages are there without a gap."""
        pages = self.geometry.pages(group)
        for count in range(pages):
            mask = self.geometry.page_mask(group, pages - 1 - count)
            if have & mask != mask:
                return count
        return pages
