"""What an image of the state consists of: plain values, as msgspec writes them.

Everything that events have made is in the image, and nothing that follows from it: the tree's edges, masks of copies,
what is allocated in a pool. Orders that decisions depend on (of eviction, engines, jobs) are those of the lists.

Of blocks and cells there may be a million. Their rows are the first fields of the core's own objects, so an image is
written as `Image[PlainNode, PlainCell]` and read as `Image[Node, Cell]`, with no row between the bytes and the object.
What a row can not hold that way, the numbers of other objects, stands in lists beside the rows.
"""

from typing import Generic, TypeVar

import msgspec

from kvledger.epochs import EpochState
from kvledger.geometry import UnitObject
from kvledger.layout import Layout
from kvledger_storage.device_events import DevicePoolAdded
from kvledger_storage.events import GraphObject, OfferRecord, Process
from kvledgerd.core.copies.tier import Tier
from kvledgerd.core.device_pools.device import DeviceCopy
from kvledgerd.core.index import Cell, Node
from kvledgerd.core.state import Outcome

__all__ = [
    "MASKS",
    "NUMBERS",
    "Image",
    "Objects",
    "PlainArena",
    "PlainAsked",
    "PlainCell",
    "PlainDevicePool",
    "PlainEngine",
    "PlainEpoch",
    "PlainGhosts",
    "PlainJob",
    "PlainLayout",
    "PlainLease",
    "PlainMasks",
    "PlainNode",
    "PlainOrder",
    "PlainPool",
    "PlainReuse",
    "PlainTopology",
    "PlainTree",
    "PlainUnit",
    "ReadImage",
]

NUMBERS = (
    "incarnation",
    "serial",
    "next_node",
    "next_cell",
    "next_arena",
    "next_engine",
    "next_layout",
    "next_epoch",
    "disk_bytes",
    "quantised_records",
    "quantised_bytes",
    "objects",
    "material_unused",
    "stored_unusable",
    "restored_bytes",
    "restored_micros",
)
"""Attributes of the state that are numbers, in the order of `Image.numbers`."""
MASKS = ("approx", "unverified", "uncoupled", "damaged")
"""Bit masks of a cell that its states do not tell, in the order of `PlainMasks.masks`."""

Objects = list[tuple[int, int]]


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Base of all parts of an image."""


class PlainEpoch(Part, frozen=True):
    """An epoch with what it holds: bytes in memory by kind, and on disk."""

    number: int
    tenant: str
    model: str
    weights: str
    engine: int
    state: EpochState
    share: int
    kernels: list[tuple[str, int]]
    memory: dict[int, int]
    disk: int


class PlainTree(Part, frozen=True):
    """An index tree; it may outlive the layout that made it."""

    number: int
    key: tuple[str, str, str, int]
    root_holds: int


class PlainLayout(Part, frozen=True):
    """A layout; its index tree follows from it."""

    number: int
    tenant: str
    epoch: int
    layout: Layout


class PlainNode(Part, frozen=True):
    """One block of tokens."""

    id: int
    hash: bytes
    holds: int


class PlainCell(Part, frozen=True):
    """What a layout keeps at a block or boundary."""

    id: int
    layout: int
    residue: int
    residue_hash: bytes
    states: bytes
    words: bytes
    records: bytes
    precisions: bytes
    pins: int
    follows: bool
    used: bool
    revisited: bool
    lineage: int
    marks: int
    usage: int
    limbo: list[tuple[int, int, int, int]] | None
    manifest: tuple[int, int, int] | None


class PlainMasks(Part, frozen=True):
    """Masks of a cell, of which at least one is not zero; they may have more bits than msgpack's integers."""

    cell: int
    masks: list[bytes]


class PlainArena(Part, frozen=True):
    """An arena; what is allocated in it follows from the free extents of its pool."""

    id: int
    tenant: str
    kind: int
    bytes: int
    ready: bool


class PlainPool(Part, frozen=True):
    """The free extents of one tenant and kind."""

    tenant: str
    kind: int
    arenas: list[int]
    free: list[tuple[int, int, int]]
    entries: int


class PlainOrder(Part, frozen=True):
    """The eviction order of one tenant and kind: cells by number, each with its usage; the usual queue by queue."""

    tenant: str
    kind: int
    first: list[tuple[int, int]]
    usual: list[tuple[int, list[tuple[int, int]]]]


class PlainGhosts(Part, frozen=True):
    """What was evicted of one tenant and kind for want of memory: keys with bytes, and how they are weighed."""

    tenant: str
    kind: int
    sizes: list[tuple[int, int]]
    seen: int
    again: int
    missed: int


