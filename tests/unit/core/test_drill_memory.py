"""The drill's memory: little, before everybody's promises, and nobody else's."""

from kvledger.kinds import Kind
from kvledger.wire.requests import Abort, Register, Reserve
from kvledgerd.core.commands import MemoryDue
from kvledgerd.core.config import DRILL_TENANT, CoreConfig
from kvledgerd.core.invariants import violations
from kvledgerd.core.placement.sureness import sure_elsewhere
from kvledgerd.life.drill import DRILL_LAYOUT
from support.layouts import pick
from support.world import World

MIB = 1 << 20
SMALL = 64 << 10


def prompt(number: int) -> list[int]:
    """A prompt of one block."""
    return [10_000 * number + token for token in range(16)]


def drill(world):
    """The drill of a world, and its layout."""
    bird = world.engine("drill", tenant=DRILL_TENANT)
    return bird, bird.ok(Register(DRILL_LAYOUT)).layout


def arenas(world):
    """Bytes of the arenas of each tenant."""
    found = {}
    for arena in world.state.arenas.values():
        found[arena.tenant] = found.get(arena.tenant, 0) + arena.bytes
    return found


def test_one_small_arena_is_all_that_it_takes():
    """Pass after pass, and while memory is looked after, it has one arena of 64 KiB and leaves the rest to others."""
    world = World(CoreConfig(memory_bytes=MIB, arena_bytes=MIB // 16))
    bird, number = drill(world)
    for one in range(20):
        bird.store(number, prompt(one))
        world.do(MemoryDue())
    assert arenas(world) == {DRILL_TENANT: SMALL}
    user = world.engine()
    assert sure_elsewhere(world.state, "default") == SMALL
    layout = user.register(pick("CM"))
    world.check = False
    for one in range(300):
        user.store(layout, [one * 1000 + token for token in range(256)])
    found = arenas(world)
    assert found[DRILL_TENANT] == SMALL
    assert found["default"] == MIB - SMALL
    assert violations(world.state) == []
    assert bird.acquire(number, [*prompt(19), 7]).usable_tokens == 16


def test_it_gets_its_arena_where_all_memory_is_promised():
    """Tenants yet to come are kept what they are promised, but for the drill's 64 KiB."""
    world = World(CoreConfig(memory_bytes=8 * MIB, arena_bytes=MIB // 2, tenants=4))
    bird, number = drill(world)
    bird.store(number, prompt(1))
    assert arenas(world) == {DRILL_TENANT: SMALL}


def test_it_takes_nothing_from_memory_that_is_full():
    """Where others have all memory already it is refused by name, and nothing of theirs goes."""
    world = World(CoreConfig(memory_bytes=MIB, arena_bytes=MIB // 16), check=False)
    user = world.engine()
    layout = user.register(pick("CM"))
    for one in range(300):
        user.store(layout, [one * 1000 + token for token in range(256)])
    assert arenas(world) == {"default": MIB}
    objects = world.state.objects
    bird, number = drill(world)
    refused = bird.ask(Reserve(number, bird.boundary(number, prompt(1)), boundary=False))
    assert refused.code == "capacity"
    assert f"bytes of {Kind.COMPRESSED_KV.name} do not fit" in refused.message
    assert world.state.objects == objects


def test_it_is_no_tenant_that_memory_waits_for():
    """With two tenants to come, the drill is neither of them."""
    world = World(CoreConfig(memory_bytes=8 * MIB, arena_bytes=MIB // 2, tenants=2))
    bird, number = drill(world)
    bird.ok(Abort(bird.reserve(number, prompt(1)).unit))
    assert sure_elsewhere(world.state, "default") == 4 * MIB // 2 + SMALL
