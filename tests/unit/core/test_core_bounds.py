"""One request is one turn of the event loop: whatever it names, the core answers it soon."""

import os

import pytest

from kvledger.wire.replies import Failed
from kvledger.wire.requests import Boundary, Reserve
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.placement import room
from kvledgerd.core.units.decide_units import UNIT_OBJECTS_MAX
from support.layouts import compressed, indexer, pick, recurrent, tail
from support.soon import soon
from support.world import World, layout

SOON = 0.5
"""Processor seconds; what was slow before took many times as long."""


def refused(user, request):
    """Send a request that has to be refused soon, and that changes nothing."""
    before, length = user.world.state.digest(), len(user.world.log)
    reply = soon(lambda: user.ask(request), SOON)
    assert isinstance(reply, Failed), reply
    assert (user.world.state.digest(), len(user.world.log)) == (before, length)
    return reply


@pytest.mark.parametrize("all_pages", [False, True])
def test_a_unit_of_millions_of_objects_is_refused_before_a_list_of_them_is_made(all_pages):
    """A reservation of 12,000 blocks in 1,024 shards is refused at once, and the remedy says how to store it."""
    user = World().engine()
    groups = compressed("C", 4, 1, shards=1024), tail("T", 4, 8)
    number = user.register(layout(*groups, block_tokens=4))
    reply = refused(user, Reserve(number, Boundary(os.urandom(32 * 12_000)), boundary=False, all_pages=all_pages))
    assert (reply.code, reply.field) == ("limit", "end")
    assert f"{12_000 * (1025 if all_pages else 1024)} objects" in reply.message
    assert "first_block" in reply.remedy


def test_a_window_as_long_as_a_prompt_counts_what_lies_before_the_unit():
    """Window pages before the first block belong to a unit, and count; so far back is no reservation."""
    user = World(check=False).engine()
    number = user.register(layout(tail("T", 1, 1 << 30), block_tokens=64))
    hashes = os.urandom(32 * 1025)
    reply = refused(user, Reserve(number, Boundary(hashes), first_block=1025))
    assert (reply.field, f"{64 * 1025} objects" in reply.message) == ("end", True)
    assert UNIT_OBJECTS_MAX < 64 * 1025


def test_a_unit_beyond_the_cap_on_objects_is_refused_by_that_cap():
    """A unit of more objects than all units together may have names the cap."""
    user = World(CoreConfig(max_objects=7)).engine()
    number = user.register(pick("CX"))
    reply = refused(user, Reserve(number, user.boundary(number, list(range(1024))), boundary=False))
    assert (reply.code, reply.field) == ("capacity", "max_objects")


def test_more_copies_than_one_decision_may_let_go_are_a_refusal(monkeypatch):
    """Where one unit would displace too many copies it is refused in words, and not one of them goes."""
    monkeypatch.setattr(room, "VICTIMS_MAX", 5)
    user = World(CoreConfig(memory_bytes=2 << 20), check=False).engine()
    small = user.register(layout(recurrent(page_bytes=4096), block_tokens=16))
    large = user.register(layout(recurrent(page_bytes=6 * 4096), block_tokens=16, model="large"))
    for kept in range(512):
        user.store(small, list(range(1000 * kept, 1000 * kept + 16)), 16)
    before = len(user.world.evicted())
    reply = refused(user, Reserve(large, user.boundary(large, list(range(16)))))
    assert (reply.code, reply.field, len(user.world.evicted())) == ("capacity", "unit", before)
    monkeypatch.setattr(room, "VICTIMS_MAX", 6)
    user.reserve(large, list(range(16)))
    assert len(user.world.evicted()) == before + 6


def test_layouts_of_thousands_of_slots_are_set_up_soon():
    """Eight layouts of 4,096 slots, coupled in pairs, cost their registrations little more than their number."""
    pairs = [(compressed(a, 4, 1, shards=1024), indexer(b, 4, 1, to=a, shards=1024)) for a, b in ("CX", "DY")]
    wide = [layout(*pairs[0], *pairs[1], block_tokens=4, model=f"m{i}") for i in range(8)]

    def register_all():
        user = World(check=False).engine()
        return [user.register(one) for one in wide]

    assert soon(register_all, SOON) == list(range(1, 9))


def test_a_residue_of_thousands_of_pages_is_reserved_soon():
    """A window of one-token pages over a residue of 4,095 tokens is a unit like any other."""

    def reserve():
        user = World(CoreConfig(), check=False).engine()
        number = user.register(layout(tail("T", 1, 1 << 30), block_tokens=4096))
        reserved = user.ok(Reserve(number, user.boundary(number, list(range(4095)))))
        return len(user.world.state.units[reserved.unit].objects)

    assert soon(reserve, SOON) == 4095
