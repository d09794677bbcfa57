"""Requests in an order that no client would choose, and receipts that are over or somebody else's."""

from __future__ import annotations

import os

import pytest

from kvledger.kinds import Kind
from kvledger.wire import replies, requests
from kvledger.wire.framing import encode_frame
from support.raw_engine import Engine
from support.shell import Client

STATUS = requests.Status()


@pytest.mark.hostile("OR01")
@pytest.mark.asyncio
async def test_nothing_comes_before_hello(daemon, neighbour):
    """Whatever is asked before hello is refused by name, holds nothing, and ends the connection."""
    asked = [
        STATUS,
        requests.Register(neighbour.layout.layout),
        requests.Acquire(1, 50, bytes(96)),
        requests.Reserve(1, requests.Boundary(bytes(96))),
        requests.Evict(Kind.COMPRESSED_KV, 1, requests.Boundary(b"")),
        requests.Ring(4096),
    ]
    for request in asked:
        with await Client.connect(daemon.socket) as client:
            await client.send(request, number=3)
            number, reply = await client.reply()

            assert (number, reply.code, reply.field) == (3, "protocol", "hello")
            assert await client.is_closed()


@pytest.mark.hostile("OR02")
@pytest.mark.asyncio
async def test_a_second_hello_is_refused(daemon, neighbour):
    """A second hello changes neither engine nor rights, and what the connection holds it goes on to hold."""
    with await Engine.enter(daemon, neighbour.layout.layout) as client:
        unit = await client.reserve()
        for hello in (requests.Hello((1, 1), os.urandom(16)), requests.Hello((1, 1), os.urandom(16), leader=True)):
            reply = await client.ask(hello)
            assert (reply.code, reply.field) == ("protocol", "hello")
        assert await client.ask(requests.Abort(unit)) == replies.Done()


@pytest.mark.hostile("OR03")
@pytest.mark.asyncio
@pytest.mark.parametrize("versions", [(2, 3), (0, 0), (5, 2), (2**31, 2**31)])
async def test_another_protocol_version_is_named(daemon, versions):
    """A client of another version is told both versions, and makes no engine."""
    with await Client.connect(daemon.socket) as client:
        await client.send(requests.Hello(versions, bytes(16)))
        _, reply = await client.reply()

        assert reply.field == "versions"
        assert f"{versions[0]} to {versions[1]}" in reply.message
        assert await client.is_closed()


@pytest.mark.hostile("OR04")
@pytest.mark.asyncio
@pytest.mark.parametrize("incarnation", [0, 2, 2**63 - 1])
async def test_another_incarnation_claims_nothing(daemon, neighbour, incarnation):
    """A client that names another incarnation in its hello is told the one that runs, and holds nothing of any."""
    with await Client.connect(daemon.socket) as client:
        welcome = await client.hello(incarnation=incarnation)

        assert welcome.incarnation == neighbour.cache.incarnation
        for number in (1, 2**32 + 1, incarnation):
            assert (await client.ask(requests.Release(number))).code == "lease_lost"
            assert (await client.ask(requests.Commit(number))).code == "generation"


@pytest.mark.hostile("OR06")
@pytest.mark.asyncio
async def test_a_reply_to_nothing_is_no_request(daemon):
    """Every reply that there is, sent to the daemon, is refused as no request, and the connection goes on."""
    sent = [replies.Done(), replies.Reserved(1, b""), replies.Committed(1, 1, 0, 0), replies.Failed("caller", "no")]
    with await Client.connect(daemon.socket) as client:
        await client.hello()
        for reply in sent:
            await client.write(encode_frame(9, reply))
            number, answer = await client.reply()
            assert (number, answer.code) == (9, "protocol")
        assert isinstance(await client.ask(STATUS), replies.StatusReport)


@pytest.mark.hostile("OR07")
@pytest.mark.asyncio
async def test_an_id_that_is_in_flight_is_refused(daemon, neighbour):
    """Of two requests under one id both are answered once: the second one with a refusal, if the first is not done."""
    with await Engine.enter(daemon, neighbour.layout.layout) as client:
        request = requests.Reserve(client.layout, client.end)
        await client.write(encode_frame(7, request) + encode_frame(7, STATUS))
        answers = [await client.reply(), await client.reply()]

        assert [number for number, _ in answers] == [7, 7]
        (refused,) = [reply for _, reply in answers if isinstance(reply, replies.Failed)]
        (reserved,) = [reply for _, reply in answers if isinstance(reply, replies.Reserved)]
        assert (refused.code, refused.field) == ("protocol", "id")
        assert await client.ask(requests.Abort(reserved.unit)) == replies.Done()


