"""Layouts that name no weights: refused by default; where they are allowed nothing outlives or leaves the engine."""

import pytest

from kvledger.epochs import EpochState
from kvledger.verdict import Code
from kvledger.wire.replies import Failed
from kvledger.wire.requests import Acquire, Epochs, Offload, Register, RegisterTopology, Reserve, SetEpoch, TopologyPart
from kvledger_storage import events
from kvledgerd.core.config import CoreConfig
from support.epochs import PROMPT, told
from support.layouts import pick
from support.world import World

UNPINNED = pick("CXST", weights_digest="")


def stored(world=None):
    """An engine that stored 512 tokens without naming its weights."""
    allowed = CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, disk_bytes=64 << 20, allow_unpinned=True)
    user = (world or World(allowed)).engine("unnamed")
    number = user.register(UNPINNED)
    user.store(number, PROMPT, 512)
    return user, number


def live(world) -> int:
    """Bytes that anything takes in memory."""
    return sum(pool.live_bytes for pool in world.state.pools.values())


def test_weights_without_a_name_are_refused_unless_allowed():
    """By default the layout is refused with the field; where it is allowed its engine stores and hits as usual."""
    refused = World().engine().ask(Register(UNPINNED))
    assert (refused.code, refused.field) == ("layout", "weights_digest")
    assert "allow_unpinned" in refused.remedy
    user, number = stored()
    assert user.acquire(number, PROMPT).usable_tokens == 512


def test_another_engine_never_finds_it():
    """A second engine with the same layout misses with a named reason, and can not even name the first one's layout."""
    user, number = stored()
    other = user.world.engine("other")
    mine = other.register(UNPINNED)
    missed = other.acquire(mine, PROMPT)
    assert (mine != number, missed.usable_tokens) == (True, 0)
    (detail,) = {cut.detail for cut in missed.cuts if cut.code is Code.IDENTITY_MISMATCH}
    assert detail == "weights_digest: not named, so that only the engine that stored it may use it"
    for request in (Acquire(number, 600, b""), Reserve(number, other.boundary(mine, PROMPT, 512))):
        assert other.ask(request).code == "not_found"
    assert user.acquire(number, PROMPT).usable_tokens == 512


@pytest.mark.parametrize("how", ["left", "restarted", "died"])
def test_it_ends_with_its_engine(how):
    """When the engine ends, or the daemon does, everything that it stored is invalid at once and its memory is free."""
    user, number = stored()
    world, late = user.world, user.reserve(number, PROMPT, 576)
    user.fill(late)
    user.acquire(number, PROMPT)
    if how == "restarted":
        world.restart()
    else:
        user.leave(how)
    state = world.state
    assert (state.objects, state.cells, state.units, state.leases, live(world)) == (0, {}, {}, {}, 0)
    again = world.engine("unnamed")  # the same engine id, and another engine all the same
    assert again.acquire(again.register(UNPINNED), PROMPT).usable_tokens == 0


def test_a_named_layout_never_finds_it_either():
    """An engine that names its weights misses, and the cut names the field."""
    user, _ = stored()
    other = user.world.engine("other")
    missed = other.acquire(other.register(pick("CXST")), PROMPT)
    assert missed.usable_tokens == 0
    assert any("weights_digest: stored ''" in cut.detail for cut in missed.cuts)


def test_it_is_never_written_to_disk():
    """An offload is refused by type, and nothing reaches the disk."""
    user, number = stored()
    refused = user.ask(Offload(number, user.boundary(number, PROMPT, 512)))
    assert (refused.code, refused.field) == ("epoch", "layout")
    assert (user.world.disk, user.world.state.disk_bytes) == ({}, 0)


def test_no_graph_reads_it():
    """A captured graph outlives connections and can not ask, so a topology over such a lease is refused."""
    user, number = stored()
    lease = user.acquire(number, PROMPT).lease
    refused = user.ask(RegisterTopology([TopologyPart(lease, 0, [])]))
    assert isinstance(refused, Failed)
    assert (refused.code, refused.field) == ("epoch", "layout")


def test_those_of_engines_that_ended_leave_room_for_others():
    """However many layouts an engine brought, after its end and a restart the cap is free for other engines."""
    world = World(CoreConfig(allow_unpinned=True, max_layouts=2))
    gone = world.engine("gone")
    for model in ("a", "b"):
        gone.register(pick("C", weights_digest="", model=model))
    refused = gone.ask(Register(pick("C", weights_digest="", model="c")))
    assert (refused.code, refused.field) == ("limit", "max_layouts")
    gone.leave()
    world.restart()
    user = world.engine("next")
    assert user.register(pick("C"))
    assert user.ok(SetEpoch("test", "announced", EpochState.CANARY)).before is None
    assert user.register(pick("C", weights_digest="", model="a"))
    assert user.ask(Register(pick("C", weights_digest="", model="b"))).field == "max_layouts"


def test_operators_can_not_keep_it():
    """Its epoch is listed with its engine, and no command can name it: it has no weights to name."""
    user, _ = stored()
    (epoch,) = user.ok(Epochs()).epochs
    assert (epoch.weights, epoch.engine, epoch.state) == ("", user.caller.engine, EpochState.ACTIVE)
    assert user.ask(SetEpoch("test", "w1", EpochState.RETIRED)).code == "not_found"


def test_it_stands_beside_named_weights():
    """An unnamed epoch neither drains the active one nor makes the next named weights a canary."""
    user, _ = stored()
    user.register(pick("CXST"))
    assert [(e.weights, e.state) for e in user.ok(Epochs()).epochs] == [
        ("", EpochState.ACTIVE),
        ("w1", EpochState.ACTIVE),
    ]


def test_those_of_engines_that_ended_are_forgotten():
    """However many engines come and go, only the last ones' epochs and layouts are kept."""
    user, _ = stored()
    world = user.world
    for _ in range(20):
        user.leave()
        user, _ = stored(world)
    assert len(world.state.epochs) == len(world.state.layouts) == len(world.state.layout_numbers) == 1
    assert len(told(world, events.EpochAdded)) == 21
    assert world.replayed().digest() == world.state.digest()
