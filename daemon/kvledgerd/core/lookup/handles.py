"""Handles as runs: objects of one group and shard at equal distances in one arena, under one generation.

An answer grows with fragments, not with objects: a unit's objects of one kind are placed together, so a prompt that was
committed at once is a few runs, whatever its length. Offers of one answer differ in what lies behind their last block;
the window pages before it are theirs together, and are looked up once.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise

from msgspec.structs import astuple

from kvledger.geometry import bits
from kvledger.kinds import Form
from kvledger.verdict import Exactness
from kvledger.wire.replies import HandleRun
from kvledgerd.core.device_pools.device import NO_DEVICE, Sight
from kvledgerd.core.index import Cell
from kvledgerd.core.known_layout import KnownLayout, RowSlot
from kvledgerd.core.lookup.choice import Judged

__all__ = ["Handles", "Placed", "row_objects", "row_runs"]

Placed = tuple[int, Cell, int]
"""First token, cell and slot of an object."""


def row_objects(known: KnownLayout, group: int, shard: int, blocks: list[Cell]) -> Iterator[Placed]:
    """Yield the rows of one group and shard, block after block."""
    slot = known.geometry.slot(group, shard)
    size = known.layout.block_tokens
    for cell in blocks:
        yield (cell.node.depth - 1) * size, cell, slot


def row_runs(known: KnownLayout, blocks: list[Cell], sight: Sight = NO_DEVICE) -> list[HandleRun]:
    """Return the rows of all whole blocks of a path, group by group and shard by shard."""
    if sight and any(cell.pooled for cell in blocks):
        objects = ((r.group, r.shard, row_objects(known, r.group, r.shard, blocks)) for r in known.row_slots)
        return [run for group, shard, some in objects for run in _runs(known, group, shard, some, None, sight)]
    heads = [i for i, cell in enumerate(blocks) if i == 0 or not cell.follows]
    spans, size = list(pairwise([*heads, len(blocks)])), known.layout.block_tokens
    return [_row_run(row, size, blocks[start], end - start) for row in known.row_slots for start, end in spans]


def _row_run(row: RowSlot, size: int, head: Cell, count: int) -> HandleRun:
    """Return the rows in one slot of so many blocks, of `size` tokens each, that follow each other."""
    slot, group, shard, length, stride = row
    arena, offset, generation = head.place(slot)
    first, apart = (head.node.depth - 1) * size, stride if count > 1 else 0
    return HandleRun(group, shard, first, size, size, count, arena, offset, apart, length, generation)


class Handles:
    """Handles of what belongs to boundaries, for the offers of one answer.

    Args:
        known: Their layout.
        blocks: The cells of their blocks.
        sight: What the asking engine has on its own devices; named rather than what lies in memory.
    """

    def __init__(self, known: KnownLayout, blocks: list[Cell], sight: Sight = NO_DEVICE) -> None:
        self.known = known
        self.sight = sight
        self.geometry = known.geometry
        groups = known.geometry.groups
        self._windows = [(group, shard) for group in known.geometry.windows for shard in range(groups[group].shards)]
        # Only windows are looked for block by block
        self._by_depth = {cell.node.depth: cell for cell in blocks} if known.geometry.windows else {}
        self._objects: dict[tuple[int, int, range, bool], list[Placed]] = {}
        self._runs: dict[tuple[int, int, range, bool], list[HandleRun]] = {}

    def objects(self, at: Judged) -> Iterator[Placed]:
        """Yield what belongs to one boundary in the order of its runs: window pages, residue rows, snapshots."""
        for group, shard in self._windows:
            pages, rest = self._pages(group, at)
            yield from self._in_blocks(group, shard, pages, _takes_approx(at))
            yield from self._in_residue(group, shard, at, rest)
        for _, _, placed in self._own(at):
            yield placed

    def runs(self, at: Judged) -> list[HandleRun]:
        """Return the runs of one offer."""
        found: list[HandleRun] = []
        for group, shard in self._windows:
            pages, rest = self._pages(group, at)
            key = (group, shard, pages, _takes_approx(at))
            if key not in self._runs:
                self._runs[key] = _runs(self.known, group, shard, self._in_blocks(*key), None, self.sight)
            found += self._runs[key]
            if rest:
                last = found.pop() if self._runs[key] else None
                found += _runs(self.known, group, shard, self._in_residue(group, shard, at, rest), last, self.sight)
        return found + [self._run_of_one(group, shard, placed) for group, shard, placed in self._own(at)]

    def _run_of_one(self, group: int, shard: int, placed: Placed) -> HandleRun:
        token, cell, slot = placed
        arena, offset, generation, fp64 = _place(self.sight, cell, slot)
        length, tokens = self.known.length_of(cell, slot), _tokens(self.known, group, cell)
        return HandleRun(group, shard, token, tokens, tokens, 1, arena, offset, 0, length, generation, fp64)

    def _pages(self, group: int, at: Judged) -> tuple[range, range]:
        """Return the window pages that lie in whole blocks, and those of the residue."""
        pages = self.geometry.window_pages(group, at.position)
        middle = at.node.depth * self.geometry.pages(group)
        return range(pages.start, min(pages.stop, middle)), range(max(pages.start, middle), pages.stop)

    def _in_blocks(self, group: int, shard: int, pages: range, approx: bool) -> list[Placed]:  # noqa: FBT001  of a key
        key = (group, shard, pages, approx)
        if key not in self._objects:
            size, per_block = self.geometry.groups[group].page_tokens, self.geometry.pages(group)
            first, found = self.geometry.slot(group, shard), list[Placed]()
            for page in pages:
                block, number = divmod(page, per_block)
                cell, slot = self._by_depth.get(block + 1), first + number
                if cell is not None and self._has(cell, approx=approx) >> slot & 1:
                    found.append((page * size, cell, slot))
            self._objects[key] = found
        return self._objects[key]

    def _in_residue(self, group: int, shard: int, at: Judged, pages: range) -> list[Placed]:
        cell, size = at.cell, self.geometry.groups[group].page_tokens
        if cell is None:
            return []
        first = self.geometry.slot(group, shard) - at.node.depth * self.geometry.pages(group)
        have = self._has(cell, approx=_takes_approx(at))
        return [(page * size, cell, first + page) for page in pages if have >> first + page & 1]

    def _has(self, cell: Cell, *, approx: bool) -> int:
        """Return the slots that are named; an approximation is replayed where an exact offer stands beside it."""
        have = cell.memory if approx else cell.memory & ~cell.approx
        return have | self.sight.mask(cell) if cell.pooled else have

    def _own(self, at: Judged) -> Iterator[tuple[int, int, Placed]]:
        """Yield group, shard and object of the residue's rows and the snapshots."""
        geometry, cell = self.geometry, at.cell
        if cell is None:
            return
        have = geometry.need_of_all(at.position) & self._has(cell, approx=_takes_approx(at))
        for slot in bits(have):
            group, shard, _ = geometry.boundary_slots[slot]
            form = geometry.groups[group].form
            if form is not Form.PAGED_WINDOW:
                yield group, shard, (at.position - at.residue if form is Form.ROWS else at.position, cell, slot)


