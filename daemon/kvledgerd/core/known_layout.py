"""A registered layout, with all that follows from it: asked at every step, so worked out once."""

from typing import NamedTuple

import msgspec

from kvledger.geometry import Geometry, Slot, bits
from kvledger.kinds import Kind
from kvledger.layout import Layout
from kvledger.page_formats import format_of
from kvledgerd.core.copies.precisions import GROUP, QUANTISED, page_values
from kvledgerd.core.epoch.epochs import Epoch
from kvledgerd.core.index import Cell, Tree
from kvledgerd.core.placement.pools import paged

__all__ = ["ROW_KINDS", "KnownLayout", "RowSlot"]

ROW_KINDS = (int(Kind.COMPRESSED_KV), int(Kind.INDEXER_STATE))
"""Numbers of the kinds that are kept as rows."""
_PREFIX = 1 << Kind.DISK_PREFIX
# What a layout takes once it is known, measured: a layer's number of three bytes becomes an object and a reference.
_BYTES_OF_ENCODED = 12
_BYTES_OF_SLOT = 320


class RowSlot(NamedTuple):
    """A slot of rows in every block.

    Attributes:
        slot: Its number.
        group: Group index.
        shard: Part of the group.
        length: Bytes of its object.
        stride: Bytes from there to the rows of the next block, if both were placed together.
    """

    slot: int
    group: int
    shard: int
    length: int
    stride: int


