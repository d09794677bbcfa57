"""Positions and sizes that follow from a layout: where objects lie, what a boundary needs, what a unit holds.

The daemon, the client and the adapters derive the same order of objects from the same layout, so that requests and
answers carry bitmaps instead of lists (docs/protocol.md states the order for other languages). Two places hold
objects:

- a **block** holds one object for each shard of a group of form `rows`, and one for each page of a paged window;
- a **boundary** (a block's end, or up to ``block_tokens - 1`` tokens after it: the residue) holds the whole rows of the
  residue, the window pages of the residue, and the snapshots.

Masks are integers with one bit for each slot of a place; "all there" is one comparison.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from kvledger.kinds import Form, Kind
from kvledger.layout import GroupSpec, Layout

__all__ = ["BOUNDARY", "Geometry", "Slot", "UnitObject", "bits"]

BOUNDARY = -1
"""Block number that stands for the boundary of a unit."""


class Slot(NamedTuple):
    """A place's slot: group index, shard and, for paged windows, the page within the block."""

    group: int
    shard: int
    page: int


class UnitObject(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One object of a unit.

    Attributes:
        block: Number of the block it lies in, `BOUNDARY` for the unit's boundary.
        slot: Slot number within that place.
        group: Group index.
        shard: Part of the group, of those that its ranks hold one each.
        first_token: First token it is true for; the boundary itself for snapshots.
        tokens: Tokens it is true for, 0 for snapshots.
        length: Bytes.
    """

    block: int
    slot: int
    group: int
    shard: int
    first_token: int
    tokens: int
    length: int


class Geometry:
    """Slots, masks, sizes and needs of one layout.

    Attributes:
        rows: Groups of form `rows` that are cached, by index; `windows` and `snapshots` are those of the other forms.
        states: Windows, then snapshots.
        cached: Rows, then windows, then snapshots.
        coarsest: The group of rows whose page stands for most tokens, None if there are no rows.
        replays: Windows, tails and states that a replay of some length rebuilds.
        even_tokens: Every group ends a unit, or has its tail, exactly at the multiples of this.
        only_rank: The rank that brings everything, None if there are several.
        alike_at_blocks: Whether each snapshot is needed at the ends of all blocks or of none.
        need_at_blocks: Mask of the boundary slots that are needed to resume at the end of any block, None if blocks
            differ in that.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.groups = layout.groups
        self.block_tokens = layout.block_tokens
        live = [(i, g) for i, g in enumerate(layout.groups) if g.cacheable]
        ranks = dict.fromkeys(g.rank_of(shard) for _, g in live for shard in range(g.shards))
        self.only_rank = next(iter(ranks)) if len(ranks) == 1 else None
        self.rows = tuple(i for i, g in live if g.form is Form.ROWS)
        self.windows = tuple(i for i, g in live if g.form is Form.PAGED_WINDOW)
        self.snapshots = tuple(i for i, g in live if g.form is Form.SNAPSHOT)
        self.states = (*self.windows, *self.snapshots)
        self.cached = (*self.rows, *self.states)
        self.block_slots = tuple(s for i in (*self.rows, *self.windows) for s in self._slots(i))
        self.boundary_slots = (*self.block_slots, *(s for i in self.snapshots for s in self._slots(i)))
        self.block_masks = _masks(self.block_slots, len(self.groups))
        self.boundary_masks = _masks(self.boundary_slots, len(self.groups))
        self._firsts = tuple((mask & -mask).bit_length() - 1 for mask in self.boundary_masks)
        self._first_pages = _masks((s if s.page == 0 else None for s in self.block_slots), len(self.groups))
        self._tailed = {g.coupled_to for _, g in live if self._continues(g)}
        self.partners = tuple(self._partner(i) for i in self.rows)
        self._in_block = tuple(self._place_in_block(slot) for slot in self.block_slots)
        self._need_at_blocks = {
            i: self._boundary_need(i, self.block_tokens) for i in (*self.rows, *self.snapshots) if self.is_alike(i)
        }
        self.alike_at_blocks = all(self.is_alike(i) for i in self.snapshots)
        self.need_at_blocks = self._need_of_all(self.block_tokens) if self.alike_at_blocks else None
        self.replays = tuple(i for i in self.states if self._has_replay(i))
        self.coarsest = max(self.rows, key=lambda i: self.groups[i].page_tokens, default=None)
        self.even_tokens = math.lcm(*(self.unit_tokens(i) for i in (*self.rows, *self.windows) if not self._tails(i)))

    def _has_replay(self, group: int) -> bool:
        return self.groups[group].exact_replay_tokens > 0 or self.groups[group].approx_replay_tokens > 0

    def pages(self, group: int) -> int:
        """Return the pages of one block of a paged window, 1 for the other forms."""
        spec = self.groups[group]
        return self.block_tokens // spec.page_tokens if spec.form is Form.PAGED_WINDOW else 1

    def page_mask(self, group: int, page: int) -> int:
        """Return the mask of one page of a paged window, all shards, of blocks or boundaries: they begin alike."""
        return self._first_pages[group] << page

    def slot(self, group: int, shard: int, page: int = 0) -> int:
        """Return the number of a cacheable group's slot, the same in blocks and at boundaries, which begin alike."""
        return self._firsts[group] + shard * self.pages(group) + page

    def rank(self, group: int, shard: int) -> int:
        """Return the rank that brings a shard of a group, which is also the number of its ticket."""
        return self.groups[group].rank_of(shard)

    def unit_tokens(self, group: int) -> int:
        """Return the tokens that a group can not cut: a row's, or those of a window's page."""
        spec = self.groups[group]
        return spec.tokens_per_row if spec.form is Form.ROWS else spec.page_tokens

    def uneven_group(self, position: int) -> int | None:
        """Return the first group that ends no unit at `position` (tokens) and has no tail there; None if all do."""
        if position % self.even_tokens == 0:
            return None
        return next(i for i in (*self.rows, *self.windows) if position % self.unit_tokens(i) and not self._tails(i))

    def _continues(self, spec: GroupSpec) -> bool:
        """Tell whether a group keeps all raw rows after any last whole row of the group that it is coupled to.

        A paged tail does so only if its window reaches back over a row and the halo before it.
        """
        if spec.kind is not Kind.UNCOMPRESSED_TAIL or not spec.coupled_to:
            return False
        rows = self.layout.group(spec.coupled_to)
        return spec.form is Form.SNAPSHOT or spec.window >= rows.tokens_per_row + spec.halo_rows

    def _tails(self, group: int) -> bool:
        """Tell whether a tail keeps the raw rows after this group's last whole row."""
        spec = self.groups[group]
        return spec.form is Form.ROWS and (spec.name in self._tailed or spec.coupled_to in self._tailed)

    def window_start(self, group: int, position: int) -> int:
        """Return the first token that a window group needs to resume at `position`; `position` itself if none.

        W - 1 tokens suffice for the next query; a speculative layout needs `speculative_units` pages more.
        """
        return max(0, position - self.window_reach(group))

    def window_reach(self, group: int) -> int:
        """Return how many tokens a window group needs before any position that has as many; see `window_start`."""
        spec = self.groups[group]
        return spec.window - 1 + spec.speculative_units * spec.page_tokens

    def window_pages(self, group: int, position: int) -> range:
        """Return the absolute numbers of all pages that touch [`window_start`, position)."""
        size = self.groups[group].page_tokens
        start = self.window_start(group, position)
        return range(start // size, -(-position // size)) if start < position else range(0)

    def needs_snapshot(self, group: int, position: int) -> bool:
        """Tell whether a resume at `position` needs this snapshot.

        The tail of compressed rows is empty after a whole row, and then needed only for its halo.
        """
        spec = self.groups[group]
        if spec.kind is not Kind.UNCOMPRESSED_TAIL or not spec.coupled_to or spec.halo_rows:
            return True
        return position % self.layout.group(spec.coupled_to).tokens_per_row != 0

    def is_alike(self, group: int) -> bool:
        """Tell whether what a group of rows or a snapshot needs is the same at the end of every block.

        A tail without halo may continue rows that are not cached, and those need not divide a block: then some blocks
        end with a whole row, and others do not.
        """
        coupled_to = self.groups[group].coupled_to
        return not coupled_to or self.block_tokens % self.layout.group(coupled_to).tokens_per_row == 0

    def boundary_need(self, group: int, position: int) -> int:
        """Return the mask of boundary slots of a group without which nobody can resume at `position`."""
        if position % self.block_tokens == 0 and group in self._need_at_blocks:
            return self._need_at_blocks[group]
        return self._boundary_need(group, position)

    def _boundary_need(self, group: int, position: int) -> int:
        spec, residue = self.groups[group], position % self.block_tokens
        if spec.form is Form.ROWS:
            return self.boundary_masks[group] if residue // spec.tokens_per_row else 0
        if spec.form is Form.SNAPSHOT:
            return self.boundary_masks[group] if self.needs_snapshot(group, position) else 0
        mask, first = 0, (position - residue) // spec.page_tokens
        pages = self.window_pages(group, position)
        for page in range(max(pages.start, first), pages.stop):
            mask |= self.page_mask(group, page - first)
        return mask

    def length(self, group: int, residue: int | None = None) -> int:
        """Return the bytes of an object: of a block or page, or, with `residue` (tokens), of its whole rows."""
        spec = self.groups[group]
        if spec.form is not Form.ROWS:
            return spec.owners * spec.page_bytes
        rows = (self.block_tokens if residue is None else residue) // spec.tokens_per_row
        return spec.owners * -(-rows // spec.rows_per_page) * spec.page_bytes

    def unit_objects(self, first_block: int, end: int, *, boundary: bool, all_pages: bool = False) -> list[UnitObject]:
        """Return the objects of the unit that ends at token `end`, in the order that wire and log use.

        Args:
            first_block: First block whose rows the unit holds.
            end: End of the unit, tokens; a multiple of `block_tokens` unless `boundary`.
            boundary: Whether the unit makes `end` a boundary; then window pages that a resume there needs belong to it,
                also those before `first_block`.
            all_pages: Whether every window page of the unit's blocks belongs to it.

        Returns:
            Rows by block and slot, then window pages by block and slot, then the boundary's slots.
        """
        last = end // self.block_tokens
        rows = self._rows_slots()
        found = [self.block_object(block, number) for block in range(first_block, last) for number in rows]
        found += self._unit_pages(first_block, last, end if boundary else 0, all_pages=all_pages)
        if boundary:
            found += [self.boundary_object(end, s) for s in bits(self.need_of_all(end))]
        return found

    def count_unit_objects(self, first_block: int, end: int, *, boundary: bool, all_pages: bool = False) -> int:
        """Return how many objects `unit_objects` gives for the same arguments, without making one of them."""
        last = end // self.block_tokens
        found = len(range(first_block, last)) * len(self._rows_slots())
        for group in self.windows:
            needed = self.window_pages(group, end if boundary else 0)
            own = range(first_block * self.pages(group), last * self.pages(group) if all_pages else 0)
            pages = _union(range(needed.start, min(needed.stop, last * self.pages(group))), own)
            found += pages * self.groups[group].shards
        return found + (self.need_of_all(end).bit_count() if boundary else 0)

    def need_of_all(self, position: int) -> int:
        """Return the mask of all boundary slots without which nobody can resume at `position`."""
        if self.need_at_blocks is not None and position % self.block_tokens == 0:
            return self.need_at_blocks
        return self._need_of_all(position)

    def _need_of_all(self, position: int) -> int:
        need = 0
        for group in self.cached:
            need |= self.boundary_need(group, position)
        return need

    def _slots(self, group: int) -> list[Slot]:
        shards = self.groups[group].shards
        return [Slot(group, shard, page) for shard in range(shards) for page in range(self.pages(group))]

    def _partner(self, group: int) -> int:
        name = self.groups[group].coupled_to
        return next((i for i in self.rows if name and self.groups[i].name == name), group)

    def _rows_slots(self) -> range:
        return range(sum(self.groups[i].shards for i in self.rows))

    def _unit_pages(self, first: int, last: int, end: int, *, all_pages: bool) -> list[UnitObject]:
        wanted: dict[int, int] = {}
        for group in self.windows:
            for page in self.window_pages(group, end):
                block, number = divmod(page, self.pages(group))
                if block < last:
                    wanted[block] = wanted.get(block, 0) | self.page_mask(group, number)
            if all_pages:
                for block in range(first, last):
                    wanted[block] = wanted.get(block, 0) | self.block_masks[group]
        return [self.block_object(b, s) for b in sorted(wanted) for s in bits(wanted[b])]

    def block_object(self, block: int, number: int) -> UnitObject:
        """Return the object in one slot of a block."""
        group, shard, first, tokens, length = self._in_block[number]
        return UnitObject(block, number, group, shard, block * self.block_tokens + first, tokens, length)

    def _place_in_block(self, slot: Slot) -> tuple[int, int, int, int, int]:
        """Return group, shard, first token within the block, tokens and bytes of a slot of blocks."""
        spec = self.groups[slot.group]
        tokens = self.block_tokens if spec.form is Form.ROWS else spec.page_tokens
        return slot.group, slot.shard, slot.page * spec.page_tokens, tokens, self.length(slot.group)

    def boundary_object(self, end: int, number: int) -> UnitObject:
        """Return the object in one slot of the boundary at `end`."""
        slot = self.boundary_slots[number]
        spec, residue = self.groups[slot.group], end % self.block_tokens
        length = self.length(slot.group, residue)
        if spec.form is Form.SNAPSHOT:
            return UnitObject(BOUNDARY, number, slot.group, slot.shard, end, 0, length)
        tokens = residue - residue % spec.tokens_per_row if spec.form is Form.ROWS else spec.page_tokens
        first = end - residue + slot.page * spec.page_tokens
        return UnitObject(BOUNDARY, number, slot.group, slot.shard, first, tokens, length)


def _masks(slots: Iterable[Slot | None], groups: int) -> tuple[int, ...]:
    masks = [0] * groups
    for bit, slot in enumerate(slots):
        if slot is not None:
            masks[slot.group] |= 1 << bit
    return tuple(masks)


def bits(mask: int) -> Sequence[int]:
    """Return the numbers of the set bits, lowest first."""
    return _BITS[mask] if mask < len(_BITS) else tuple(_set_bits(mask))


def _set_bits(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


_BITS = tuple(tuple(_set_bits(mask)) for mask in range(256))
"""Those of the masks that most places have, which hold few objects and are asked for at every step."""


def _union(one: range, other: range) -> int:
    """Return how many numbers lie in one of two ranges of step 1 at least."""
    both = range(max(one.start, other.start), min(one.stop, other.stop))
    return len(one) + len(other) - len(both)