def _takes_approx(at: Judged) -> bool:
    return at.exactness is Exactness.APPROX


def _tokens(known: KnownLayout, group: int, cell: Cell) -> int:
    spec = known.geometry.groups[group]
    if spec.form is Form.SNAPSHOT:
        return 0
    if spec.form is Form.PAGED_WINDOW:
        return spec.page_tokens
    return known.layout.block_tokens if cell.is_block else cell.residue - cell.residue % spec.tokens_per_row


def _runs(
    known: KnownLayout, group: int, shard: int, objects: Iterable[Placed], before: HandleRun | None, sight: Sight
) -> list[HandleRun]:
    """Return the runs of objects; the first of them may go on with the run before."""
    runs: list[HandleRun] = []
    # first token, tokens, step, count, arena, offset, stride, length, generation
    open_run: list[int] = [] if before is None else list(astuple(before)[2:-1])
    prints = bytearray() if before is None else bytearray(before.prints)
    for token, cell, slot in objects:
        arena, offset, generation, fp64 = _place(sight, cell, slot)
        length, tokens = known.length_of(cell, slot), _tokens(known, group, cell)
        if open_run and _joins(open_run, token, tokens, arena, offset, length, generation):
            open_run[3] += 1
            prints += fp64
            continue
        if open_run:
            runs.append(_closed(group, shard, open_run, prints))
        open_run = [token, tokens, tokens, 1, arena, offset, 0, length, generation]
        prints = bytearray(fp64)
    if open_run:
        runs.append(_closed(group, shard, open_run, prints))
    return runs


def _closed(group: int, shard: int, run: list[int], prints: bytearray) -> HandleRun:
    token, tokens, step, count, arena, offset, stride, length, generation = run
    return HandleRun(group, shard, token, tokens, step, count, arena, offset, stride, length, generation, bytes(prints))


def _place(sight: Sight, cell: Cell, slot: int) -> tuple[int, int, int, bytes]:
    """Return place, offset and generation of an object, and its `fp64` if it lies on the asking engine's device."""
    found = sight.copy(cell, slot) if cell.pooled else None
    if found is not None:
        pool, copy = found
        return pool, copy.offset, copy.generation, copy.fp64.to_bytes(8, "little")
    return *cell.place(slot), b""


def _joins(run: list[int], token: int, tokens: int, arena: int, offset: int, length: int, generation: int) -> bool:
    first, size, step, count, run_arena, start, stride, run_length, run_generation = run
    if (run_arena, run_length, run_generation, size) != (arena, length, generation, tokens):
        return False
    if token != first + step * count:
        return False
    if count == 1:
        run[6] = offset - start
        return True
    return offset == start + stride * count
