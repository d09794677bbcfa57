"""What is full: memory by kind against its cap, disk, and the pages that engines lend."""

from collections.abc import Mapping
from typing import NamedTuple

from kvledger.wire.quotas import QuotaInfo
from kvledger.wire.tenants import TenantInfo
from kvledgerd.page.live import Now
from kvledgerd.page.words import KINDS

__all__ = ["Bar", "Occupied", "occupied"]


class Bar(NamedTuple):
    """One bar, bytes: `live` of them in use, `held` set aside, of `cap`; `sure` is what nobody takes away.

    `cap` is 0 where none is known, and the bar is then drawn against what is set aside.
    """

    name: str
    live: int
    held: int
    cap: int
    sure: int = 0
    fixed: bool = False


class Occupied(NamedTuple):
    """All bars of the page: the whole of memory, each kind, disk, each kind in device pools.

    Where there are several tenants, `tenants` has the memory and the disk of each, of what it may have at most.
    """

    memory: Bar
    kinds: list[Bar]
    disk: Bar
    devices: list[Bar]
    tenants: list[tuple[Bar, Bar]]


def occupied(now: Now) -> Occupied | None:
    """Return the bars, None while the daemon does not answer."""
    if now.look is None:
        return None
    counters, cap = now.look.report.counters, now.look.report.counters["memory_cap_bytes"]
    kinds = [_kind(quota, counters, cap) for quota in now.look.quotas]
    devices = []
    for kind in KINDS:
        live, free = (counters.get(f"device_{what}_bytes.{kind}", 0) for what in ("live", "free"))
        if live + free:
            devices.append(Bar(kind, live, live + free, live + free))
    live = sum(bar.live for bar in kinds)
    memory = Bar("memory", live, counters["arena_bytes"], cap)
    dead = counters.get("disk_dead_bytes", 0)
    disk = Bar("disk", counters["disk_bytes"], counters["disk_bytes"] + dead, counters["disk_cap_bytes"])
    tenants = [_tenant(one) for one in now.tenants] if len(now.tenants) > 1 else []
    return Occupied(memory, kinds, disk, devices, tenants)


def _kind(quota: QuotaInfo, counters: Mapping[str, int], cap: int) -> Bar:
    """Return the bar of a kind: of all tenants what is held, of the one that asks what it is sure of."""
    live, free = (counters[f"{what}_bytes.{quota.kind.name}"] for what in ("live", "free"))
    return Bar(quota.kind.name, live, live + free, cap, quota.sure_bytes, quota.fixed)


def _tenant(one: TenantInfo) -> tuple[Bar, Bar]:
    memory = Bar(one.name, one.memory_bytes, one.memory_bytes, one.memory_cap_bytes)
    return memory, Bar(one.name, one.disk_bytes, one.disk_bytes, one.disk_cap_bytes)