class PlainReuse(Part, frozen=True):
    """What is known about how soon one sort of a tenant's things is wanted again: numbers, and columns of a table."""

    tenant: str
    numbers: list[int]
    columns: list[bytes]


class PlainEngine(Part, frozen=True):
    """An engine and the numbers of what it holds."""

    number: int
    key: bytes
    tenant: str
    uid: int
    pid: int
    name: str
    silent: bool
    leases: list[int]
    units: list[int]
    pools: list[int]


class PlainLease(Part, frozen=True):
    """A lease; cells by number."""

    id: int
    engine: int
    layout: int
    node: int
    blocks: list[int]
    offers: list[OfferRecord]
    boundaries: list[int | None]
    pools: tuple[int, ...]


class PlainUnit(Part, frozen=True):
    """A reservation; its path follows from its node."""

    id: int
    engine: int
    layout: int
    node: int
    first_block: int
    boundary: bool
    residue: int
    residue_hash: bytes
    objects: list[UnitObject]
    places: list[tuple[int, int] | None]
    filled: list[int]
    prints: list[bytes]
    pinned: list[int]
    jobs: list[int]
    aborted: bool
    holder: int
    joined: dict[int, int]
    done: list[int]
    lineage: int
    converts: bool = False
    approx: bool = False


class PlainDevicePool(Part, frozen=True):
    """A device pool: the order of use of its cells, and its copies as (cell, slot) with what they consist of.

    Masks, free pages and pins follow from copies, asked pages and leases; what is held follows from topologies.
    """

    added: DevicePoolAdded
    engine: int
    key: bytes
    order: list[int]
    copies: list[tuple[tuple[int, int], DeviceCopy]]


class PlainAsked(Part, frozen=True):
    """Pages that are being filled; the path follows from the node."""

    id: int
    engine: int
    pool: int
    layout: int
    node: int
    first_block: int
    boundary: bool
    residue: int
    residue_hash: bytes
    objects: list[UnitObject]
    offsets: list[int | None]
    pinned: list[int]


class PlainJob(Part, frozen=True):
    """A job of any sort; `number` is the arena, the boundary's cell, or the generation."""

    what: str
    id: int
    objects: Objects
    number: int = 0
    places: list[tuple[int, int]] = []
    void: bool = False
    sources: list[tuple[int, int, int]] = []
    asked: bool = True
    promotion: bool = False
    precisions: tuple[int, ...] = ()


class PlainTopology(Part, frozen=True):
    """A topology; each object as (cell, slot, device pool or 0, arena or device pool, offset, generation)."""

    id: int
    key: bytes
    tenant: str
    uid: int
    processes: list[Process]
    objects: list[tuple[int, int, int, int, int, int]]
    lost: list[GraphObject]
    recapturing: bool


N = TypeVar("N")
C = TypeVar("C")


class Image(Part, Generic[N, C], frozen=True):
    """All of it.

    Attributes:
        node_trees: Number of the tree of each node.
        node_parents: Number of the parent of each node, 0 for a root.
        cell_nodes: Number of the node of each cell, 0 for the root of its layout's tree.
    """

    numbers: list[int]
    stopped: bool
    growth_failed: bool
    degraded: str
    boot_id: bytes
    log_id: bytes
    live_from: tuple[int, bytes]
    kept_from: tuple[int, bytes]
    tier: Tier
    epochs: list[PlainEpoch]
    trees: list[PlainTree]
    layouts: list[PlainLayout]
    nodes: list[N]
    node_trees: list[int]
    node_parents: list[int]
    cells: list[C]
    cell_nodes: list[int]
    masks: list[PlainMasks]
    orders: list[PlainOrder]
    arenas: list[PlainArena]
    pools: list[PlainPool]
    device_pools: list[PlainDevicePool]
    asked: list[PlainAsked]
    engines: list[PlainEngine]
    leases: list[PlainLease]
    units: list[PlainUnit]
    jobs: list[PlainJob]
    topologies: list[PlainTopology]
    outcomes: list[tuple[int, Outcome]]
    endings: list[tuple[int, tuple[int, str]]]
    disk_use: list[tuple[str, int, int, int]]
    quotas: list[tuple[str, int, int, bool]]
    ghosts: list[PlainGhosts]
    reuse: list[PlainReuse]


ReadImage = Image[Node, Cell]
"""An image with its rows in the core's own objects."""
