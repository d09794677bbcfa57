"""A device pool as its engine sees it: which pages bear what, and what a unit brings; the same for both clients.

The bytes lie on the engine's device, and nobody but the engine writes them. So no generation table in shared memory
tells whether a handle is still true, as it does for arenas: the process that asks for pages keeps that table itself,
and moves it when pages are given to it.
"""

from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from kvledger.counts import counted
from kvledger.device_regions import Region, shared_pages
from kvledger.errors import CallerError
from kvledger.geometry import UnitObject
from kvledger.layout import Layout
from kvledger.registered import RegisteredLayout, group_index
from kvledger.wire.replies import DeviceVictim, PagesGiven

__all__ = [
    "FP64_BYTES",
    "DevicePages",
    "DevicePlace",
    "DeviceSlot",
    "ForeignPages",
    "Pages",
    "PoolWish",
    "Victim",
    "device_slots",
    "prints_of",
    "victims",
]

FP64_BYTES = 8


class DevicePlace(NamedTuple):
    """Where an object lies on a device.

    Attributes:
        pool: Number of the device pool.
        address: Its first byte in the engine's address space; -1 if this process did not register the pool.
        offset: First byte within the pool.
        length: Bytes.
        generation: Of its pages, as long as the bytes are these.
        fp64: Its fingerprint, as the engine reported it.
    """

    pool: int
    address: int
    offset: int
    length: int
    generation: int
    fp64: int


class PoolWish(NamedTuple):
    """What an engine wants to set aside; see `Cache.device_pool`."""

    device: str
    size: int
    address: int
    pages: Mapping[str, int] | None
    rank: int
    memory: bytes | None
    again: int

    def counts(self, layout: RegisteredLayout) -> list[int]:
        """Return the pages of each group.

        Raises:
            CallerError: A name is that of no group.
        """
        if self.pages is None:
            return shared_pages(layout.geometry, self.address, self.size, self.rank)
        counts = [0] * len(layout.layout.groups)
        for name, count in self.pages.items():
            counts[group_index(layout.layout, name, "pages")] = count
        return counts


class DeviceSlot(NamedTuple):
    """One object of a unit that a device pool brings.

    Attributes:
        number: Its number in the unit's order.
        group: Name of the group.
        shard: Part of the group, of those that its ranks hold one each.
        first_token: First token that it is true for; the boundary itself for a snapshot.
        tokens: Tokens that it is true for, 0 for a snapshot.
        length: Bytes.
        offset: First byte in the pool at which it is to be written; -1 if it is resident already.
        address: The same in the engine's address space; -1 if it is resident already.
    """

    number: int
    group: str
    shard: int
    first_token: int
    tokens: int
    length: int
    offset: int
    address: int

    @property
    def present(self) -> bool:
        """Whether it is resident already, and not to be written."""
        return self.offset < 0


class Victim(NamedTuple):
    """A copy that made room and lies nowhere else; its bytes are there until the engine writes to these pages.

    Attributes:
        block_hash: Chain hash of its block, or of its boundary's last whole block; empty before the first.
        residue: Tokens of its boundary after that block, -1 if it belongs to the block itself.
        group: Name of the group.
        shard: Part of the group, of those that its ranks hold one each.
        page: Page within the block, 0 but for windows.
        offset: First byte in the pool.
        length: Bytes.
        fp64: Its fingerprint, as the engine reported it.
    """

    block_hash: bytes
    residue: int
    group: str
    shard: int
    page: int
    offset: int
    length: int
    fp64: int


class Pages(Protocol):
    """The place in which handles on a device lie."""

    def buffer(self, offset: int, length: int) -> memoryview:
        """Refuse: there is no host buffer."""

    def address_of(self, offset: int) -> int:
        """Return an offset's address in the engine's address space, -1 if it is not known here."""

    def is_current(self, offset: int, generation: int, length: int) -> bool:
        """Tell whether all pages of an object bear this generation."""


