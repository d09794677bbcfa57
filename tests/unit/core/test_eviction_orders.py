"""Which copies make room: by kind, first what has proven no use, leaves before what they stand on."""

import pytest

from kvledger.kinds import Form, Kind
from kvledger.wire.requests import Release
from kvledgerd.core.config import PAGE, CoreConfig
from support.layouts import pick
from support.world import World, group, layout

BLOCK = 16
ROWS = group("C", Kind.COMPRESSED_KV, rows_per_page=BLOCK)
WINDOW = group("S", Kind.SWA_WINDOW, Form.PAGED_WINDOW, rows_per_page=BLOCK, window=BLOCK)
STATE = group("M", Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT)


def prompt(number: int, blocks: int = 2) -> list[int]:
    """A prompt of its own."""
    return [1000 * number + token for token in range(BLOCK * blocks)]


def small(what, **pages):
    """A world with so many pages of each kind, and an engine with its layout."""
    caps = {Kind[name]: count * PAGE for name, count in pages.items()}
    world = World(CoreConfig(memory_bytes=64 * PAGE, arena_bytes=4 * PAGE, disk_bytes=1 << 20, kind_bytes=caps))
    user = world.engine()
    return user, user.register(what)


def position(user, number, tokens) -> int:
    """How far a prompt can be resumed; the lease is given back."""
    found = user.acquire(number, tokens, leave=0)
    if found.lease:
        user.ok(Release(found.lease))
    return found.usable_tokens


def went(world) -> list[str]:
    """The groups of what made room, in the order in which it was named."""
    return [name for name, reason in world.evicted() if reason == "room"]


def test_the_leaf_of_the_path_that_was_used_least_recently_goes_first():
    """A look-up makes a whole path young, though only its end is noted: the other path loses its last block."""
    user, number = small(layout(ROWS, block_tokens=BLOCK), COMPRESSED_KV=4)
    user.store(number, prompt(1))
    user.store(number, prompt(2))
    assert position(user, number, prompt(1)) == 2 * BLOCK
    user.store(number, prompt(3, 1))
    assert [position(user, number, prompt(n)) for n in (1, 2)] == [2 * BLOCK, BLOCK]


def test_a_block_at_which_look_ups_end_outlives_what_was_behind_it():
    """When the last block behind a junction goes, the junction is as young as the look-up that ended at it."""
    user, number = small(layout(ROWS, block_tokens=BLOCK), COMPRESSED_KV=4)
    user.store(number, prompt(1))
    user.store(number, prompt(2))
    assert position(user, number, prompt(1)[:BLOCK]) == BLOCK
    user.store(number, prompt(3, 1))
    user.store(number, prompt(4, 1))
    assert [position(user, number, prompt(n)) for n in (1, 2)] == [BLOCK, BLOCK]


def test_material_goes_before_what_boundaries_use():
    """Blocks without boundary make room though they are younger; once a boundary stands on them, the older one goes."""
    user, number = small(layout(ROWS, STATE, block_tokens=BLOCK), COMPRESSED_KV=4)
    user.store(number, prompt(1))
    user.store(number, prompt(2), boundary=False)
    user.store(number, prompt(3, 1))
    assert [position(user, number, prompt(n)) for n in (1, 3)] == [2 * BLOCK, BLOCK]
    user.evict(number, prompt(3), BLOCK, "C")
    user.store(number, prompt(2), first_block=0)
    user.store(number, prompt(4, 1))
    assert [position(user, number, prompt(n)) for n in (1, 2, 4)] == [0, 2 * BLOCK, BLOCK]


def test_window_pages_that_no_boundary_asked_for_go_before_those_of_older_boundaries():
    """Inner pages of a long prompt make room for a window, and the boundary of an older prompt still hits."""
    user, number = small(layout(ROWS, WINDOW, STATE, block_tokens=BLOCK), SWA_WINDOW=4)
    user.store(number, prompt(1, 1))
    user.store(number, prompt(2, 3), all_pages=True)
    user.store(number, prompt(3, 1))
    user.store(number, prompt(4, 1))
    assert [position(user, number, prompt(n, 3)) for n in (1, 2, 3, 4)] == [BLOCK, 3 * BLOCK, BLOCK, BLOCK]
    user.store(number, prompt(5, 1))
    assert position(user, number, prompt(1, 1)) == 0


@pytest.mark.parametrize(("kind", "go"), [("COMPRESSED_KV", ["C", "M"]), ("UNCOMPRESSED_TAIL", ["M"])])
def test_room_for_one_kind_is_made_by_that_kind(kind, go):
    """What is dropped for room belongs to the kind that wants it, or is worth nothing without what does."""
    user, number = small(layout(ROWS, STATE, block_tokens=BLOCK), **{kind: 2})
    for one in range(1, 5):
        user.store(number, prompt(one, 1))
    assert sorted(went(user.world)) == sorted(2 * go)


def test_a_block_that_is_on_disk_too_may_follow_its_leaf():
    """Of a path that lies in memory and on disk, every memory copy can make room, not the leaf's alone."""
    user, number = small(layout(ROWS, block_tokens=BLOCK), COMPRESSED_KV=4)
    user.store(number, prompt(1, 3))
    user.offload(number, prompt(1, 3), drop=False)
    user.store(number, prompt(2, 4))
    assert not any(cell.memory and cell.disk for cell in user.world.state.cells.values())
    assert user.acquire(number, prompt(1, 3), leave=0).offers[0].position == 3 * BLOCK


def test_a_restored_path_is_known_as_a_whole():
    """Of a path that comes back again and again each block counts as often as the sampled one before it."""
    world = World(CoreConfig(memory_bytes=1 << 19, arena_bytes=1 << 15, disk_bytes=64 << 20), check=False)
    user, tokens = world.engine(), list(range(256 * 12))
    number = user.register(pick("C"))
    user.store(number, tokens, len(tokens))
    path = world.state.layouts[number].tree.match(user.boundary(number, tokens, len(tokens)).hashes)
    for again in range(3):
        user.offload(number, tokens, len(tokens))
        for other in range(40 if again else 100):
            user.store(number, [10_000 * (100 * again + other + 1) + token for token in range(1024)], 1024)
        user.restore(number, tokens, len(tokens))
    sampled = [node.depth for node in path if world.state.reuse["default"][0].samples(node.hash)]
    known = {node.depth: sum(node.cell(number).usage.to_bytes(8, "big")[-2:]) for node in path}
    assert known[sampled[0]] > 0
    assert {known[depth] for depth in range(sampled[0], len(path) + 1)} == {known[sampled[0]]}
