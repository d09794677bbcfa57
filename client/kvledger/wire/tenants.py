"""The request about all tenants, which operators may send, and its reply."""

from kvledger.wire.fields import Id, Message, Name

__all__ = ["TenantInfo", "TenantList", "Tenants"]


class Tenants(Message, frozen=True, tag="tenants"):
    """Ask what each tenant has."""


class TenantInfo(Message, frozen=True):
    """What one tenant has.

    Attributes:
        name: Its name in the rules.
        engines: Engines that are connected.
        leases: Leases that they hold.
        layouts: Layouts that it has registered.
        objects: Its objects in memory.
        memory_bytes: Bytes of its arenas.
        memory_cap_bytes: What they may be.
        disk_bytes: Bytes of its records on disk.
        disk_cap_bytes: What they may be.
    """

    name: Name
    engines: Id
    leases: Id
    layouts: Id
    objects: Id
    memory_bytes: Id
    memory_cap_bytes: Id
    disk_bytes: Id
    disk_cap_bytes: Id


class TenantList(Message, frozen=True, tag="tenant_list"):
    """What each tenant has that is connected, or of which something is known."""

    tenants: list[TenantInfo]
