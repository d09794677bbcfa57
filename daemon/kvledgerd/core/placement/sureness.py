"""What each kind is sure of: quotas that were fixed or have moved, floors without one, and what nobody else leaves.

Promises are asked about by what grants memory (`growth`), by what fixes quotas (`decide_quota`) and by admission, which
refuses at once what all of a tenant's memory could not hold. All are sums over arenas and tables, never over the cache.
"""

from kvledger.kinds import Kind
from kvledgerd.core.config import DRILL_TENANT, PAGE, CoreConfig
from kvledgerd.core.placement.pools import paged
from kvledgerd.core.state import State

__all__ = [
    "ARENAS_MAX",
    "MEMORY_KINDS",
    "SHARES",
    "awaited_bytes",
    "firm_bytes",
    "floor_bytes",
    "held_bytes",
    "most_bytes",
    "present_tenants",
    "sure_bytes",
    "sure_elsewhere",
    "tenants_with_arenas",
    "usual_bytes",
]

ARENAS_MAX = 256
SHARES = 16
_DRILL_BYTES = 16 * PAGE
MEMORY_KINDS = tuple(kind for kind in Kind if kind is not Kind.DISK_PREFIX)


def usual_bytes(config: CoreConfig, tenant: str = "") -> int:
    """Return the size of an arena that no large object asks for, bytes: what a kind without quota is sure of."""
    if tenant == DRILL_TENANT:
        return _DRILL_BYTES
    share = config.memory_bytes // SHARES
    size = max(min(config.arena_bytes, share), paged(config.memory_bytes // ARENAS_MAX))
    return size - size % PAGE


def held_bytes(state: State, tenant: str, kind: Kind) -> int:
    """Return the bytes of the arenas of one kind, those being made included."""
    return sum(a.bytes for a in state.arenas.values() if a.kind is kind and a.tenant == tenant)


def sure_bytes(state: State, tenant: str, kind: Kind) -> int:
    """Return what nobody can take from a kind: its quota, or without one what `floor_bytes` says."""
    quota = state.quotas.get((tenant, int(kind)))
    return floor_bytes(state, tenant, kind) if quota is None else quota.bytes


def floor_bytes(state: State, tenant: str, kind: Kind) -> int:
    """Return what a kind without quota is sure of: one arena if a layout of the tenant brings it, else nothing."""
    brought = any(int(kind) in known.kinds for known in state.layouts.values() if known.tenant == tenant)
    return usual_bytes(state.config, tenant) if brought else 0


def firm_bytes(state: State, tenant: str, kind: Kind) -> int:
    """Return what a kind keeps even under pressure: what an operator fixed, else what `floor_bytes` says."""
    quota = state.quotas.get((tenant, int(kind)))
    return quota.bytes if quota is not None and quota.fixed else floor_bytes(state, tenant, kind)


def sure_elsewhere(state: State, tenant: str) -> int:
    """Return what other tenants are sure of, those that are still awaited included."""
    others = [other for other in present_tenants(state, tenant) if other != tenant]
    return awaited_bytes(state, tenant) + sum(
        sure_bytes(state, other, kind) for other in others for kind in MEMORY_KINDS
    )


def tenants_with_arenas(state: State) -> list[str]:
    """Return the tenants that have arenas, the daemon's own left out."""
    return list(dict.fromkeys(a.tenant for a in state.arenas.values() if a.tenant != DRILL_TENANT))


def present_tenants(state: State, tenant: str) -> list[str]:
    """Return the tenant that asks, and those that stored and have an arena, an engine or a quota that was fixed.

    Who stored once and has none of these may be gone for good, and counts as one of those to come: else all that there
    ever were would be owed their floors for ever.
    """
    holding = dict.fromkeys(arena.tenant for arena in state.arenas.values())
    holding |= dict.fromkeys(engine.tenant for engine in state.engines.values())
    holding |= dict.fromkeys(owner for (owner, _), quota in state.quotas.items() if quota.fixed)
    return [one for one in dict.fromkeys((tenant, *state.orders)) if one == tenant or one in holding]


def awaited_bytes(state: State, tenant: str) -> int:
    """Return what is kept for tenants that are yet to come, the one that asks left out, bytes."""
    here = [one for one in present_tenants(state, tenant) if one != DRILL_TENANT]
    return max(0, state.config.tenants - len(here)) * len(MEMORY_KINDS) * usual_bytes(state.config)


def most_bytes(state: State, tenant: str, kind: Kind) -> int:
    """Return a bound on what a kind could ever hold: all of its tenant's memory but what other kinds keep in any case.

    It takes no walk over the cache, so it is asked before anything has to go.
    """
    use, caps = state.memory_use(tenant, kind), state.config.memory()
    kept = sum(
        min(sure_bytes(state, tenant, other), firm_bytes(state, tenant, other), held_bytes(state, tenant, other))
        for other in MEMORY_KINDS
        if other is not kind
    )
    fresh = max(0, min(caps.bytes - use.whole.bytes, caps.tenant_bytes - use.tenant.bytes))
    return use.tenant.bytes - kept + fresh