class _NoBuffer:
    """What has no bytes on the host."""

    __slots__ = ()

    def buffer(self, offset: int, length: int) -> memoryview:
        """Refuse: there is no host buffer.

        Raises:
            CallerError: Always.
        """
        wrong = f"these {length} bytes lie at {offset} of a device pool and have no host buffer"
        raise CallerError(
            wrong, field="buffer", remedy="read them on the device, where `Handle.device` tells their place"
        )


class DevicePages(_NoBuffer):
    """The generation table of a pool that this process registered.

    Args:
        address: Address of the pool's first byte.
        regions: Its regions.
    """

    __slots__ = ("_address", "_tables")

    def __init__(self, address: int, regions: Sequence[Region]) -> None:
        self._address = address
        self._tables = [(region, array("Q", bytes(8 * region.pages))) for region in regions]

    def address_of(self, offset: int) -> int:
        """Return an offset's address in the engine's address space."""
        return self._address + offset

    def give(self, offset: int, length: int, generation: int) -> None:
        """Note that an object's pages are given to a unit; handles of what lay there are stale from now on."""
        table, pages = self._pages(offset, length)
        table[pages.start : pages.stop] = array("Q", [generation]) * len(pages)

    def is_current(self, offset: int, generation: int, length: int) -> bool:
        """Tell whether all pages of an object bear this generation; 0 is that of pages given before a restart."""
        table, pages = self._pages(offset, length)
        return all(table[page] in {0, generation} for page in pages)

    def _pages(self, offset: int, length: int) -> "tuple[array[int], range]":
        region, table = next((r, t) for r, t in self._tables if r.start <= offset < r.end)
        first = (offset - region.start) // region.page
        return table, range(first, first + -(-length // region.page))


class ForeignPages(_NoBuffer):
    """A pool that another process of the engine registered: the lease alone tells that a handle is true."""

    __slots__ = ()

    def address_of(self, offset: int) -> int:
        """Return that the address is not known here."""
        del offset
        return -1

    def is_current(self, offset: int, generation: int, length: int) -> bool:
        """Tell that nothing here speaks against the handle."""
        del offset, generation, length
        return True


def device_slots(objects: list[UnitObject], layout: Layout, given: PagesGiven, pages: Pages) -> list[DeviceSlot]:
    """Return the slots of a unit.

    Args:
        objects: Its objects, those of other ranks left out.
        layout: The layout, for the names of groups.
        given: What the daemon gave.
        pages: The pool, for addresses.
    """
    present, offsets, found = int.from_bytes(given.present, "little"), iter(given.offsets), list[DeviceSlot]()
    for number, item in enumerate(objects):
        offset = -1 if present >> number & 1 else next(offsets)
        address = pages.address_of(offset) if offset >= 0 else -1
        where = (item.first_token, item.tokens, item.length, offset, address)
        found.append(DeviceSlot(number, layout.groups[item.group].name, item.shard, *where))
    return found


def victims(layout: Layout, found: list[DeviceVictim]) -> tuple[Victim, ...]:
    """Return copies that made room, by the names of their groups."""
    return tuple(
        Victim(
            one.hash,
            one.residue,
            layout.groups[one.group].name,
            one.shard,
            one.page,
            one.offset,
            one.length,
            int.from_bytes(one.fp64, "little"),
        )
        for one in found
    )


def prints_of(missing: Sequence[DeviceSlot], fp64s: Sequence[int]) -> bytes:
    """Return what a report says of the objects that were filled.

    Raises:
        CallerError: There is not one 64-bit number for each.
    """
    if len(fp64s) != len(missing):
        remedy = "give the fp64 of each object of `unit.missing`, in this order"
        raise CallerError(f"fp64s of {counted(len(missing), 'object')} are asked for", field="fp64s", remedy=remedy)
    wrong = next((one for one in fp64s if not 0 <= one < 1 << 64), None)
    if wrong is not None:
        remedy = "use kvledger_kernels.fingerprint, or any 64-bit fingerprint that you check yourself"
        raise CallerError(f"{wrong} is no fp64", field="fp64s", remedy=remedy)
    return b"".join(one.to_bytes(FP64_BYTES, "little") for one in fp64s)
