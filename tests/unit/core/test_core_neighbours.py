"""Tenants beside each other: what one does to disk, leases and background work leaves the other its part."""

from __future__ import annotations

import pytest

from kvledger.errors import LimitError, error_from_wire
from kvledger.wire.replies import Failed
from kvledger.wire.requests import Acquire, RegisterTopology, Release, TopologyPart
from kvledger_storage.events import OffloadStarted
from kvledgerd.core.commands import EngineGone, RoomWanted, SaveDue
from kvledgerd.core.config import PAGE, CoreConfig, DiskWritePolicy
from kvledgerd.core.copies.decide_write import unsaved
from kvledgerd.core.decide import decide
from support.layouts import pick
from support.world import World

MIB = 1 << 20


def prompt(number: int) -> list[int]:
    """Return a prompt of 600 tokens that no other begins like."""
    return [number * 1000, *range(599)]


def neighbours(**config):
    """Return a world with two tenants, big and small, who brought the same layout."""
    world = World(CoreConfig(memory_bytes=4 * MIB, arena_bytes=MIB // 4, disk_bytes=64 * MIB, tenants=2, **config))
    users = [world.engine(name, name) for name in ("big", "small")]
    return world, *((user, user.register(pick("CM"))) for user in users)


def test_a_full_disk_takes_from_who_has_most():
    """Room on a full disk is made of the tenant with most on it; one with little keeps all while that suffices."""
    world, (big, layout), (small, other) = neighbours()
    for user, number, count in ((small, other, 1), (big, layout, 6)):
        for one in range(count):
            user.store(number, prompt(one), 512)
            user.offload(number, prompt(one), 512)
    before = {user.caller.tenant: world.state.records_use(user.caller.tenant, 1).tenant.bytes for user in (big, small)}
    world.do(RoomWanted(before["big"] // 2, "the disk is full"))
    assert world.state.records_use("small", 1).tenant.bytes == before["small"]
    assert world.state.records_use("big", 1).tenant.bytes <= before["big"] // 2


def test_each_tenant_s_part_of_background_writes_is_its_own():
    """At a stop one tenant has more on its way than all may have, and the other's is begun all the same."""
    world, (big, layout), (small, other) = neighbours(disk_write=DiskWritePolicy.ON_EVICT, write_bytes=4096)
    for number in range(4):
        big.store(layout, prompt(number), 512)
    small.store(other, prompt(1), 512)
    found = decide(world.state, SaveDue(tuple(unsaved(world.state))))
    begun = [event for event in found.events if isinstance(event, OffloadStarted)]
    assert {world.state.layouts[event.layout].tenant for event in begun} == {"big", "small"}
    assert len(begun) < 5


def test_leases_of_one_uid_are_bounded_over_all_its_engines():
    """A uid's engines hold so many leases together; another uid, and the same uid of another tenant, hold theirs."""
    world, (one, layout), (neighbour, other) = neighbours(uid_leases=3)
    sibling, stranger = world.engine("two", "big"), world.engine("three", "big", uid=7)
    one.store(layout, prompt(1), 512)
    neighbour.store(other, prompt(1), 512)
    held = [user.acquire(layout, prompt(1)).lease for user in (one, one, sibling)]
    request = Acquire(layout, 600, one.boundary(layout, prompt(1)).hashes)
    refused = sibling.ask(request)
    with pytest.raises(LimitError, match="engines of uid 1000 hold 3 leases"):
        raise error_from_wire(refused.code, refused.message, refused.field, refused.remedy)
    assert stranger.acquire(layout, prompt(1)).lease
    assert neighbour.acquire(other, prompt(1)).lease
    one.ok(Release(held[0]))
    assert sibling.acquire(layout, prompt(1)).lease


def test_graphs_of_one_tenant_leave_a_neighbour_its_part():
    """What all topologies may pin is divided: a tenant that captures over all of its part takes none of another's."""
    world, (big, layout), (small, other) = neighbours(topology_bytes=16 * PAGE, topology_tenant_bytes=8 * PAGE)
    for one in range(8):
        big.store(layout, prompt(one), 512)
        reply = big.ask(RegisterTopology([TopologyPart(big.acquire(layout, prompt(one)).lease, 0, [])]))
    assert (reply.code, reply.field) == ("capacity", "topology_bytes")
    assert "small" not in reply.message
    small.store(other, prompt(1), 512)
    assert small.capture(small.acquire(other, prompt(1)))
    assert world.state.topologies


@pytest.mark.parametrize("what", ["max_tenant_topologies", "max_topology_processes"])
def test_graphs_of_one_tenant_are_counted_over_all_its_engines(what):
    """Each process that a graph names is watched by a descriptor of the daemon, and each outlives its connection."""
    world, (big, layout), (small, other) = neighbours(**{what: 3})
    for user, number in ((big, layout), (small, other)):
        user.store(number, prompt(1), 512)
    refused = []
    for one in range(5):
        user = world.engine(f"engine {one}", "big", uid=one)
        reply = user.ask(RegisterTopology([TopologyPart(user.acquire(layout, prompt(1)).lease, 0, [])]))
        refused += [(one, reply.code, reply.field)] if isinstance(reply, Failed) else []
        world.do(EngineGone(user.caller.engine, "connection closed"))
    assert refused == [(3, "limit", what), (4, "limit", what)]
    assert small.capture(small.acquire(other, prompt(1)))


def test_who_is_gone_is_owed_nothing_by_name():
    """Tenants come and go, and each finds its memory, though all that ever stored are known for good."""
    world = World(CoreConfig(memory_bytes=2 * MIB, arena_bytes=MIB // 4, tenants=2, tenant_bytes=MIB))
    for number in range(6):
        user = world.engine(f"tenant {number}", f"tenant {number}")
        layout = user.register(pick("CXST"))
        user.store(layout, prompt(1), 512)
        assert user.acquire(layout, prompt(1)).usable_tokens == 512
        world.restart(arenas=False)
