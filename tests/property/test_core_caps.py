"""Random histories under every cap there is: none is ever passed, in bytes or entries, by kind, tenant or in all.

`World` walks the invariants after every event, which ask the same formula that admits. So the test also counts what is
there by itself, from the cells, and checks that each cap was reached by some history: a cap that nothing comes near
proves nothing.
"""

import random

import pytest

from kvledger.kinds import Kind
from kvledger.wire.replies import Failed, Reserved
from kvledger.wire.requests import Evict, Offload, Release, Reserve, Restore
from kvledgerd.core.config import PAGE, CoreConfig
from kvledgerd.core.index import ARENA
from kvledgerd.core.placement.pools import paged
from kvledgerd.core.structure import record_bytes
from support.layouts import compressed, indexer, tail, window
from support.world import World, layout

BLOCK = 16
LAYOUTS = [
    layout(compressed("C", BLOCK), indexer("X", BLOCK), window("S", 8, 12), block_tokens=BLOCK),
    layout(compressed("C", BLOCK), tail("T", 4, 8), block_tokens=BLOCK, weights_digest="other"),
]
C, T, S, X, D = Kind.COMPRESSED_KV, Kind.UNCOMPRESSED_TAIL, Kind.SWA_WINDOW, Kind.INDEXER_STATE, Kind.DISK_PREFIX
PROMPTS = [[1000 * n + t for t in range(64)] for n in range(5)]
DEEDS = ("store", "store", "write", "write", "keep", "keep", "release", "restore", "evict", "forget")
CAPS = {
    "memory_bytes": 40 * PAGE,
    "memory_entries": 24,
    "tenant_bytes": 24 * PAGE,
    "tenant_entries": 14,
    "kind_bytes": {C: 7 * PAGE, S: 6 * PAGE, T: 3 * PAGE},
    "kind_entries": {X: 5, S: 5, T: 2},
    "disk_bytes": 50 * PAGE,
    "disk_entries": 20,
    "disk_tenant_bytes": 30 * PAGE,
    "disk_tenant_entries": 12,
    "disk_kind_bytes": {C: 12 * PAGE, D: 8 * PAGE},
    "disk_kind_entries": {X: 5, S: 4, T: 4, D: 3},
}


def history(seed: int, caps: dict) -> tuple[World, dict[str, int]]:
    """Run one history; return its world and how often each cap refused something."""
    chance, refused = random.Random(seed), {}
    world = World(CoreConfig(arena_bytes=4 * PAGE, **({"memory_bytes": 64 * PAGE} | caps)))
    users = [world.engine(f"{tenant}{n}", tenant) for tenant in ("one", "two") for n in range(2)]
    numbers = {user.caller.engine: [user.register(what) for what in LAYOUTS] for user in users}
    leases = []
    for _ in range(90):
        user = chance.choice(users)
        number, prompt = chance.choice(numbers[user.caller.engine]), chance.choice(PROMPTS)
        at = user.boundary(number, prompt, chance.choice([16, 32, 48, 64]))
        deed = chance.choice(
            ["store", "store", "write", "write", "keep", "keep", "release", "restore", "evict", "forget"]
        )
        reply = None
        if deed in {"store", "write"}:
            reply = user.ask(Reserve(number, at))
            if isinstance(reply, Reserved):
                user.fill(reply)
                user.commit(reply)
                if deed == "write":
                    reply = user.ask(Offload(number, at, drop_memory=chance.random() < 0.3))
        elif deed == "keep":
            found = user.acquire(number, prompt, leave=0)
            leases += [(user, found.lease)] if found.lease else []
        elif deed == "release" and leases:
            holder, lease = leases.pop(chance.randrange(len(leases)))
            holder.ok(Release(lease))
        elif deed == "restore":
            reply = user.ask(Restore(number, at))
        elif deed == "evict":
            user.ask(Evict(C, number, at, disk=chance.random() < 0.5))
        else:
            user.ask(Evict(D, number, at))
        if isinstance(reply, Failed) and reply.code == "capacity":
            assert all((reply.message, reply.remedy))
            refused[reply.field] = refused.get(reply.field, 0) + 1
        check(world, caps)
    assert world.replayed().digest() == world.state.digest()
    return world, refused


def check(world: World, caps: dict) -> None:
    """Count from the cells alone what is in memory and on disk, and compare it with every cap."""
    memory: dict[tuple[str, Kind], list[int]] = {}
    disk: dict[tuple[str, Kind], list[int]] = {}
    for cell in world.state.cells.values():
        known = world.state.layouts[cell.layout]
        for slot in range(len(cell.states)):
            kind, length = known.slot_kinds[slot], known.length_of(cell, slot)
            if cell.memory >> slot & 1:
                assert world.state.arenas[cell.word(slot, ARENA)].kind is kind
                memory.setdefault((known.tenant, kind), []).append(paged(length))
            if cell.disk >> slot & 1:
                disk.setdefault((known.tenant, kind), []).append(record_bytes(length))
        if cell.manifest is not None:
            disk.setdefault((known.tenant, D), []).append(record_bytes(cell.manifest[2]))
    for prefix, found in (("", memory), ("disk_", disk)):
        for (_, kind), sizes in found.items():
            assert sum(sizes) <= caps.get(f"{prefix}kind_bytes", {}).get(kind, 1 << 40)
            assert len(sizes) <= caps.get(f"{prefix}kind_entries", {}).get(kind, 1 << 40)
        for tenant in ("one", "two"):
            mine = [size for (owner, _), sizes in found.items() if owner == tenant for size in sizes]
            assert sum(mine) <= caps.get(f"{prefix}tenant_bytes", 1 << 40)
            assert len(mine) <= caps.get(f"{prefix}tenant_entries", 1 << 40)
        every = [size for sizes in found.values() for size in sizes]
        assert sum(every) <= caps.get(f"{prefix or 'memory_'}bytes", 1 << 40)
        assert len(every) <= caps.get(f"{prefix or 'memory_'}entries", 1 << 40)
    arenas = world.state.arenas.values()
    assert sum(a.bytes for a in arenas) <= caps.get("memory_bytes", 1 << 40)
    for tenant in ("one", "two"):
        assert sum(a.bytes for a in arenas if a.tenant == tenant) <= caps.get("tenant_bytes", 1 << 40)


@pytest.mark.parametrize("seed", range(6))
def test_no_history_passes_a_cap(seed):
    """With all caps at once, whatever is stored, leased, written, read or dropped, no cap is passed."""
    history(seed, CAPS)


@pytest.mark.parametrize("name", CAPS)
def test_each_cap_alone_is_kept_and_named(name):
    """With one cap only, some history comes up against it and is told its name, and it is kept."""
    seeds = (history(seed, {name: CAPS[name]})[1] for seed in range(4))
    assert any(name in refused for refused in seeds)
