"""What can happen to device pools, as it stands in the log: the part of `kvledger_storage.events` about them.

Nothing here is about bytes: these lie on the engine's device, and only it writes them.
"""

from kvledger_storage.event_form import EventForm

__all__ = [
    "DeviceEvent",
    "DeviceFreed",
    "DevicePoolAdded",
    "DevicePoolEnded",
    "DevicePoolTaken",
    "PagesAsked",
    "PagesFilled",
    "PagesGivenUp",
]


class DevicePoolAdded(EventForm, frozen=True, tag="device_pool_added.1"):
    """An engine set pages on a device aside.

    Attributes:
        pool: Its number, from the counter of arenas.
        engine: Whose pages they are.
        layout: Number of the layout whose objects lie there.
        device: What the engine calls the device.
        memory: What names the memory itself: who registers the same memory again is recognised by it.
        address: Address of its first byte in the engine's address space, for alignment and to be found again.
        bytes: Bytes of the pool.
        pages: Pages of each group of the layout; the regions follow from them.
        rank: The only rank whose objects lie there, -1 for all.
    """

    pool: int
    engine: int
    layout: int
    device: str
    memory: bytes
    address: int
    bytes: int
    pages: tuple[int, ...]
    rank: int


class DevicePoolTaken(EventForm, frozen=True, tag="device_pool_taken.1"):
    """The engine registered a pool again of which a topology had kept something."""

    pool: int
    engine: int


class DevicePoolEnded(EventForm, frozen=True, tag="device_pool_ended.1"):
    """An engine took its pages back, and what was in them is gone.

    The end of an engine or an incarnation ends its pools without an event of their own; see `DevicePoolTaken` for what
    a topology keeps of them.
    """

    pool: int
    reason: str


class PagesAsked(EventForm, frozen=True, tag="pages_asked.1"):
    """Pages of a device pool were taken for objects that the engine fills.

    Attributes:
        unit: The receipt, which is the generation of all these pages.
        engine: Who asked.
        pool: The device pool.
        parent: Deepest node of the path that is known whatever made room.
        fresh: Hashes of the blocks below it, 32 bytes each; nodes are made for those that have none.
        first_block: First block whose rows are brought.
        boundary: Whether the end becomes a boundary.
        all_pages: Whether every window page of the blocks is brought.
        residue: Tokens after the last whole block.
        residue_hash: Their hash.
        offsets: First byte in the pool of each object of the unit's order; None for those that were resident already.
    """

    unit: int
    engine: int
    pool: int
    parent: int
    fresh: bytes
    first_block: int
    boundary: bool
    all_pages: bool
    residue: int
    residue_hash: bytes
    offsets: tuple[int | None, ...]


class PagesFilled(EventForm, frozen=True, tag="pages_filled.1"):
    """The engine filled its pages, and they are copies now.

    Attributes:
        unit: What was asked.
        commit_id: Couples rows with their indexer.
        prints: `fp64` of each object that was brought, 8 bytes little-endian each.
        dropped: Objects, by index, that were resident meanwhile; their pages are free again.
        differing: Those of `dropped` whose `fp64` differs from that of what stays.
    """

    unit: int
    commit_id: int
    prints: bytes
    dropped: tuple[int, ...]
    differing: tuple[int, ...]


class PagesGivenUp(EventForm, frozen=True, tag="pages_given_up.1"):
    """Pages that were asked for are free again, and were never copies."""

    unit: int
    reason: str


class DeviceFreed(EventForm, frozen=True, tag="device_freed.1"):
    """Copies in a device pool, each by cell and slot, are gone and their pages free."""

    pool: int
    objects: tuple[tuple[int, int], ...]
    reason: str


DeviceEvent = (
    DevicePoolAdded | DevicePoolTaken | DevicePoolEnded | PagesAsked | PagesFilled | PagesGivenUp | DeviceFreed
)
