"""Field cases about want of memory: who makes room for whom, what is refused, and what goes on afterwards."""

import random

import pytest

from kvledger import Cache
from kvledger.errors import CapacityError
from kvledger.kinds import Form, Kind
from kvledger.testing import Daemon
from kvledger.wire.replies import Failed
from kvledger.wire.requests import Describe, Release
from kvledgerd.core.config import PAGE, CoreConfig
from kvledgerd.core.invariants import violations
from support.tiny import check, prompt, store, tiny_layout
from support.world import World, group, layout

BLOCK = 16
KINDS = {
    "C": Kind.COMPRESSED_KV,
    "X": Kind.INDEXER_STATE,
    "S": Kind.SWA_WINDOW,
    "T": Kind.UNCOMPRESSED_TAIL,
}


def member(letter: str, pages: int = 1):
    """A group of a kind whose objects take so many pages of memory."""
    size = {"page_bytes": pages * PAGE}
    match letter:
        case "C":
            return group("C", KINDS["C"], rows_per_page=BLOCK, **size)
        case "X":
            return group("X", KINDS["X"], rows_per_page=BLOCK, coupled_to="C", **size)
        case "S":
            return group("S", KINDS["S"], Form.PAGED_WINDOW, rows_per_page=BLOCK, window=BLOCK, **size)
        case _:
            return group("T", KINDS["T"], Form.SNAPSHOT, **size)


def made(letters: str, pages: int = 1, **fields):
    """A layout of the named kinds, told from others by its name."""
    fields.setdefault("model", f"{letters} of {pages}")
    return layout(*(member(letter, pages) for letter in letters), block_tokens=BLOCK, **fields)


def tokens(number: int, blocks: int = 1) -> list[int]:
    """A prompt of its own."""
    return [number * 10_000 + token for token in range(BLOCK * blocks)]


def usable(user, number: int, words: list[int]) -> int:
    """Tokens that can be resumed now; nothing stays leased."""
    found = user.acquire(number, words, leave=0)
    if found.lease:
        user.ok(Release(found.lease))
    return found.usable_tokens


OTHERS = [(rest, pages) for rest in ("C", "CX", "CS", "CXS") for pages in (1, 3) if (rest, pages) != ("CXS", 1)]
FLOODS = [("CXS", 1), *(pytest.param(*one, marks=pytest.mark.slow) for one in OTHERS)]


@pytest.mark.parametrize(("rest", "pages"), FLOODS)
def test_v07_a_flood_of_states_takes_none_of_what_others_are_sure_of(rest, pages):
    """Hundreds of states of one kind cost an older prefix that has such a state no more than it, and others nothing."""
    arena = 8 * pages
    world = World(CoreConfig(memory_bytes=16 * arena * PAGE, arena_bytes=arena * PAGE, disk_bytes=1 << 20))
    user = world.engine()
    with_it, without = user.register(made(rest + "T", pages)), user.register(made(rest, pages))
    user.store(with_it, tokens(1, 2))
    user.store(without, tokens(2, 2))
    rows = group("C", KINDS["C"], tokens_per_row=BLOCK, rows_per_page=1)
    state = group("T", KINDS["T"], Form.SNAPSHOT, page_bytes=pages * PAGE, coupled_to="C", halo_rows=4)
    flooder = user.register(layout(rows, state, block_tokens=BLOCK, model="flooder"))
    for number in range(300):
        user.store(flooder, [*tokens(3), number], BLOCK + 1)
    assert usable(user, without, tokens(2, 2)) == 2 * BLOCK
    stored = user.ok(Describe(with_it, user.boundary(with_it, tokens(1, 2)))).objects
    groups = world.state.layouts[with_it].layout.groups
    assert {groups[one.group].name for one in stored} == set(rest)
    found = user.acquire(with_it, tokens(1, 2), leave=0)
    assert (found.usable_tokens, found.hash_tokens) == (0, 2 * BLOCK)
    assert "T" in {cut.group for cut in found.cuts}


@pytest.mark.parametrize("span", [1, 2, 3])
def test_p11_inner_pages_go_before_a_page_that_a_boundary_needs(span):
    """A boundary outlives every page of the prompt that its window does not touch, whatever the window's length."""
    window = group("S", KINDS["S"], Form.PAGED_WINDOW, rows_per_page=BLOCK, window=BLOCK * (span - 1) + 2)
    what = layout(member("C"), window, block_tokens=BLOCK)
    length = 8
    caps = {KINDS["S"]: (length + 1) * PAGE}
    world = World(CoreConfig(memory_bytes=1 << 20, arena_bytes=1 << 16, disk_bytes=1 << 20, kind_bytes=caps))
    user = world.engine()
    number = user.register(what)
    user.store(number, tokens(1, length), all_pages=True)
    inner = length - span
    for other in range(inner + 1):
        assert usable(user, number, tokens(1, length)) == length * BLOCK
        user.store(number, tokens(10 + other))
    path = world.state.trees[1].match(user.boundary(number, tokens(1, length)).hashes)
    assert [node.cell(number).memory >> 1 & 1 for node in path] == [0] * inner + [1] * span


def test_v51_a_store_that_is_refused_leaves_its_client_going():
    """What passes a cap is a typed error that names it; the same client then stores less and is told of less."""
    settings = {"kind_bytes": "COMPRESSED_KV=24KiB"}
    with Daemon(memory="8MiB", settings=settings) as daemon, Cache.open(daemon.socket) as cache:
        registered = cache.register(tiny_layout())
        with pytest.raises(CapacityError) as refused:
            store(cache, registered, 1, 98)
        assert (refused.value.field, "raise kind_bytes" in refused.value.remedy) == ("kind_bytes", True)
        store(cache, registered, 1, 48)
        assert check(cache, registered, 1, 48) == 48
        with cache.acquire(registered, prompt(1, 98)) as hit:
            assert hit.tokens == 48
        assert cache.status().counters["units"] == 0


@pytest.mark.parametrize("seed", range(3))
def test_l43_mixed_sizes_for_long_leave_no_room_that_can_not_be_used(seed):
    """While nothing much is leased no store is refused, of whatever size and kind, and nothing leaks."""
    chance = random.Random(seed)
    world = World(CoreConfig(memory_bytes=256 * PAGE, arena_bytes=16 * PAGE, disk_bytes=1 << 20), check=False)
    user = world.engine()
    shapes = [("CXST", 1), ("CT", 3), ("CS", 2), ("C", 5), ("CX", 7)]
    numbers = [user.register(made(letters, pages)) for letters, pages in shapes]
    held: list[int] = []
    for step in range(400):
        reply = user.ask_reserve(chance.choice(numbers), tokens(chance.randrange(60), 3), BLOCK * chance.randint(1, 3))
        assert not isinstance(reply, Failed), (step, reply)
        user.fill(reply)
        user.commit(reply)
        found = user.acquire(chance.choice(numbers), tokens(chance.randrange(60), 3))
        held += [found.lease] if found.lease else []
        while len(held) > 2:
            user.ok(Release(held.pop(0)))
    user.leave()
    assert violations(world.state) == []
    assert not any(cell.pins or cell.limbo for cell in world.state.cells.values())
    entries = sum(cell.memory.bit_count() for cell in world.state.cells.values())
    assert sum(pool.entries for pool in world.state.pools.values()) == entries
