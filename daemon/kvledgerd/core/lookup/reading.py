"""How many bytes have to be read back from disk before an engine can resume at a boundary.

Counted once along the path, so that each of its many boundaries is two subtractions.
"""

from itertools import accumulate

from kvledger.geometry import bits
from kvledgerd.core.index import Cell
from kvledgerd.core.kinds.rules import Candidate
from kvledgerd.core.lookup.look import Look

__all__ = ["Reading"]


class Reading:
    """What of a path lies on disk alone.

    Args:
        look: The path as it is with the copies on disk.
    """

    def __init__(self, look: Look) -> None:
        self._look = look
        self._known = look.known
        self._geometry = look.geometry
        self._sizes: dict[int, int] = {}  # of block slots, by mask: few masks differ
        self._rows = self._along(look.known.rows_mask)
        self._pages = {g: self._along(look.geometry.block_masks[g]) for g in look.geometry.windows}

    def bytes_before(self, at: Candidate) -> int:
        """Return the bytes that a resume at a boundary needs and that lie on disk alone."""
        total = self._rows[at.depth]
        for group in self._geometry.windows:
            total += self._window(group, at)
        if at.cell is None:
            return total
        return total + self._size(at.cell, self._geometry.need_of_all(at.position))

    def _window(self, group: int, at: Candidate) -> int:
        """Return the bytes of a window's pages in whole blocks."""
        geometry, pages = self._geometry, self._geometry.window_pages(group, at.position)
        first, skipped = divmod(pages.start, geometry.pages(group))
        if not pages or first >= at.depth:
            return 0
        counts, cell = self._pages[group], self._look.cells[first]
        before = sum(geometry.page_mask(group, page) for page in range(skipped))
        return counts[at.depth] - counts[first] - (self._size(cell, before) if cell is not None else 0)

    def _along(self, mask: int) -> list[int]:
        sizes = (self._size(cell, mask) if cell is not None else 0 for cell in self._look.cells)
        return list(accumulate(sizes, initial=0))

    def _size(self, cell: Cell, mask: int) -> int:
        """Return the bytes of a cell's masked slots that lie on disk alone."""
        alone = cell.disk & ~cell.memory & mask
        if alone and cell.pooled:
            alone &= ~self._look.sight.mask(cell)
        if not alone:
            return 0
        if not cell.is_block or cell.precisions:
            return sum(self._known.stored_length(cell, slot) for slot in bits(alone))
        size = self._sizes.get(alone)
        if size is None:
            size = self._sizes[alone] = sum(self._known.length_of(cell, slot) for slot in bits(alone))
        return size
