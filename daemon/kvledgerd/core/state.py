"""The state of the cache: what all events so far have made of it.

Only `kvledgerd.core.apply` changes it. Everything here is found by number or by hash, in an order that depends on
events alone, so that a replay in any process yields the same state and the same digest.
"""

from collections import OrderedDict
from typing import NamedTuple

import msgspec
import xxhash

from kvledger.geometry import bits
from kvledger.kinds import Kind
from kvledger.layout import Layout
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.copies.tier import Tier
from kvledgerd.core.device_pools.device import NO_DEVICE, Asked, DevicePool, Sight
from kvledgerd.core.epoch.epochs import Epoch
from kvledgerd.core.holdings import Engine, Job, Lease, Unit
from kvledgerd.core.index import Cell, Node, Tree
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.placement.caps import Amount, Scopes, scopes_of
from kvledgerd.core.placement.ghosts import Ghosts
from kvledgerd.core.placement.orders import Order
from kvledgerd.core.placement.pools import Arena, Pool
from kvledgerd.core.placement.reuse import Reuse
from kvledgerd.core.topology.topologies import Topology

__all__ = ["OUTCOMES_KEPT", "BoundaryKey", "Outcome", "Quota", "State"]

OUTCOMES_KEPT = 1024
_MASK = 2**64 - 1
_ENCODER = msgspec.msgpack.Encoder()


BoundaryKey = tuple[int, bytes, int, bytes]
"""Number of a layout, hash of the last whole block (empty if there is none), residue, and its hash."""


class Outcome(msgspec.Struct, frozen=True):
    """How a job ended, kept for the request that waits for it.

    Attributes:
        error: The first thing that went wrong, empty if nothing did.
        objects: How many objects it brought.
        bytes: How many bytes these have.
        unread: Objects that could not be read this time, as (cell, slot); their records are still there.
        written: Boundary that was to be written; None if the job was no offload.
    """

    error: str = ""
    objects: int = 0
    bytes: int = 0
    unread: tuple[tuple[int, int], ...] = ()
    written: BoundaryKey | None = None


class Quota(NamedTuple):
    """What a kind of a tenant is sure of, bytes of arenas; the load does not move what an operator fixed."""

    bytes: int
    fixed: bool = False


