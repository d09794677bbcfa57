"""Making room must not take away what the newcomer stands on."""

import random

import pytest

from kvledger.kinds import Form, Kind
from kvledgerd.core.config import CoreConfig
from support.world import World, group, layout


def small_world() -> World:
    """Memory for four blocks of rows and four states."""
    return World(CoreConfig(memory_bytes=128 << 10, arena_bytes=16 << 10, disk_bytes=1 << 20))


def plain():
    """One group of rows and one state; a block of rows is one page of memory."""
    rows = group("rows", Kind.COMPRESSED_KV, rows_per_page=16, row_bytes=256, page_bytes=4096)
    return layout(rows, group("state", Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT, page_bytes=4096), block_tokens=16)


@pytest.mark.parametrize("others", range(9))
def test_a_block_without_objects_may_vanish_while_a_unit_is_reserved_below_it(others):
    """A reservation succeeds when making room for it prunes a block of its own path."""
    world = small_world()
    user = world.engine()
    number = user.register(plain())
    old, shared = list(range(64)), [*range(16), *range(500, 548)]
    user.store(number, old, 64)
    user.evict(number, old, 64, "rows", block=0)
    for other in range(others):
        user.store(number, list(range(1000 * other + 1000, 1000 * other + 1064)), 64)

    assert user.store(number, shared, 64).stored == 5

    assert user.acquire(number, [*shared, 1]).offers[0].position == 64
    assert world.replayed().digest() == world.state.digest()


def test_the_next_arena_is_as_large_as_what_found_no_room():
    """A unit of one very large and one smaller object is admitted into two arenas that fit into memory together."""
    world = World(CoreConfig(memory_bytes=32 << 20, arena_bytes=1 << 20, disk_bytes=1 << 20))
    user = world.engine()
    wide = group("wide", Kind.COMPRESSED_KV, rows_per_page=16, row_bytes=1 << 20, page_bytes=16 << 20)
    narrow = group("narrow", Kind.COMPRESSED_KV, rows_per_page=16, row_bytes=256 << 10, page_bytes=4 << 20)
    number = user.register(layout(wide, narrow, block_tokens=16))

    assert user.store(number, list(range(16)), 16).stored == 2


@pytest.mark.parametrize("seed", range(20))
def test_whatever_takes_freed_memory_moves_every_generation_under_it(seed):
    """An old handle never fits again once any page of its bytes belongs to another object."""
    chance = random.Random(seed)
    sizes = {"rows": 4096, "wide": 3 * 4096, "state": 5 * 4096}
    world = World(CoreConfig(memory_bytes=64 * 4096, arena_bytes=16 * 4096, disk_bytes=1 << 20))
    user = world.engine()
    groups = [
        group(name, Kind.COMPRESSED_KV, rows_per_page=16, row_bytes=size // 16, page_bytes=size)
        for name, size in sizes.items()
    ]
    numbers = [user.register(layout(one, block_tokens=16, model=one.name)) for one in groups]
    old: list[tuple[int, int, int, int]] = []
    for round_ in range(60):
        number = chance.choice(numbers)
        user.store(number, list(range(1000 * round_, 1000 * round_ + 16)), 16)
        live = {}
        for arena in world.state.arenas:
            for offset, length, generation in world.state.generations(arena):
                live[arena, offset, length] = generation
                old.append((arena, offset, length, generation))
        owner = {(a, p): g for (a, o, n), g in live.items() for p in range(o, o + n, 4096)}
        for arena, offset, length, generation in old:
            pages = [(arena, page) for page in range(offset, offset + length, 4096)]
            fits = all(world.generations[page] == generation for page in pages)
            assert not fits or all(owner.get(page, generation) == generation for page in pages)
