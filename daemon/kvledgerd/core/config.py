"""Caps and switches that decisions depend on; the shell fills them from its settings."""

import enum

import msgspec

from kvledger.kinds import Kind
from kvledgerd.core.copies.precisions import Precision
from kvledgerd.core.placement.caps import NO_CAP, PlaceCaps

__all__ = ["CAPLESS", "DRILL_TENANT", "PAGE", "CoreConfig", "DiskWritePolicy"]

PAGE = 4096
"""Bytes of a page: the unit of placement in memory and on disk, and of the generation table."""


DRILL_TENANT = "kvledger.drill"
"""The tenant that the daemon itself is, to try whether it works: it has one small arena, and comes before others."""


class DiskWritePolicy(enum.StrEnum):
    """When the daemon writes a boundary to disk by itself; what an engine asks for is written in any case."""

    ASKED = "asked"
    """Never."""
    ON_EVICT = "on_evict"
    """Before it makes room, and at an orderly stop."""
    ON_SECOND_USE = "on_second_use"
    """When a look-up reads it, and as before."""
    ALWAYS = "always"
    """When it is committed, and as before."""


class CoreConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the core may use.

    Attributes:
        memory_bytes: Cap on all arenas together.
        memory_entries: Cap on the objects in them.
        arena_bytes: Size of a new arena; a larger object gets a larger arena.
        tenants: Tenants for which memory is set aside.
        tenant_bytes: Cap on the arenas of one tenant.
        tenant_entries: Cap on its objects in memory.
        kind_bytes: Cap on the memory of one kind and tenant; kinds not named may use all of it.
        kind_entries: Cap on its objects in memory.
        disk_bytes: Cap on all live records, headers included.
        disk_entries: Cap on their number.
        disk_tenant_bytes: Cap on the records of one tenant.
        disk_tenant_entries: Cap on their number.
        disk_kind_bytes: Cap on the records of one kind and tenant; manifests are of the kind DISK_PREFIX.
        disk_kind_entries: Cap on their number.
        max_objects: Cap on objects, reserved ones included.
        max_leases: Cap on the leases of one engine.
        uid_leases: Cap on the leases of all engines of one uid within a tenant.
        max_units: Cap on the open reservations of one engine.
        max_layouts: Cap on the layouts of one tenant, since each stays for the life of the log.
        layout_bytes: Cap on the memory that they take together: one request may bring a layout of ten megabytes.
        max_topologies: Cap on the topologies of one engine.
        max_tenant_topologies: Cap on the topologies of one tenant, which outlive connections and incarnations.
        max_topology_processes: Cap on the processes that these name, since each is watched by a descriptor.
        topology_bytes: Cap on the memory that all topologies together pin.
        topology_tenant_bytes: Cap on what those of one tenant pin.
        compact_percent: Free share of a kind's memory beyond which its emptiest arena is emptied; 0 for never.
        wait_ms: How long a request may wait for jobs, unless it says so itself.
        device_bytes: Cap on the pages that objects take in all device pools together, asked ones included.
        device_entries: Cap on their number.
        device_tenant_bytes: Cap on the pages of one tenant's objects there.
        device_tenant_entries: Cap on their number.
        device_kind_bytes: Cap on the pages of one kind and tenant there.
        device_kind_entries: Cap on their number.
        max_device_pools: Cap on the device pools of one engine.
        disk_write: When the daemon writes a boundary to disk by itself.
        disk_precision: In which precision objects of a kind are written to disk where their layout allows it.
        write_bytes: Bytes that it may be writing by itself at the same time; an equal part is each tenant's own.
        allow_unpinned: Whether a layout may leave its weights unnamed; what is stored under it ends with its engine.
    """

    memory_bytes: int = 1 << 30
    memory_entries: int = NO_CAP
    arena_bytes: int = 64 << 20
    tenants: int = 1
    tenant_bytes: int = NO_CAP
    tenant_entries: int = NO_CAP
    kind_bytes: dict[Kind, int] = {}
    kind_entries: dict[Kind, int] = {}
    disk_bytes: int = 16 << 30
    disk_entries: int = NO_CAP
    disk_tenant_bytes: int = NO_CAP
    disk_tenant_entries: int = NO_CAP
    disk_kind_bytes: dict[Kind, int] = {}
    disk_kind_entries: dict[Kind, int] = {}
    max_objects: int = 1 << 24
    max_leases: int = 4096
    uid_leases: int = NO_CAP
    max_units: int = 256
    max_layouts: int = 4096
    layout_bytes: int = 1 << 28
    max_topologies: int = 64
    max_tenant_topologies: int = 4096
    max_topology_processes: int = 1024
    topology_bytes: int = 1 << 29
    topology_tenant_bytes: int = NO_CAP
    compact_percent: int = 50
    wait_ms: int = 60_000
    device_bytes: int = NO_CAP
    device_entries: int = 1 << 22
    device_tenant_bytes: int = NO_CAP
    device_tenant_entries: int = NO_CAP
    device_kind_bytes: dict[Kind, int] = {}
    device_kind_entries: dict[Kind, int] = {}
    max_device_pools: int = 64
    disk_write: DiskWritePolicy = DiskWritePolicy.ASKED
    disk_precision: dict[Kind, Precision] = {}
    write_bytes: int = 64 << 20
    allow_unpinned: bool = False

    def memory(self) -> PlaceCaps:
        """Return the caps on memory. Of kinds they count slots, in the wider scopes the arenas around them."""
        return PlaceCaps(
            place="memory",
            prefix="",
            bytes=self.memory_bytes,
            entries=self.memory_entries,
            tenant_bytes=self.tenant_bytes,
            tenant_entries=self.tenant_entries,
            kind_bytes=self.kind_bytes,
            kind_entries=self.kind_entries,
        )

    def disk(self) -> PlaceCaps:
        """Return the caps on disk."""
        return PlaceCaps(
            place="disk",
            prefix="disk_",
            bytes=self.disk_bytes,
            entries=self.disk_entries,
            tenant_bytes=self.disk_tenant_bytes,
            tenant_entries=self.disk_tenant_entries,
            kind_bytes=self.disk_kind_bytes,
            kind_entries=self.disk_kind_entries,
        )

    def device(self) -> PlaceCaps:
        """Return the caps on all device pools together."""
        return PlaceCaps(
            place="device",
            prefix="device_",
            bytes=self.device_bytes,
            entries=self.device_entries,
            tenant_bytes=self.device_tenant_bytes,
            tenant_entries=self.device_tenant_entries,
            kind_bytes=self.device_kind_bytes,
            kind_entries=self.device_kind_entries,
        )


CAPLESS = CoreConfig(memory_bytes=NO_CAP, disk_bytes=NO_CAP, max_objects=NO_CAP)
"""For a replay, which decides nothing: whoever wrote the log may have had other caps than those of now."""