class State:
    """The cache of one node.

    Attributes:
        config: Caps and switches.
        serial: Next receipt number: units, leases, jobs and commits draw from it.
        layout_numbers: (tenant, digest, engine) of each layout to its number; engine 0 but for unpinned ones.
        cells: All cells by number, in the order in which they were made.
        orders: Of each tenant the eviction order of each kind, by the number of the kind.
        disk_bytes: Bytes of all live records, headers and padding included.
        quantised_records: How many of these records are quantised.
        quantised_bytes: Bytes of those.
        disk_use: Of each tenant and kind (by number) bytes and number of its live records; none is all zero.
        objects: Number of objects, reserved ones included.
        material_unused: Blocks that were dropped before a boundary stood on them.
        device_pools: Pages that engines set aside on their devices, by number.
        asked: Pages that engines are filling, by receipt.
        stored_unusable: Units that were refused since no look-up could use their boundary.
        restored_bytes: Bytes that restores brought, those long ago counted less (`kvledgerd.core.lookup.pace`).
        restored_micros: Microseconds that these took, 0 as long as nothing was measured.
        outcomes: How the latest jobs ended.
        endings: How the latest units ended: the engine that reserved, and a text for people.
        quotas: Of each tenant and kind (by number) its quota, where one was fixed or has moved.
        reuse: Of each tenant what is known about how soon its blocks of rows, and its states, are wanted again.
        ghosts: Of each tenant and kind (by number) what was evicted of it for want of memory.
        growth_failed: An arena could not be made in this incarnation; no further one is tried.
        tier: The disk tier as a whole.
        degraded: Why no restore may begin, empty if it may.
        live_from: First event that a start reads and the chain before it, once the log has an archive.
        kept_from: First event that still exists and the chain before it, once events were retired.
    """

    def __init__(self, config: CoreConfig) -> None:
        self.config = config
        self.incarnation = 0
        self.stopped = True
        self.boot_id = b""
        self.log_id = b""
        self.serial = 1
        self.next_node = 1
        self.next_cell = 1
        self.next_arena = 1
        self.next_engine = 1
        self.next_layout = 1
        self.next_epoch = 1
        self.epochs: dict[int, Epoch] = {}
        self.layouts: dict[int, KnownLayout] = {}
        self.layout_numbers: dict[tuple[str, bytes, int], int] = {}
        self.trees: dict[int, Tree] = {}
        self.tree_numbers: dict[tuple[str, str, str, int], int] = {}
        self.nodes: dict[int, Node] = {}
        self.cells: dict[int, Cell] = {}
        self.orders: dict[str, list[Order]] = {}
        self.arenas: dict[int, Arena] = {}
        self.pools: dict[tuple[str, Kind], Pool] = {}
        self.device_pools: dict[int, DevicePool] = {}
        self.asked: dict[int, Asked] = {}
        self.engines: dict[int, Engine] = {}
        self.leases: dict[int, Lease] = {}
        self.units: dict[int, Unit] = {}
        self.jobs: dict[int, Job] = {}
        self.topologies: dict[int, Topology] = {}
        self.restoring: dict[tuple[int, int], int] = {}
        self.disk_bytes = 0
        self.quantised_records = self.quantised_bytes = 0
        self.disk_use: dict[tuple[str, int], Amount] = {}
        self.objects = 0
        self.material_unused = 0
        self.stored_unusable = 0
        self.restored_bytes = 0
        self.restored_micros = 0
        self.outcomes: OrderedDict[int, Outcome] = OrderedDict()
        self.endings: OrderedDict[int, tuple[int, str]] = OrderedDict()
        self.quotas: dict[tuple[str, int], Quota] = {}
        self.reuse: dict[str, tuple[Reuse, Reuse]] = {}
        self.ghosts: dict[tuple[str, int], Ghosts] = {}
        self.growth_failed = False
        self.tier = Tier()
        self.degraded = ""
        self.live_from = self.kept_from = (0, b"")
        self._dirty: dict[int, Cell] = {}
        self._digest = 0

    def pool(self, tenant: str, kind: Kind) -> Pool:
        """Return the pool of a tenant and kind; an empty one if there is none."""
        return self.pools.get((tenant, kind)) or Pool()

    def sight(self, engine: int, layout: int) -> Sight:
        """Return what an engine sees of its own devices with one layout."""
        asking = self.engines.get(engine)
        if asking is None or not asking.pools:
            return NO_DEVICE
        pools = (self.device_pools[number] for number in asking.pools)
        return Sight([pool for pool in pools if pool.known.number == layout])

    def lease_sight(self, lease: Lease) -> Sight:
        """Return what a lease's handles name on devices; what was filled since is none of it."""
        # A pool whose layout was retired may be gone before the lease is
        return Sight([self.device_pools[number] for number in lease.pools if number in self.device_pools], lease.id)

    def tree_key(self, tenant: str, layout: Layout) -> tuple[str, str, str, int]:
        """Return the index key of a layout without the chain hash."""
        return tenant, layout.hash_algorithm, layout.tokenizer_digest, layout.block_tokens

    def arena_bytes(self) -> int:
        """Return the bytes of all arenas, those being made included."""
        return sum(a.bytes for a in self.arenas.values())

    def memory_use(self, tenant: str, kind: Kind) -> Scopes:
        """Return what is used of memory: by a kind its slots, by the tenant and in all the arenas around them."""
        pool, mine, whole = self.pool(tenant, kind), [0, 0], [0, 0]
        for arena in self.arenas.values():
            whole[0] += arena.bytes
            mine[0] += arena.bytes if arena.tenant == tenant else 0
        for (owner, _), one in self.pools.items():
            whole[1] += one.entries
            mine[1] += one.entries if owner == tenant else 0
        return Scopes(Amount(pool.live_bytes, pool.entries), Amount(*mine), Amount(*whole))

    def records_use(self, tenant: str, kind: Kind) -> Scopes:
        """Return what the live records of a kind, of its tenant and of all take on disk."""
        return scopes_of(self.disk_use, tenant, int(kind))

    def generations(self, arena: int) -> list[tuple[int, int, int]]:
        """Return (offset, length, generation) of every object in an arena, to rewrite its table at adoption."""
        found = []
        for cell in self.cells.values():
            known = self.layouts[cell.layout]
            for slot in bits(cell.memory):
                at, offset, generation = cell.place(slot)
                if at == arena:
                    found.append((offset, known.length_of(cell, slot), generation))
        return found

    def touch(self, cell: Cell) -> None:
        """Note that a cell changed, for the digest."""
        self._dirty[cell.id] = cell

    def touch_all(self) -> None:
        """Note that all cells changed, as those do that were just made of an image."""
        self._dirty = self.cells.copy()

    def toggle(self, *facts: int | bytes | str) -> None:
        """Add a fact to the digest, or take it out again."""
        self._digest ^= xxhash.xxh3_64_intdigest(msgspec.msgpack.encode(facts))

    def digest(self) -> int:
        """Return the digest of the state, 64 bits: equal for equal histories, whatever process replays them."""
        self.changed_cells()
        return (self._digest ^ self._counters()) & _MASK

    def changed_cells(self) -> list[Cell]:
        """Return the cells that changed since the last digest or the last call, and take them into the digest."""
        changed = list(self._dirty.values())
        for cell in changed:
            new = cell_digest(cell) if cell.id in self.cells else 0
            self._digest ^= cell.digest ^ new
            cell.digest = new
        self._dirty.clear()
        return changed

    def recomputed_digest(self) -> int:
        """Return the digest with every cell's part made anew; differs from `digest` only if bookkeeping is wrong."""
        rest = self.digest()
        for cell in self.cells.values():
            rest ^= cell.digest ^ cell_digest(cell)
        return rest

    def _counters(self) -> int:
        counted = (
            self.serial,
            self.next_node,
            self.next_cell,
            self.next_arena,
            self.next_engine,
            self.disk_bytes,
            self.quantised_records,
            self.quantised_bytes,
            self.objects,
            self.incarnation,
            self.material_unused,
            self.stored_unusable,
            self.restored_bytes,
            self.restored_micros,
            self.live_from,
            self.kept_from,
            [(*key, *quota) for key, quota in self.quotas.items()],
            [(*key, g.bytes, g.seen, g.again, g.missed, len(g.sizes)) for key, g in self.ghosts.items()],
            [(tenant, *(one.digest() for one in both)) for tenant, both in self.reuse.items()],
            self.next_layout,
            self.next_epoch,
            self.tier.facts(),
            self.degraded,
        )
        return xxhash.xxh3_64_intdigest(msgspec.msgpack.encode(counted))


def _packed(mask: int) -> int | bytes:
    return mask if mask <= _MASK else mask.to_bytes(-(-mask.bit_length() // 8))


def cell_digest(cell: Cell) -> int:
    """Return the digest of one cell, never 0."""
    node = cell.node
    name = (cell.id, node.id, cell.layout, cell.residue, cell.residue_hash, node.hash)
    copies = (_packed(cell.memory), _packed(cell.disk), cell.states, cell.words, cell.records)
    told = (cell.precisions, _packed(cell.approx)) if cell.precisions or cell.approx else ()
    packed = _ENCODER.encode((*name, cell.manifest, cell.used, cell.marks, cell.usage, cell.lineage, *copies, *told))
    return xxhash.xxh3_64_intdigest(packed) or 1
