"""Rights at the server: what is denied goes the way of every other request, and limits are of a uid within a tenant."""

from __future__ import annotations

import os
import socket

import pytest

from kvledger.errors import LimitError
from kvledger.wire import requests
from kvledger.wire.commands import COMMANDS
from kvledgerd.access import AccessRules
from kvledgerd.core.commands import Ask
from kvledgerd.core.placement.sureness import ARENAS_MAX
from kvledgerd.keeper.listener import SOCKET_NAME
from kvledgerd.server.limits import Most, UserLimits, connections_of_each
from kvledgerd.server.services import ConnectionLimits
from kvledgerd.tenants import User
from support.shell import Client, serving, until

READER = AccessRules.parse([{"tenant": "red", "right": "reader"}])
WRITER = AccessRules.parse([{"tenant": "red", "right": "writer"}])
OPERATOR = AccessRules.parse([{"tenant": "ops", "right": "operator"}, {"tenant": "red", "right": "reader", "uid": 9}])


@pytest.mark.asyncio
@pytest.mark.parametrize(("rules", "permitted"), [(READER, False), (WRITER, True)])
async def test_a_denied_request_is_decided_like_any_other(tmp_socket_dir, rules, permitted):
    """The core is asked in any case, told whether the right suffices, so that no answer comes another way."""
    async with serving(tmp_socket_dir, rules=rules) as rig:
        with await rig.client() as client:
            await client.ask(requests.Abort(1))
            asked = [one for one in rig.core.decided if isinstance(one, Ask)]
            assert [(one.permitted, one.caller.tenant, one.caller.operator) for one in asked] == [
                (permitted, "red", False)
            ]


@pytest.mark.asyncio
@pytest.mark.parametrize(("tenant", "sees_all"), [("", True), ("red", False)])
async def test_an_operator_acts_for_the_tenant_it_names(tmp_socket_dir, tenant, sees_all):
    """The core sees the named tenant as the caller's; who names one is told what that one is told."""
    async with serving(tmp_socket_dir, rules=OPERATOR) as rig:
        with await rig.client(tenant=tenant) as client:
            await client.ask(requests.Status())
            caller = rig.core.decided[-1].caller
            assert (caller.tenant, caller.operator) == (tenant or "ops", sees_all)


@pytest.mark.asyncio
async def test_rules_that_change_end_who_they_change_something_for(tmp_socket_dir):
    """A connection lasts while its rights do; the next one from there gets what the new rules say."""
    async with serving(tmp_socket_dir, rules=READER) as rig:
        with await rig.client() as client:
            assert rig.server.change(AccessRules.parse([{"tenant": "red", "right": "reader", "uid": os.getuid()}])) == 0
            await client.ask(requests.Status())
            assert rig.server.change(WRITER) == 1
            assert await client.is_closed()
        with await rig.client() as client:
            await client.ask(requests.Abort(1))
            assert rig.core.decided[-1].permitted


@pytest.mark.asyncio
async def test_a_socket_that_is_named_no_more_lets_nobody_in(tmp_socket_dir):
    """Rules without a tenant's socket are not about who comes to it, though it is listened at until the next start."""
    mine = AccessRules.parse([{"tenant": "red", "right": "writer", "socket": SOCKET_NAME}])
    everywhere = AccessRules.parse([{"tenant": "ops", "right": "operator", "uid": os.getuid()}])
    async with serving(tmp_socket_dir, rules=mine) as rig:
        with await rig.client() as client:
            assert rig.server.change(everywhere, ["another.socket"]) == 1
            assert await client.is_closed()
        with await Client.connect(rig.path) as stranger:
            assert (await stranger.reply())[1].code == "not_found"
        assert rig.server.change(everywhere, ["another.socket", SOCKET_NAME]) == 0
        with await rig.client() as client:
            await client.ask(requests.Status())
            assert rig.core.decided[-1].caller.tenant == "ops"


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["rights", "hangs up"])
async def test_who_reads_nothing_does_not_keep_what_it_lost(tmp_socket_dir, how):
    """A connection that ends is closed though its peer leaves replies unread, so its engine and its leases end too."""
    async with serving(tmp_socket_dir, rules=READER, limits=ConnectionLimits(slow_seconds=0.1)) as rig:
        with await rig.client() as client:
            await client.send(requests.Settle(700_000, 0), number=2)
            await until(lambda: isinstance(rig.core.decided[-1], Ask) and not rig.services.users.in_flight)
            if how == "rights":
                assert rig.server.change(WRITER) == 1
            else:
                client.sock.shutdown(socket.SHUT_WR)
            await until(lambda: rig.server.connections == 0)
            assert len(rig.services.engines) == 0


def test_a_uid_counts_in_each_tenant_by_itself():
    """Inside of containers everyone is uid 0: those of one tenant neither use up nor free what another's may have."""
    limits = UserLimits(connections=Most(1), in_flight=Most(1), frame_bytes=Most(1))
    red, blue = User("red", 0), User("blue", 0)
    limits.connect(red)
    limits.begin(red)
    for take in (limits.connect, limits.begin):
        with pytest.raises(LimitError, match="uid 0 has 1"):
            take(red)
        take(blue)
    limits.end(blue)
    limits.disconnect(blue)
    assert (limits.connections, limits.in_flight) == (1, 1)


def test_many_uids_of_one_tenant_have_its_part_together():
    """A tenant with as many uids as it likes has no more than its part, and another has its own."""
    limits = UserLimits(connections=Most(2), in_flight=Most(2, tenant=3), frame_bytes=Most(2))
    for uid in (1, 2, 3):
        limits.begin(User("red", uid))
    with pytest.raises(LimitError, match="all users of red together have 3 requests in flight"):
        limits.begin(User("red", 4))
    limits.begin(User("blue", 4))
    limits.end(User("red", 1))
    limits.begin(User("red", 4))
    assert limits.in_flight == 4


@pytest.mark.parametrize(("tenants", "descriptors"), [(2, 256), (2, 1024), (64, 1024), (64, 65536)])
def test_all_tenants_together_leave_the_daemon_what_it_needs(tenants, descriptors):
    """However many connections all of them open, descriptors are left for log, disk and every arena there may be."""
    each = connections_of_each(tenants, descriptors)
    assert each > 0
    assert descriptors - 4 * tenants * each >= min(ARENAS_MAX + 100, descriptors // 2)


def test_each_command_has_a_right_and_what_changes_the_cache_needs_more_than_reading():
    """Readers look and hold; whatever stores needs a writer, and what takes from others an operator."""
    by_right = {right: {c.name for c in COMMANDS if c.right == right} for right in ("reader", "writer", "operator")}
    assert {"evict", "evict_many", "set_quota", "set_epoch", "set_scrub", "warm", "tenants"} == by_right["operator"]
    assert {"ring", "reserve", "put", "commit", "offload", "register_pool"} <= by_right["writer"]
    assert {"acquire", "release", "status", "quotas", "restore", "register"} <= by_right["reader"]