class KnownLayout:
    """A registered layout with what follows from it.

    Attributes:
        number: Its number in this log.
        tenant: Whose it is.
        layout: As it was registered.
        geometry: Positions and sizes.
        tree: The index tree of its index key.
        epoch: What it belongs to.
        rows_mask: Block mask of all slots of rows.
        rows_suffice: A look-up can resume at the end of every block that has its rows, and needs nothing else.
        row_slots: Slots of rows in a block.
        group_kinds: Index and number of the kind of each group that is cached.
        slot_groups: Group index of each slot; blocks and boundaries begin with the same slots.
        slot_kinds: Kind of each slot.
        names_formats: Whether a group names a page format that is known, so that other layouts may convert into it.
        kinds: Numbers of the kinds that its cells may hold, ascending: those of its groups and that of manifests.
        window_spans: Kind of paged windows to the tokens before a boundary that the longest of them reaches back.
        weight_bytes: About how much memory it takes itself.
    """

    __slots__ = (
        "_block_couples",
        "_block_kinds",
        "_boundary_couples",
        "_boundary_kinds",
        "_page_values",
        "_slot_lengths",
        "_slot_sizes",
        "epoch",
        "geometry",
        "group_kinds",
        "kinds",
        "layout",
        "names_formats",
        "number",
        "row_slots",
        "rows_mask",
        "rows_suffice",
        "slot_groups",
        "slot_kinds",
        "tenant",
        "tree",
        "weight_bytes",
        "window_spans",
    )

    def __init__(self, number: int, tenant: str, layout: Layout, tree: Tree, epoch: Epoch) -> None:
        self.number = number
        self.tenant = tenant
        self.layout = layout
        self.geometry = Geometry(layout)
        self.tree = tree
        self.epoch = epoch
        self.rows_mask = sum(self.geometry.block_masks[group] for group in self.geometry.rows)
        self.names_formats = any(format_of(group) is not None for group in layout.groups)
        self.rows_suffice = self._rows_suffice()
        self.row_slots = self._row_slots()
        self.group_kinds = tuple((i, int(group.kind)) for i, group in enumerate(layout.groups) if group.cacheable)
        self._block_couples = self._couples(self.geometry.block_slots)
        self._boundary_couples = self._couples(self.geometry.boundary_slots)
        self.slot_groups = tuple(slot.group for slot in self.geometry.boundary_slots)
        self.slot_kinds = tuple(self.geometry.groups[group].kind for group in self.slot_groups)
        self._slot_lengths = tuple(self.geometry.length(group) for group in self.slot_groups)
        self._slot_sizes = tuple(map(paged, self._slot_lengths))
        self._page_values = tuple(page_values(layout, self.geometry.groups[group]) for group in self.slot_groups)
        self._block_kinds = self._kind_masks(self.geometry.block_masks)
        self._boundary_kinds = self._kind_masks(self.geometry.boundary_masks)
        self.kinds = (*self._boundary_kinds, int(Kind.DISK_PREFIX))
        self.window_spans = self._window_spans()
        encoded, slots = len(msgspec.msgpack.encode(layout)), len(self.geometry.boundary_slots)
        self.weight_bytes = _BYTES_OF_ENCODED * encoded + _BYTES_OF_SLOT * slots

    def _kind_masks(self, masks: tuple[int, ...]) -> dict[int, int]:
        """Return of each kind the mask of its slots in a block or at a boundary, ascending."""
        found: dict[int, int] = {}
        for group, mask in zip(self.geometry.groups, masks, strict=True):
            if mask:
                found[int(group.kind)] = found.get(int(group.kind), 0) | mask
        return dict(sorted(found.items()))

    def _window_spans(self) -> tuple[tuple[int, int], ...]:
        spans: dict[int, int] = {}
        for group in self.geometry.windows:
            spec, far = self.geometry.groups[group], 1 << 62
            span = far - self.geometry.window_start(group, far)
            spans[int(spec.kind)] = max(spans.get(int(spec.kind), 0), span)
        return tuple(sorted(spans.items()))

    def kinds_in(self, cell: Cell) -> int:
        """Return a bit mask, by number, of the kinds of which a cell has memory copies or, as a prefix, a manifest."""
        memory, found = cell.memory, 0 if cell.manifest is None else _PREFIX
        if memory:
            for kind, mask in (self._block_kinds if cell.residue < 0 else self._boundary_kinds).items():
                if memory & mask:
                    found |= 1 << kind
        return found

    def _rows_suffice(self) -> bool:
        geometry, size = self.geometry, self.layout.block_tokens
        needs = any(geometry.boundary_need(group, size) for group in geometry.snapshots)
        return not geometry.windows and geometry.alike_at_blocks and not needs

    def _couples(self, slots: tuple[Slot, ...]) -> list[tuple[int, int]]:
        partners = zip(self.geometry.rows, self.geometry.partners, strict=True)
        other = {group: partner for group, partner in partners if group != partner}
        numbers = {slot: number for number, slot in enumerate(slots)}
        return [
            (number, numbers[slot._replace(group=other[slot.group])])
            for number, slot in enumerate(slots)
            if slot.group in other
        ]

    def _row_slots(self) -> tuple[RowSlot, ...]:
        """Return the slots of rows; from block to block one extent holds all rows of a kind."""
        groups, length = self.geometry.groups, self.geometry.length
        rows = [(n, slot) for n, slot in enumerate(self.geometry.block_slots) if self.rows_mask >> n & 1]
        strides: dict[Kind, int] = {}
        for _, slot in rows:
            kind = groups[slot.group].kind
            strides[kind] = strides.get(kind, 0) + paged(length(slot.group))
        return tuple(
            RowSlot(n, slot.group, slot.shard, length(slot.group), strides[groups[slot.group].kind]) for n, slot in rows
        )

    def slots_of(self, cell: Cell) -> tuple[Slot, ...]:
        """Return what each slot of a cell stands for."""
        return self.geometry.block_slots if cell.residue < 0 else self.geometry.boundary_slots

    def couples_of(self, cell: Cell) -> list[tuple[int, int]]:
        """Return the slots of a cell that index the rows of another slot, each with that slot."""
        return self._block_couples if cell.residue < 0 else self._boundary_couples

    def mask_of(self, cell: Cell, kind: Kind) -> int:
        """Return the mask of a cell's slots that are of a kind."""
        return (self._block_kinds if cell.residue < 0 else self._boundary_kinds).get(kind, 0)

    def length_of(self, cell: Cell, slot: int) -> int:
        """Return the bytes of an object; only rows depend on how long a residue is."""
        if cell.residue >= 0 and self.rows_mask >> slot & 1:
            return self.geometry.length(self.slot_groups[slot], cell.residue)
        return self._slot_lengths[slot]

    def size_of(self, cell: Cell, slot: int) -> int:
        """Return the bytes of an object in memory, whole pages."""
        return paged(self.length_of(cell, slot)) if cell.residue >= 0 else self._slot_sizes[slot]

    def bytes_in(self, cell: Cell, mask: int) -> int:
        """Return the bytes of some of a cell's objects in memory, whole pages."""
        if not mask & (mask - 1):
            return self.size_of(cell, mask.bit_length() - 1)
        return sum([self.size_of(cell, slot) for slot in bits(mask)])

    def quantised_length(self, cell: Cell, slot: int) -> int:
        """Return the bytes that an object has once it is quantised; 0 if it can not be.

        Rows of a residue may end inside a page, and what stands behind them there is nobody's.
        """
        if not self._page_values[slot]:
            return 0
        spec = self.geometry.groups[self.slot_groups[slot]]
        if (
            cell.residue >= 0
            and self.rows_mask >> slot & 1
            and cell.residue // spec.tokens_per_row % spec.rows_per_page
        ):
            return 0
        values = self.length_of(cell, slot) // spec.page_bytes * self._page_values[slot]
        return values + values // GROUP

    def page_of(self, slot: int) -> tuple[int, int]:
        """Return the bytes of a page of an object that can be quantised, and how many numbers it has."""
        return self.geometry.groups[self.slot_groups[slot]].page_bytes, self._page_values[slot]

    def length_as(self, precision: int, cell: Cell, slot: int) -> int:
        """Return the bytes that an object has on disk in some precision."""
        return self.quantised_length(cell, slot) if precision in QUANTISED else self.length_of(cell, slot)

    def stored_length(self, cell: Cell, slot: int) -> int:
        """Return the bytes of an object's disk copy."""
        return self.length_as(cell.precision(slot), cell, slot) if cell.precisions else self.length_of(cell, slot)
