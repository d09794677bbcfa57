"""Shares of epochs: what a canary may take, and from whom room is made."""

from kvledger.epochs import EpochState
from kvledger.kinds import Kind
from kvledger.wire.requests import (
    Epochs,
    Offload,
    Release,
)
from kvledgerd.core.commands import EngineSilent
from kvledgerd.core.config import PAGE, CoreConfig
from support.epochs import PROMPT, become, prompt, small, stored
from support.layouts import compressed, pick, tail, window
from support.world import World, layout

CANARY, ACTIVE, DRAINING, RETIRED = EpochState


def test_a_canary_makes_room_among_its_own():
    """At the end of its share a canary drops what it stored least recently, and nothing of the active weights."""
    user = World(small(20)).engine()
    active, canary = user.register(pick("C")), user.register(pick("C", weights_digest="w2"))
    become(user, CANARY, "w2", share=20)
    for number in range(4):
        user.store(active, prompt(number), 256)
    for number in range(6):
        user.store(canary, prompt(number), 256)
    hits = {n: [user.acquire(n, prompt(i), leave=0).usable_tokens for i in range(6)] for n in (active, canary)}
    assert hits == {active: [256] * 4 + [0] * 2, canary: [0] * 2 + [256] * 4}
    assert user.world.state.epochs[2].memory[Kind.COMPRESSED_KV] == 4 * PAGE


def test_a_canary_whose_share_is_leased_is_refused():
    """Where all of a share is leased, a reservation is refused and says whose share it is; the active weights go on."""
    user = World(small(20)).engine()
    active, canary = user.register(pick("C")), user.register(pick("C", weights_digest="w2"))
    become(user, CANARY, "w2", share=10)
    for number in range(2):
        user.store(canary, prompt(number), 256)
    leases = [user.acquire(canary, prompt(number), leave=0).lease for number in range(2)]
    refused = user.ask_reserve(canary, prompt(7), 256)
    assert (refused.code, refused.field) == ("capacity", "share")
    assert "10 %" in refused.message
    assert user.store(active, prompt(7), 256).stored
    user.ok(Release(leases[0]))
    assert user.store(canary, prompt(7), 256).stored


def test_a_unit_larger_than_the_share_drops_nothing():
    """A unit that could never fit into the share is refused at once, and what is stored stays."""
    user = World(small(20)).engine()
    canary = user.register(pick("C"))
    become(user, ACTIVE, share=10)
    user.store(canary, prompt(0), 256)
    refused = user.ask_reserve(canary, list(range(5000, 5768)), 768)
    assert (refused.code, refused.field) == ("capacity", "share")
    assert user.acquire(canary, prompt(0), leave=0).usable_tokens == 256


def test_a_share_holds_for_all_kinds_together():
    """Kinds that each keep within a share keep within it together too, and what was stored last stays."""
    config = CoreConfig(memory_bytes=64 * PAGE, arena_bytes=4 * PAGE, disk_bytes=1 << 20)
    user = World(config).engine()
    number = user.register(layout(compressed("C", 16), window("S", 16, 16), tail("T", 16, 16), block_tokens=16))
    become(user, ACTIVE, share=33)
    prompts = [[1000 * n + t for t in range(16)] for n in range(30)]
    for one in prompts:
        user.store(number, one, 16)
        assert sum(user.world.state.epochs[1].memory.values()) <= 64 * PAGE * 33 // 100
    assert user.acquire(number, prompts[-1], leave=0).usable_tokens == 16
    assert user.acquire(number, prompts[0], leave=0).usable_tokens == 0


def test_a_share_of_all_kinds_that_is_leased_is_refused():
    """Where leases keep all of it, a reservation is refused and says that it is the share of all kinds."""
    config = CoreConfig(memory_bytes=64 * PAGE, arena_bytes=4 * PAGE, disk_bytes=1 << 20)
    user = World(config).engine()
    number = user.register(layout(compressed("C", 16), window("S", 16, 16), tail("T", 16, 16), block_tokens=16))
    become(user, ACTIVE, share=5)
    user.store(number, list(range(16)), 16)
    lease = user.acquire(number, list(range(16)), leave=0).lease
    refused = user.ask_reserve(number, list(range(500, 516)), 16)
    assert (refused.code, refused.field) == ("capacity", "share")
    assert "of all kinds" in refused.message
    user.ok(Release(lease))
    assert user.store(number, list(range(500, 516)), 16).stored


def test_a_silent_owner_is_revoked_for_a_share_too():
    """What a silent engine leases does not block a share."""
    user = World(small(20)).engine()
    sleeper, number = user.world.engine("sleeper"), user.register(pick("C"))
    become(user, ACTIVE, share=5)
    user.store(number, prompt(0), 256)
    lease = sleeper.acquire(number, prompt(0), leave=0).lease
    assert user.ask_reserve(number, prompt(1), 256).field == "share"
    user.world.do(EngineSilent(sleeper.caller.engine, silent=True))
    assert user.store(number, prompt(1), 256).stored
    assert lease not in user.world.state.leases


def test_a_share_holds_on_disk():
    """An offload beyond the share is refused; with a larger share it is written."""
    user, number = stored(config=CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, disk_bytes=1 << 20))
    become(user, ACTIVE, share=1)
    at = user.boundary(number, PROMPT, 512)
    refused = user.ask(Offload(number, at))
    assert (refused.code, refused.field) == ("capacity", "share")
    become(user, ACTIVE, share=100)
    user.ok(Offload(number, at))
    assert user.ok(Epochs()).epochs[0].disk_bytes == user.world.state.disk_bytes > 0


def test_a_share_alone_changes_nothing_else():
    """Naming the state that it has with another share keeps the state and drops nothing."""
    user, number = stored()
    assert become(user, ACTIVE, share=1).before is ACTIVE
    assert [(e.state, e.share) for e in user.ok(Epochs()).epochs] == [(ACTIVE, 1)]
    assert user.acquire(number, PROMPT).usable_tokens == 512
