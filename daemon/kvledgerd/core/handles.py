"""Handles as runs: objects of one group and shard at equal distances in one arena, under one generation.

An answer grows with fragments, not with objects: a unit's objects of one kind are placed together, so a prompt that was
committed at once is a few runs, whatever its length.
"""

from collections.abc import Iterator
from itertools import pairwise

from kvledger.geometry import Slot
from kvledger.kinds import Form
from kvledger.wire.replies import HandleRun
from kvledgerd.core.holdings import KnownLayout
from kvledgerd.core.index import ARENA, FIELDS, Cell
from kvledgerd.core.verdict import Judged

__all__ = ["Placed", "boundary_objects", "boundary_runs", "row_objects", "row_runs"]

Placed = tuple[int, Cell, int]
"""First token, cell and slot of an object."""


def row_objects(known: KnownLayout, group: int, shard: int, blocks: list[Cell]) -> Iterator[Placed]:
    """Yield the rows of one group and shard, block after block."""
    slot = known.geometry.block_slots.index(Slot(group, shard, 0))
    size = known.layout.block_tokens
    for cell in blocks:
        yield (cell.node.depth - 1) * size, cell, slot


def row_runs(known: KnownLayout, blocks: list[Cell]) -> list[HandleRun]:
    """Return the rows of all whole blocks of a path, group by group and shard by shard."""
    heads = [i for i, cell in enumerate(blocks) if i == 0 or not cell.follows]
    spans = list(pairwise([*heads, len(blocks)]))
    geometry, runs = known.geometry, list[HandleRun]()
    for slot, stride in known.row_strides.items():
        group, shard, _ = geometry.block_slots[slot]
        length = geometry.length(group)
        for start, end in spans:
            runs.append(_row_run(known, blocks[start], slot, (group, shard, end - start, stride, length)))
    return runs


def _row_run(known: KnownLayout, cell: Cell, slot: int, what: tuple[int, int, int, int, int]) -> HandleRun:
    group, shard, count, stride, length = what
    arena, offset, generation = cell.words[slot * FIELDS + ARENA : slot * FIELDS + 3]
    size = known.layout.block_tokens
    first = (cell.node.depth - 1) * size
    return HandleRun(
        group, shard, first, size, size, count, arena, offset, stride if count > 1 else 0, length, generation
    )


def boundary_objects(known: KnownLayout, at: Judged, blocks: list[Cell]) -> Iterator[tuple[int, int, list[Placed]]]:
    """Yield (group, shard, objects) of what belongs to one boundary: window pages, residue rows, snapshots."""
    geometry = known.geometry
    for group in geometry.windows:
        for shard in range(geometry.groups[group].shards):
            yield group, shard, list(_pages(known, group, shard, at, blocks))
    for group in (*geometry.rows, *geometry.snapshots):
        need = geometry.boundary_need(group, at.position)
        if not need or at.cell is None:
            continue
        for shard in range(geometry.groups[group].shards):
            slot = geometry.boundary_slots.index(Slot(group, shard, 0))
            if need >> slot & 1 and at.cell.memory >> slot & 1:
                rows = geometry.groups[group].form is Form.ROWS
                yield group, shard, [(at.position - at.residue if rows else at.position, at.cell, slot)]


def boundary_runs(known: KnownLayout, at: Judged, blocks: list[Cell]) -> list[HandleRun]:
    """Return the runs of one offer."""
    runs: list[HandleRun] = []
    for group, shard, objects in boundary_objects(known, at, blocks):
        runs += _runs(known, group, shard, objects)
    return runs


def _pages(known: KnownLayout, group: int, shard: int, at: Judged, blocks: list[Cell]) -> Iterator[Placed]:
    geometry = known.geometry
    size, per_block = geometry.groups[group].page_tokens, geometry.pages(group)
    by_depth = {cell.node.depth: cell for cell in blocks}
    for page in geometry.window_pages(group, at.position):
        block, number = divmod(page, per_block)
        in_block = block < at.node.depth
        cell = by_depth.get(block + 1) if in_block else at.cell
        slots = geometry.block_slots if in_block else geometry.boundary_slots
        slot = slots.index(Slot(group, shard, number))
        if cell is not None and cell.memory >> slot & 1:
            yield page * size, cell, slot


def _tokens(known: KnownLayout, group: int, cell: Cell) -> int:
    spec = known.geometry.groups[group]
    if spec.form is Form.SNAPSHOT:
        return 0
    if spec.form is Form.PAGED_WINDOW:
        return spec.page_tokens
    return known.layout.block_tokens if cell.is_block else cell.residue - cell.residue % spec.tokens_per_row


def _runs(known: KnownLayout, group: int, shard: int, objects: list[Placed]) -> list[HandleRun]:
    runs: list[HandleRun] = []
    open_run: list[int] = []  # first token, tokens, step, count, arena, offset, stride, length, generation
    for token, cell, slot in objects:
        arena, offset, generation = cell.words[slot * FIELDS + ARENA : slot * FIELDS + 3]
        length, tokens = known.length_of(cell, slot), _tokens(known, group, cell)
        if open_run and _joins(open_run, token, tokens, arena, offset, length, generation):
            open_run[3] += 1
            continue
        if open_run:
            runs.append(HandleRun(group, shard, *open_run))
        open_run = [token, tokens, tokens, 1, arena, offset, 0, length, generation]
    if open_run:
        runs.append(HandleRun(group, shard, *open_run))
    return runs


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
