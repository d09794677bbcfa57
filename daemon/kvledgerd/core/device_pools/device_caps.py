"""What device pools hold, by tenant and kind, and in numbers for people.

All device pools together are one place beside memory and disk, with the formula of `kvledgerd.core.placement.caps`;
what one pool may hold of a group are its pages.
"""

from kvledger.kinds import Kind
from kvledgerd.core.placement.caps import Amount, total
from kvledgerd.core.state import State

__all__ = ["device_counters", "device_use"]


def device_use(state: State) -> dict[tuple[str, Kind], Amount]:
    """Return the pages of objects in device pools, asked and resident, and their number, by tenant and kind."""
    found: dict[tuple[str, Kind], Amount] = {}
    for pool in state.device_pools.values():
        for group, places in pool.places.items():
            key = (pool.known.tenant, pool.known.layout.groups[group].kind)
            found[key] = total((found.get(key, Amount()), Amount(places.live_bytes, pool.counts[group])))
    return found


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
