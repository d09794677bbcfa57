"""Field cases about numbers: what is counted is what happened, and what is over is forgotten."""

import gc
import random
import tracemalloc
from collections import Counter

import pytest

from kvledger.kinds import Kind
from kvledger.wire.replies import Failed
from kvledger.wire.requests import Evict, Offload, Release, Status
from kvledger_storage import events
from kvledgerd.core.apply import apply
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.structure import record_bytes
from support.layouts import pick
from support.world import World

LAYOUTS = ["CM", "CXST", "TSXC"]
SIZES = (256, 512, 768)


def small(**fields):
    """A world whose memory holds a few prompts only, so that everything that can happen does."""
    kinds = dict.fromkeys((Kind.COMPRESSED_KV, Kind.INDEXER_STATE), 16 << 12)
    config = {"memory_bytes": 64 << 20, "arena_bytes": 1 << 20, "disk_bytes": 1 << 20, "kind_bytes": kinds}
    return config | fields


def prompt(number):
    """A prompt that no other number begins like."""
    return [number * 10_000 + t for t in range(800)]


def history(world, user, number, chance, steps):
    """Do this and that with a few prompts; yield after each step what was asked and answered."""
    for _ in range(steps):
        tokens, end = prompt(chance.randrange(6)), chance.choice(SIZES)
        match chance.randrange(6):
            case 0 | 1:
                reserved = user.ask_reserve(number, tokens, end)
                if not isinstance(reserved, Failed):
                    user.fill(reserved)
                    yield user.commit(reserved)
            case 2:
                acquired = user.acquire(number, tokens)
                yield acquired
                if acquired.lease and chance.random() < 0.7:
                    user.ok(Release(acquired.lease))
            case 3:
                user.ask(Offload(number, user.boundary(number, tokens, end), drop_memory=chance.random() < 0.5))
            case 4:
                user.restore(number, tokens, end)
            case _:
                known = world.state.layouts[number].layout
                at = user.boundary(number, tokens, 256)
                user.ask(Evict(chance.choice(known.groups).kind, number, at, disk=chance.random() < 0.3))


def counted(state):
    """Return the counters of a status report that a walk over the state can count by itself."""
    found = Counter()
    for cell in state.cells.values():
        known = state.layouts[cell.layout]
        found["objects"] += (cell.memory | cell.disk).bit_count()
        found["disk_bytes"] += record_bytes(cell.manifest[2]) if cell.manifest else 0
        for slot in range(len(cell.states)):
            size = known.length_of(cell, slot)
            found["disk_bytes"] += record_bytes(size) if cell.disk >> slot & 1 else 0
            if cell.memory >> slot & 1:
                found[f"live_bytes.{known.slot_kinds[slot].name}"] += -(-size // 4096) * 4096
    found["leases"], found["cells"], found["blocks"] = len(state.leases), len(state.cells), len(state.nodes)
    return found


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("seed", range(2))
def test_l49_p29_counters_are_those_of_the_log_and_of_the_state(letters, seed):
    """After every step each counter is what a walk over the state counts, and what a replay of the log arrives at."""
    world, chance = World(CoreConfig(**small())), random.Random(seed)
    user = world.engine()
    number = user.register(pick(letters))
    for turn, _ in enumerate(history(world, user, number, chance, 50)):
        counters = user.ok(Status()).counters
        wanted = counted(world.state)
        assert {name: counters[name] for name in wanted} == dict(wanted)
        if turn % 10 == 0:
            again = world.replayed()
            assert counted(again) == wanted
            assert again.digest() == world.state.digest()


@pytest.mark.parametrize("letters", LAYOUTS)
def test_l49_hit_tokens_in_the_log_are_those_that_were_answered(letters):
    """The hit rate that the log tells is that of the replies: misses count as misses, and hash hits are apart."""
    world, chance = World(CoreConfig(**small())), random.Random(49)
    user = world.engine()
    number = user.register(pick(letters))
    asked = Counter()
    for reply in history(world, user, number, chance, 100):
        if hasattr(reply, "usable_tokens"):
            asked.update(lookups=1, hash=reply.hash_tokens, usable=reply.usable_tokens, misses=not reply.offers)
    told = Counter()
    for event in world.events("looked_up.1"):
        told.update(lookups=1, hash=event.hash_tokens, usable=event.usable_tokens, misses=not event.offers)
    assert told == asked
    assert 0 < told["misses"] < told["lookups"]
    assert told["hash"] >= told["usable"] > 0


class Forgetful(World):
    """A world that keeps no log, so that what grows in it is the state."""

    def record(self, new):
        """Apply events as a replay would, and forget them."""
        for event in new:
            apply(self.state, events.decode(events.encode(event, 0, "test")).event)


@pytest.mark.parametrize("letters", [LAYOUTS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in LAYOUTS[1:])])
def test_p41_what_is_over_takes_no_memory(letters):
    """Stored, leased, written, restored, evicted and forgotten by the hundred, prompts leave nothing in the state."""
    world = Forgetful(CoreConfig(**small()), check=False)
    user = world.engine()
    number = user.register(pick(letters))
    sizes = []
    tracemalloc.start()
    try:
        for turn in range(3):
            for name in range(1000 * turn, 1000 * turn + 20):
                live_and_die(world, user, number, prompt(name))
            for kept in (world.rings, world.memory, world.generations):
                kept.clear()
            world.state.digest()
            gc.collect()
            sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert (world.state.cells, world.state.nodes, world.state.objects) == ({}, {}, 0)
    # Two rounds fill free lists and tables, and how the last 1,024 jobs ended is kept, below 1 KB a prompt; what is
    # known of a prompt itself takes some 4 KB.
    assert sizes[2] - sizes[1] < 20 * 1500, sizes


def live_and_die(world, user, number, tokens):
    """Let a prompt have everything happen to it that can happen, until nothing of it is left."""
    user.store(number, tokens, 512)
    user.ok(Release(user.acquire(number, tokens).lease))
    user.offload(number, tokens, 512)
    user.restore(number, tokens, 512)
    at = user.boundary(number, tokens, 512)
    for kind in {group.kind: None for group in world.state.layouts[number].layout.groups}:
        user.ok(Evict(kind, number, at, disk=True))
