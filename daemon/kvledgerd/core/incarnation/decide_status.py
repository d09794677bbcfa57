"""The cache in numbers. Operators are told of all of it, everybody else of what their own tenant has.

What a tenant is told holds no sum over all tenants, no digest and no sequence number: each would tell it of the others.
"""

from kvledger.kinds import Kind
from kvledger.wire.replies import StatusReport
from kvledger.wire.requests import Status
from kvledger.wire.tenants import TenantInfo, TenantList, Tenants
from kvledgerd.core.commands import Ask
from kvledgerd.core.config import DRILL_TENANT
from kvledgerd.core.decision import Decision
from kvledgerd.core.device_pools.device_caps import device_counters
from kvledgerd.core.lookup.pace import restored_per_second
from kvledgerd.core.placement.compaction import fragmentation
from kvledgerd.core.placement.pools import Pool
from kvledgerd.core.state import State
from kvledgerd.core.topology.pinned import pinned_bytes, pinned_cells

__all__ = ["status", "tenants"]


def status(state: State, ask: Ask, request: Status) -> Decision:
    """Return the cache in numbers; the server fills in what it alone knows."""
    del request
    if not ask.caller.operator:
        return Decision(reply=StatusReport(state.incarnation, 0, "", _own(state, ask.caller.tenant)))
    counters = _whole(state)
    return Decision(reply=StatusReport(state.incarnation, 0, f"{state.digest():016x}", counters, state.tier.notes()))


def tenants(state: State, ask: Ask, request: Tenants) -> Decision:
    """Return what each tenant has, those first that were known first."""
    del ask, request
    known = dict.fromkeys((*state.orders, *(engine.tenant for engine in state.engines.values())))
    return Decision(reply=TenantList([_info(name, _own(state, name)) for name in known if name != DRILL_TENANT]))


def _info(name: str, own: dict[str, int]) -> TenantInfo:
    held = (own["engines"], own["leases"], own["layouts"], own["objects_in_memory"])
    sizes = (own["arena_bytes"], own["memory_cap_bytes"], own["disk_bytes"], own["disk_cap_bytes"])
    return TenantInfo(name, *held, *sizes)


def _whole(state: State) -> dict[str, int]:
    return {
        "objects": state.objects,
        "cells": len(state.cells),
        "blocks": len(state.nodes),
        "layouts": len(state.layouts),
        "engines": len(state.engines),
        "leases": len(state.leases),
        "units": len(state.units),
        "jobs": len(state.jobs),
        "topologies": len(state.topologies),
        "topologies_broken": sum(1 for one in state.topologies.values() if one.lost),
        "topology_bytes": pinned_bytes(state, pinned_cells(state).values()),
        "arenas": len(state.arenas),
        "arena_bytes": state.arena_bytes(),
        "memory_cap_bytes": state.config.memory_bytes,
        "disk_bytes": state.disk_bytes,
        "disk_cap_bytes": state.config.disk_bytes,
        "disk_quantised_records": state.quantised_records,
        "disk_quantised_bytes": state.quantised_bytes,
        "restored_bytes_per_second": restored_per_second(state),
        "degraded": int(bool(state.degraded)),
        "material_unused": state.material_unused,
        "stored_unusable": state.stored_unusable,
        **_kinds({kind: [pool for (_, k), pool in state.pools.items() if k is kind] for kind in Kind}),
        **device_counters(state),
        **state.tier.counters(),
    }


def _own(state: State, tenant: str) -> dict[str, int]:
    engines = [engine for engine in state.engines.values() if engine.tenant == tenant]
    topologies = [one for one in state.topologies.values() if one.tenant == tenant]
    memory, config = state.memory_use(tenant, Kind.DISK_PREFIX).tenant, state.config
    return {
        "objects_in_memory": memory.entries,
        "layouts": sum(1 for known in state.layouts.values() if known.tenant == tenant),
        "engines": len(engines),
        "leases": sum(len(engine.leases) for engine in engines),
        "units": sum(len(engine.units) for engine in engines),
        "topologies": len(topologies),
        "topologies_broken": sum(1 for one in topologies if one.lost),
        "arenas": sum(1 for arena in state.arenas.values() if arena.tenant == tenant),
        "arena_bytes": memory.bytes,
        "memory_cap_bytes": min(config.tenant_bytes, config.memory_bytes),
        "disk_bytes": state.records_use(tenant, Kind.DISK_PREFIX).tenant.bytes,
        "disk_cap_bytes": min(config.disk_tenant_bytes, config.disk_bytes),
        "degraded": int(bool(state.degraded)),
        **_kinds({kind: [state.pool(tenant, kind)] for kind in Kind}),
    }


def _kinds(pools: dict[Kind, list[Pool]]) -> dict[str, int]:
    counters: dict[str, int] = {}
    for kind, mine in pools.items():
        counters[f"live_bytes.{kind.name}"] = sum(pool.live_bytes for pool in mine)
        counters[f"free_bytes.{kind.name}"] = sum(pool.free_bytes for pool in mine)
        counters[f"fragmentation.{kind.name}"] = fragmentation(mine)
    return counters
