"""Device pools: GPU pages that an engine set aside, and what lies in them.

The bytes are the engine's and never seen here; the core keeps which object lies where, under which generation, and what
keeps it there. Most cells have nothing on any device, so a pool holds its copies itself and a cell only counts pools. A
copy is named (cell, slot) in a pool. Pools draw their numbers from the counter of arenas, so that the place that a
handle names is one or the other and never both.
"""

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from kvledger.device_regions import regions
from kvledger.geometry import BOUNDARY, UnitObject, bits
from kvledger_storage.device_events import DevicePoolAdded
from kvledgerd.core.index import Cell, Node
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.placement.pools import Arena, Pool

__all__ = ["NO_DEVICE", "Asked", "DeviceCopy", "DevicePool", "Sight"]


class DeviceCopy(NamedTuple):
    """An object's copy in a device pool: its first byte there, generation, `fp64` and commit."""

    offset: int
    generation: int
    fp64: int
    commit: int


class Asked:
    """Pages that an engine asked for and fills: they become copies together, or not at all.

    Attributes:
        id: The receipt, and the generation of its pages.
        pool: Number of the device pool.
        path: Nodes of its whole blocks from the root on.
        node: Node of its end.
        objects: Its objects in the order of `Geometry.unit_objects`, those of other ranks left out.
        offsets: First byte in the pool of each object, None for those that were resident already.
        pinned: Cells pinned for what was resident already.
    """

    __slots__ = (
        "boundary",
        "engine",
        "first_block",
        "id",
        "layout",
        "node",
        "objects",
        "offsets",
        "path",
        "pinned",
        "pool",
        "residue",
        "residue_hash",
    )

    def __init__(self, number: int, engine: int, pool: int, layout: int, node: Node) -> None:
        self.id = number
        self.engine = engine
        self.pool = pool
        self.layout = layout
        self.path = node.path()
        self.node = node
        self.first_block = 0
        self.boundary = False
        self.residue = 0
        self.residue_hash = b""
        self.objects: list[UnitObject] = []
        self.offsets: list[int | None] = []
        self.pinned: list[Cell] = []

    def missing(self) -> list[int]:
        """Return the indices of the objects that it brings."""
        return [i for i, offset in enumerate(self.offsets) if offset is not None]

    def node_of(self, item: UnitObject) -> Node:
        """Return the node under which one of its objects lies."""
        return self.node if item.block == BOUNDARY else self.path[item.block]

    def cell_of(self, item: UnitObject) -> Cell | None:
        """Return the cell in which one of its objects belongs, None if there is none yet."""
        node = self.node_of(item)
        if item.block == BOUNDARY:
            return node.boundary(self.layout, self.residue, self.residue_hash)
        return node.cell(self.layout)


class DevicePool:
    """The pages of one engine on one device, for objects of one layout.

    Args:
        event: Its registration.
        known: Its layout.
        key: The 128-bit id of its engine, under which it is found again after a restart; empty once its layout was
            retired.

    Attributes:
        engine: Number of its engine; 0 while only topologies, or leases on a retired layout, keep what is left of it.
        places: Free and taken pages of each group that has any.
        starts: First byte of each of these groups' regions.
        counts: Objects of each of these groups, asked and resident.
        copies: What is resident, by cell and slot.
        cells: Mask of the resident slots of each cell, least recently used first.
        pins: Leases and asked pages that keep a cell's copies where they are.
        held: Topologies that keep a copy where it is, whatever becomes of the engine.
    """

    __slots__ = (
        "added",
        "cells",
        "copies",
        "counts",
        "engine",
        "held",
        "id",
        "key",
        "known",
        "pins",
        "places",
        "starts",
    )

    def __init__(self, event: DevicePoolAdded, known: KnownLayout, key: bytes) -> None:
        self.id = event.pool
        self.engine = event.engine
        self.key = key
        self.known = known
        self.added = event
        self.places: dict[int, Pool] = {}
        self.starts: dict[int, int] = {}
        for region in regions(known.layout, event.address, event.pages, event.bytes):
            arena = Arena(event.pool, known.tenant, known.layout.groups[region.group].kind, region.bytes)
            self.places[region.group] = Pool(region.page)
            self.places[region.group].add(arena)
            self.starts[region.group] = region.start
        self.counts = dict.fromkeys(self.places, 0)
        self.copies: dict[tuple[int, int], DeviceCopy] = {}
        self.cells: OrderedDict[int, int] = OrderedDict()
        self.pins: dict[int, int] = {}
        self.held: dict[tuple[int, int], int] = {}

    def own(self, objects: list[UnitObject]) -> list[UnitObject]:
        """Return those objects of a unit that belong here, which are those of one rank if the pool is one's."""
        rank, rank_of = self.added.rank, self.known.geometry.rank
        return [item for item in objects if rank in {-1, rank_of(item.group, item.shard)}]

    def resident(self, cell: Cell) -> int:
        """Return the mask of a cell's slots that have a copy here."""
        return self.cells.get(cell.id, 0)

    def beyond(self, cell: Cell) -> int:
        """Return the mask of a cell's slots that have a copy in memory or on disk."""
        return cell.memory | cell.disk

    def is_pinned(self, cell: Cell) -> bool:
        """Tell whether a lease, pages that are asked for or a topology keeps something of a cell."""
        if cell.id in self.pins:
            return True
        return bool(self.held) and any((cell.id, slot) in self.held for slot in bits(self.resident(cell)))

    def touch(self, cells: Iterable[Cell]) -> None:
        """Make these cells the most recently used, in this order."""
        for cell in cells:
            if cell.id in self.cells:
                self.cells.move_to_end(cell.id)

    def take(self, group: int, offset: int, length: int) -> None:
        """Take the pages of an object of a group; raises ValueError if they are not free."""
        self.places[group].take(self.id, offset - self.starts[group], length)
        self.counts[group] += 1

    def give(self, group: int, offset: int, length: int) -> None:
        """Free the pages of an object of a group."""
        self.places[group].give(self.id, offset - self.starts[group], length)
        self.counts[group] -= 1


class Sight:
    """What one engine sees of its own devices, for look-ups with one layout.

    Args:
        pools: The engine's pools for that layout, the one that is preferred first.
        before: Receipt before which a copy was filled to be seen.
    """

    __slots__ = ("before", "pools")

    def __init__(self, pools: list[DevicePool], before: int = 1 << 64) -> None:
        self.pools = pools
        self.before = before

    def __bool__(self) -> bool:
        return bool(self.pools)

    def mask(self, cell: Cell) -> int:
        """Return the mask of a cell's slots that lie on a device."""
        found = 0
        for pool in self.pools if cell.pooled else ():
            found |= pool.cells.get(cell.id, 0)
        return found

    def copy(self, cell: Cell, slot: int) -> tuple[int, DeviceCopy] | None:
        """Return pool and copy of an object that lies on a device, None if it does not."""
        for pool in self.pools if cell.pooled else ():
            found = pool.copies.get((cell.id, slot))
            if found is not None and found.commit < self.before:
                return pool.id, found
        return None


NO_DEVICE = Sight([])
"""What an engine without pools sees, which is nearly every one."""
