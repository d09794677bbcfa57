"""How a device pool is cut: one region of pages for each group, so that no page ever changes its kind.

Daemon, client and adapters derive the same regions from the layout, the pages of each group and the pool's address. A
region begins where the group's alignment holds in the engine's address space, and its pages lie at a distance that
keeps it; so an address that a handle leads to is aligned by construction, for 576 bytes as well, which divide no page
of 4,096.
"""

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from kvledger.counts import counted
from kvledger.errors import CallerError
from kvledger.geometry import Geometry
from kvledger.layout import Layout

__all__ = ["Region", "group_alignment", "own_memory", "regions", "shared_pages"]

SHARE_BLOCKS = 16
"""Blocks that `shared_pages` expects between two boundaries whose states are kept."""


class Region(NamedTuple):
    """The pages of one group.

    Attributes:
        group: Group index.
        start: First byte within the pool.
        page: Bytes from one page to the next: the group's `page_bytes`, rounded up to its alignment.
        pages: Number of pages.
    """

    group: int
    start: int
    page: int
    pages: int

    @property
    def bytes(self) -> int:
        """Bytes of all its pages."""
        return self.page * self.pages

    @property
    def end(self) -> int:
        """First byte behind it."""
        return self.start + self.bytes


def group_alignment(layout: Layout, group: int) -> int:
    """Return what every object of a group is aligned to, bytes: what its spec and its kernel ABI both ask for."""
    spec = layout.groups[group]
    abi = layout.abi.get(spec.name)
    return math.lcm(spec.alignment, abi.alignment if abi is not None else 1)


def regions(layout: Layout, address: int, pages: Sequence[int], size: int) -> list[Region]:
    """Return the regions of a pool in the order of its groups, those without pages left out.

    Args:
        layout: Its layout.
        address: Address of its first byte in the engine's address space.
        pages: Pages of each group of the layout.
        size: Bytes of the pool.

    Raises:
        CallerError: `pages` does not fit the layout or the pool.
    """
    if len(pages) != len(layout.groups):
        remedy = "give one number for each group, in the order of the layout"
        raise CallerError(f"the layout has {counted(len(layout.groups), 'group')}", field="pages", remedy=remedy)
    found, end = list[Region](), 0
    for group, count in enumerate(pages):
        if not count:
            continue
        spec, alignment = layout.groups[group], group_alignment(layout, group)
        if not spec.cacheable:
            raise CallerError(f"{spec.name} is not cacheable", field="pages", remedy="give it no pages")
        region = Region(group, end + -(address + end) % alignment, -(-spec.page_bytes // alignment) * alignment, count)
        found.append(region)
        end = region.end
    if end > size:
        remedy = f"give the pool {end} bytes, or fewer pages to its groups"
        raise CallerError(f"the pages take {end} bytes, the pool has {size}", field="bytes", remedy=remedy)
    return found


def shared_pages(geometry: Geometry, address: int, size: int, rank: int = -1) -> list[int]:
    """Return pages for each group so that they run out together, if a state is kept every `SHARE_BLOCKS` blocks.

    Args:
        geometry: Geometry of the layout.
        address: Address of the pool's first byte in the engine's address space.
        size: Bytes of the pool.
        rank: The only rank whose objects lie there, -1 for all.
    """
    usual = [0] * len(geometry.groups)
    for item in geometry.unit_objects(0, SHARE_BLOCKS * geometry.block_tokens, boundary=True):
        if rank in {-1, geometry.rank(item.group, item.shard)}:
            usual[item.group] += -(-item.length // geometry.groups[item.group].page_bytes)
    whole = regions(geometry.layout, address, usual, 1 << 62)
    total = sum(region.bytes for region in whole)
    left = size - sum(group_alignment(geometry.layout, region.group) for region in whole)
    return [max(left, 0) * count // total for count in usual] if total else usual


def own_memory(engine: bytes, device: str, address: int) -> bytes:
    """Return a name for memory that only one engine can map: its id, the device and the address, 32 bytes."""
    return blake2b(b"\0".join((engine, device.encode(), b"%d" % address)), digest_size=32).digest()
