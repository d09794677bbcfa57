"""Caps on device pools and what they hold: bytes and entries, by kind, by tenant and in all; one formula for all."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kvledger.kinds import Kind
from kvledgerd.core.config import DeviceCaps
from kvledgerd.core.state import State

__all__ = ["Passed", "Usage", "device_counters", "passed", "usage"]


class Usage(NamedTuple):
    """Pages, in bytes, and entries."""

    bytes: int = 0
    objects: int = 0

    def plus(self, other: "Usage") -> "Usage":
        """Return both together."""
        return Usage(self.bytes + other.bytes, self.objects + other.objects)


class Passed(NamedTuple):
    """A cap that is passed: its name, the kind it is about if it is about one, what would be there, and the cap."""

    name: str
    kind: Kind | None
    have: int
    cap: int


def usage(state: State) -> dict[tuple[str, Kind], Usage]:
    """Return what lies in device pools by tenant and kind, asked and resident."""
    found: dict[tuple[str, Kind], Usage] = {}
    for pool in state.device_pools.values():
        for group, places in pool.places.items():
            key = (pool.known.tenant, pool.known.layout.groups[group].kind)
            found[key] = found.get(key, Usage()).plus(Usage(places.live_bytes, pool.counts[group]))
    return found


def passed(caps: DeviceCaps, used: Mapping[tuple[str, Kind], Usage], tenant: str) -> Passed | None:
    """Return the narrowest cap that this usage passes for a tenant, None if it passes none."""
    scopes = ((*scope, have, cap) for scope, have, cap in _scopes(caps, used, tenant))
    return next((Passed(name, kind, have, cap) for name, kind, have, cap in scopes if have > cap), None)


def _scopes(
    caps: DeviceCaps, used: Mapping[tuple[str, Kind], Usage], tenant: str
) -> Iterator[tuple[tuple[str, Kind | None], int, int]]:
    mine = {kind: one for (owner, kind), one in used.items() if owner == tenant}
    for kind, one in sorted(mine.items()):
        yield ("kind_bytes", kind), one.bytes, caps.kind_bytes.get(kind, one.bytes)
        yield ("kind_objects", kind), one.objects, caps.kind_objects.get(kind, one.objects)
    for name, some in (("tenant_", mine.values()), ("", used.values())):
        yield (f"{name}bytes", None), sum(u.bytes for u in some), caps.tenant_bytes if name else caps.bytes
        yield (f"{name}objects", None), sum(u.objects for u in some), caps.tenant_objects if name else caps.objects


def device_counters(state: State) -> dict[str, int]:
    """Return device pools in numbers: fragmentation is 1 - live / set aside, by kind, in thousandths."""
    pools = state.device_pools.values()
    counters = {
        "device_pools": len(pools),
        "device_bytes": sum(pool.added.bytes for pool in pools),
        "device_copies": sum(len(pool.copies) for pool in pools),
        "device_units": len(state.asked),
    }
    for kind in Kind:
        regions = [r for p in pools for g, r in p.places.items() if p.known.layout.groups[g].kind is kind]
        live, free = sum(r.live_bytes for r in regions), sum(r.free_bytes for r in regions)
        counters[f"device_live_bytes.{kind.name}"] = live
        counters[f"device_free_bytes.{kind.name}"] = free
        counters[f"device_fragmentation.{kind.name}"] = 1000 * free // (live + free) if live + free else 0
    return counters