@pytest.mark.hostile("OR08")
@pytest.mark.asyncio
async def test_a_lease_is_released_once_and_by_its_engine(daemon, neighbour):
    """A lease that was released, or that another engine holds, is not held: one and the same answer."""
    layout = neighbour.layout.layout
    with await Engine.enter(daemon, layout) as client, await Client.connect(daemon.socket) as other:
        await other.hello()
        await client.store()
        lease = (await client.ask(client.lookup())).lease
        stolen = await other.ask(requests.Release(lease))
        unknown = await other.ask(requests.Release(lease + 700))
        assert (stolen.code, stolen.field) == ("lease_lost", "lease")
        assert stolen.message.replace(str(lease), "#") == unknown.message.replace(str(lease + 700), "#")
        for request in (requests.Renew(lease), requests.Settle(lease, 0), requests.Fingerprints(lease)):
            assert (await other.ask(request)).code == "lease_lost"

        assert await client.ask(requests.Release(lease)) == replies.Done()
        for request in (requests.Release(lease), requests.Renew(lease), requests.Settle(lease, 0)):
            assert (await client.ask(request)).code == "lease_lost"


@pytest.mark.hostile("OR08")
@pytest.mark.asyncio
async def test_a_lease_of_older_bytes_gives_nothing_of_newer_ones_back(daemon, neighbour):
    """After its bytes were evicted and stored anew, an old receipt releases no lease that holds the new ones."""
    with await Engine.enter(daemon, neighbour.layout.layout) as client:
        await client.store()
        old = (await client.ask(client.lookup())).lease
        assert await client.ask(requests.Release(old)) == replies.Done()
        for kind in (Kind.UNCOMPRESSED_TAIL, Kind.COMPRESSED_KV):
            evicted = await client.ask(requests.Evict(kind, client.layout, client.end))
            assert evicted.dropped > 0
        await client.store()
        new = (await client.ask(client.lookup())).lease
        assert (await client.ask(requests.Release(old))).code == "lease_lost"
        assert await client.ask(requests.Renew(new)) == replies.Done()


@pytest.mark.hostile("OR09", "OR10", "BY05")
@pytest.mark.asyncio
async def test_a_reservation_ends_once(daemon, neighbour):
    """After its commit or its abort a reservation takes no bytes, no commit and no abort."""
    with await Engine.enter(daemon, neighbour.layout.layout) as client:
        aborted = await client.reserve()
        assert await client.ask(requests.Abort(aborted)) == replies.Done()
        for unit in (aborted, await client.store()):
            for request in (requests.Commit(unit), requests.Abort(unit), client.put(unit), requests.Join(unit, 0)):
                late = await client.ask(request)
                assert (late.code, late.field) == ("generation", "unit"), request


@pytest.mark.hostile("OR11")
@pytest.mark.asyncio
async def test_a_reservation_is_its_connections(daemon, neighbour):
    """Nobody fills, commits, joins or gives up what another connection holds; of its own engine it learns that."""
    layout, key = neighbour.layout.layout, os.urandom(16)
    with (
        await Engine.enter(daemon, layout, key) as client,
        await Engine.enter(daemon, layout, key) as sibling,
        await Engine.enter(daemon, layout) as stranger,
    ):
        unit = await client.reserve()
        for request in (requests.Commit(unit), requests.Abort(unit), client.put(unit), requests.Join(unit, 0)):
            stolen = await stranger.ask(request)
            assert (stolen.code, stolen.field) == ("generation", "unit"), request
        for request in (requests.Commit(unit), requests.Abort(unit), client.put(unit)):
            assert (await sibling.ask(request)).code == "caller", request
        assert await client.ask(client.put(unit)) == replies.Done()
        assert isinstance(await client.ask(requests.Commit(unit)), replies.Committed)
