"""kvledger: one authority over the KV cache of a node, for models whose layers keep different kinds of state.

Names are imported when they are first used: a daemon needs the vocabulary without the client, a thread-based engine
the synchronous client without an event loop.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvledger._async.cache import AsyncCache
    from kvledger._async.device_pool import AsyncDevicePool, AsyncDeviceUnit
    from kvledger._async.hit import AsyncHit
    from kvledger._async.topology import AsyncTopology
    from kvledger._async.unit import AsyncUnit
    from kvledger._async.unit_shard import AsyncUnitShard
    from kvledger._sync.cache import Cache
    from kvledger._sync.device_pool import DevicePool, DeviceUnit
    from kvledger._sync.hit import Hit
    from kvledger._sync.topology import Topology
    from kvledger._sync.unit import Unit
    from kvledger._sync.unit_shard import UnitShard
    from kvledger.attached_hit import AttachedHit
    from kvledger.epochs import EpochState
    from kvledger.errors import KVLedgerError, LeaseLost, TopologyLostError
    from kvledger.handle import Handle
    from kvledger.kinds import Form, Kind
    from kvledger.layout import GroupSpec, KernelABI, Layout
    from kvledger.registered import RegisteredLayout
    from kvledger.unit_view import UnitSlot
    from kvledger.verdict import Code, Cut, Exactness, Layer

__all__ = [
    "AsyncCache",
    "AsyncDevicePool",
    "AsyncDeviceUnit",
    "AsyncHit",
    "AsyncTopology",
    "AsyncUnit",
    "AsyncUnitShard",
    "AttachedHit",
    "Cache",
    "Code",
    "Cut",
    "DevicePool",
    "DeviceUnit",
    "EpochState",
    "Exactness",
    "Form",
    "GroupSpec",
    "Handle",
    "Hit",
    "KVLedgerError",
    "KernelABI",
    "Kind",
    "Layer",
    "Layout",
    "LeaseLost",
    "RegisteredLayout",
    "Topology",
    "TopologyLostError",
    "Unit",
    "UnitShard",
    "UnitSlot",
]

_HOMES = {
    "kvledger._async.cache": ("AsyncCache",),
    "kvledger._async.device_pool": ("AsyncDevicePool", "AsyncDeviceUnit"),
    "kvledger._async.hit": ("AsyncHit",),
    "kvledger._async.topology": ("AsyncTopology",),
    "kvledger._async.unit": ("AsyncUnit",),
    "kvledger._async.unit_shard": ("AsyncUnitShard",),
    "kvledger._sync.cache": ("Cache",),
    "kvledger._sync.device_pool": ("DevicePool", "DeviceUnit"),
    "kvledger._sync.hit": ("Hit",),
    "kvledger._sync.topology": ("Topology",),
    "kvledger._sync.unit": ("Unit",),
    "kvledger._sync.unit_shard": ("UnitShard",),
    "kvledger.attached_hit": ("AttachedHit",),
    "kvledger.epochs": ("EpochState",),
    "kvledger.errors": ("KVLedgerError", "LeaseLost", "TopologyLostError"),
    "kvledger.handle": ("Handle",),
    "kvledger.kinds": ("Form", "Kind"),
    "kvledger.layout": ("GroupSpec", "KernelABI", "Layout"),
    "kvledger.registered": ("RegisteredLayout",),
    "kvledger.unit_view": ("UnitSlot",),
    "kvledger.verdict": ("Code", "Cut", "Exactness", "Layer"),
}


def __getattr__(name: str) -> Any:
    for home, found in _HOMES.items():
        if name in found:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'kvledger' has no attribute {name!r}")
