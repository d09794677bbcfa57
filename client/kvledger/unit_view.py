"""What a unit holds, as its owner sees it: objects in the order that wire and log use, and groups as one stretch."""

from dataclasses import dataclass
from typing import NamedTuple

from kvledger.counts import counted
from kvledger.errors import CallerError
from kvledger.geometry import UnitObject
from kvledger.layout import Layout
from kvledger.registered import RegisteredLayout
from kvledger.shm import Ring, RingRange
from kvledger.wire.requests import PutRange

__all__ = ["GroupStage", "UnitPlan", "UnitSlot", "put_range", "unit_slots"]


@dataclass(frozen=True, slots=True)
class UnitSlot:
    """One object of a unit.

    Attributes:
        index: Its number in the unit's order.
        group: Name of its group.
        shard: Part of the group, of those that its ranks hold one each.
        first_token: First token that it is true for; the boundary itself for a snapshot.
        tokens: Tokens that it is true for, 0 for a snapshot.
        length: Bytes.
        present: It is committed already; its bytes need not be put, and are not sent if they are.
    """

    index: int
    group: str
    shard: int
    first_token: int
    tokens: int
    length: int
    present: bool


class UnitPlan(NamedTuple):
    """What a unit covers, from which its objects follow.

    Attributes:
        first_block: First block whose rows it brings.
        end: Its end, tokens.
        boundary: Whether the end becomes a boundary.
        all_pages: Whether every window page of its blocks belongs to it.
    """

    first_block: int
    end: int
    boundary: bool
    all_pages: bool

    @classmethod
    def of(cls, tokens: int, block_tokens: int, *, boundary: int | None, start: int, all_pages: bool) -> "UnitPlan":
        """Return what a unit of a prompt covers.

        Args:
            tokens: Length of the prompt.
            block_tokens: Tokens of a block.
            boundary: Position that it makes a boundary; None for whole blocks of the prompt without one.
            start: First token whose rows it brings.
            all_pages: Whether every window page of its blocks belongs to it.

        Raises:
            CallerError: No block starts at `start`.
        """
        if start < 0 or start % block_tokens:
            remedy = f"start at a multiple of {block_tokens}"
            raise CallerError(f"{start} is not the start of a block", field="start", remedy=remedy)
        end = tokens // block_tokens * block_tokens if boundary is None else boundary
        return cls(start // block_tokens, end, boundary=boundary is not None, all_pages=all_pages)

    def objects(self, layout: RegisteredLayout) -> list[UnitObject]:
        """Return the objects, in the order of the unit."""
        return layout.geometry.unit_objects(
            self.first_block, self.end, boundary=self.boundary, all_pages=self.all_pages
        )

    def slots(self, layout: RegisteredLayout, present: bytes) -> list[UnitSlot]:
        """Return the objects as slots; `present` is the bitmap of those that are there already."""
        return unit_slots(self.objects(layout), layout.layout, present)


def unit_slots(objects: list[UnitObject], layout: Layout, present: bytes) -> list[UnitSlot]:
    """Return the slots of a unit.

    Args:
        objects: Its objects as `Geometry.unit_objects` gives them.
        layout: The layout, for the names of groups.
        present: Bitmap over the objects, least significant bit first; bits that it lacks are 0.
    """
    bits = int.from_bytes(present, "little")
    return [
        UnitSlot(i, layout.groups[o.group].name, o.shard, o.first_token, o.tokens, o.length, bool(bits >> i & 1))
        for i, o in enumerate(objects)
    ]


def put_range(layout: Layout, slot: UnitSlot, offset: int, ring_offset: int, length: int) -> PutRange:
    """Return the line of a put that hands `length` bytes of an object over."""
    return PutRange(layout.group(slot.group).kind, slot.index, offset, ring_offset, length)


class GroupStage:
    """All objects of one group, or of one shard of it, side by side in the ring.

    Args:
        ring: The ring.
        slots: The objects, in the unit's order.

    Raises:
        CallerError: They are longer than the whole ring.
        RingFullError: There is no room for them now.
    """

    __slots__ = ("_part", "_ring", "slots")

    def __init__(self, ring: Ring, slots: list[UnitSlot]) -> None:
        self._ring = ring
        self.slots = slots
        length = sum(slot.length for slot in slots)
        self._part: RingRange | None = ring.take(length) if length else None

    def __repr__(self) -> str:
        return f"<GroupStage {counted(len(self.slots), 'object')}, {sum(slot.length for slot in self.slots)} bytes>"

    @property
    def buffer(self) -> memoryview:
        """The writable bytes of all objects, in order; handed over at commit.

        Raises:
            CallerError: The unit was committed or aborted.
        """
        if self._part is None:
            if self.slots:
                raise CallerError("this unit is closed", field="unit", remedy="write before commit")
            return memoryview(bytearray())
        return self._ring.buffer(self._part)

    def hand_out(self, layout: Layout) -> tuple[list[PutRange], RingRange | None]:
        """Return what is to be put, and the range of the ring, which is the caller's to give back."""
        part, self._part = self._part, None
        if part is None:
            return [], None
        ranges, at = [], part.offset
        for slot in self.slots:
            if not slot.present:
                ranges.append(put_range(layout, slot, 0, at, slot.length))
            at += slot.length
        return ranges, part

    def drop(self) -> None:
        """Give the range back unused."""
        part, self._part = self._part, None
        if part is not None:
            self._ring.give_back(part)
