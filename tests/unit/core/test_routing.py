"""Every command that names a kind is routed by it. What each does with a wrong one: test_core_hostile.py."""

from typing import get_args

import msgspec
import pytest

from kvledger.kinds import Kind
from kvledger.wire.requests import Request, SetQuota
from kvledgerd.core.kinds import RULES
from support.layouts import pick
from support.world import World

PROMPT = list(range(600))


@pytest.fixture
def stored():
    """A boundary of each kind in memory."""
    world = World()
    user = world.engine()
    number = user.register(pick("CXSTM"))
    user.store(number, PROMPT, 512)
    return world, user


def test_each_kind_has_rules_and_an_order(stored):
    """No kind is routed to nothing: each has a module of rules, and each tenant an eviction order of each."""
    world, _ = stored
    assert set(RULES) == set(Kind)
    assert len({id(rules.victims) for rules in RULES.values()}) >= len(Kind) - 1
    orders = world.state.orders["default"]
    assert all(len(orders[kind]) for kind in Kind if kind is not Kind.DISK_PREFIX)


def test_every_request_that_names_a_kind_is_known_here():
    """A request that comes to name a kind has to join these tests, here or beside its own."""
    named = {one for one in get_args(Request) if "kind" in {field.name for field in msgspec.structs.fields(one)}}
    assert {one.__name__ for one in named} == {"Evict", "EvictMany", "FreePages", "Offload", "Restore", "SetQuota"}


def test_no_memory_is_shared_out_to_disk_prefixes(stored):
    """A quota in memory is one of a kind that lies in memory."""
    world, user = stored
    before = world.state.digest()
    reply = user.ask(SetQuota(Kind.DISK_PREFIX, 4096))
    assert (reply.code, reply.field, bool(reply.remedy)) == ("routing", "kind", True)
    assert world.state.digest() == before
