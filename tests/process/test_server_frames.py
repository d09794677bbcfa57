"""Frames and their order: what a hostile or broken client can put on the request socket, and what it gets for it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import struct
import subprocess
import sys

import pytest
from structlog.testing import capture_logs

from kvledger.wire import replies, requests
from kvledger.wire.framing import REQUEST_MAX, encode_frame
from kvledger_storage.events import EngineLeft
from kvledgerd.server.services import ConnectionLimits
from support.shell import Client, serving, until
from support.shm import open_descriptors

STATUS = requests.Status()
ENGINE = bytes(range(16))


def framed(body: bytes) -> bytes:
    """Return a body with its length."""
    return struct.pack("<I", len(body)) + body


def request(body: bytes, number: int = 5) -> bytes:
    """Return a frame with a request id and a message as raw msgpack."""
    return framed(b"\x92" + bytes([number]) + body)


# Messages that are whole frames with a readable id, and are no requests: answered, and the connection goes on.
UNREADABLE = {
    "unknown tag": b"\x91\xa7explode",
    "a reply": b"\x91\xa4done",
    "extension type": b"\x92\xa5renew\xd4\x01\x00",
    "timestamp": b"\x92\xa5renew\xd6\xff\x00\x00\x00\x01",
    "float for integer": b"\x92\xa5renew\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00",
    "boolean for integer": b"\x92\xa5renew\xc3",
    "negative integer": b"\x92\xa5renew\xff",
    "greatest integer": b"\x92\xa5renew\xcf" + b"\xff" * 8,
    "bad UTF-8 in the tag": b"\x91\xa6\xff\xfe\xfdabc",
    "deep nesting": b"\x91" * 100_000 + b"\x90",
    "array header of 2^32 - 1": b"\x93\xa3put\x01\xdd\xff\xff\xff\xff",
    "map header of 2^32 - 1": b"\xdf\xff\xff\xff\xff\x01\x02\x03",
    "string header of 2^32 - 1": b"\x92\xa5renew\xdb\xff\xff\xff\xff",
    "too many fields": b"\x93\xa5renew\x01\x02",
    "too few fields": b"\x91\xa5renew",
    "trailing bytes": b"\x92\xa5renew\x01\x00",
    "NUL in the tag": b"\x91\xa7status\x00",
    "path in the tag": b"\x91\xac../../status",
}


@pytest.mark.asyncio
@pytest.mark.parametrize("message", UNREADABLE.values(), ids=UNREADABLE)
async def test_unreadable_messages_get_a_typed_error(tmp_socket_dir, message):
    """A frame that is no request is refused under its own id, and the connection goes on."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client:
            await client.write(request(message))
            number, reply = await client.reply()

            assert (number, reply.code) == (5, "protocol")
            assert reply.remedy
            assert isinstance(await client.ask(STATUS), replies.StatusReport)


@pytest.mark.asyncio
@pytest.mark.parametrize("length", [0, 3, 4, REQUEST_MAX + 1, 2**31, 2**32 - 1])
async def test_impossible_lengths_end_the_connection(tmp_socket_dir, length):
    """After a length out of bounds nothing can be trusted: one typed error, then the end, and nobody else notices."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client, await rig.client() as other:
            await client.write(struct.pack("<I", length) + bytes(min(length, 64)))
            number, reply = await client.reply()

            assert (number, reply.code, reply.field) == (0, "protocol", "length")
            assert await client.is_closed()
            assert isinstance(await other.ask(STATUS), replies.StatusReport)


@pytest.mark.asyncio
async def test_frames_at_the_cap_are_read(tmp_socket_dir):
    """A look-up that fills a frame to its last byte is answered."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client:
            empty = len(encode_frame(100, requests.Acquire(1, 0, bytes(70_000)))) - 4 - 70_000
            await client.send(requests.Acquire(1, 0, bytes(REQUEST_MAX - empty)), number=100)

            assert (await client.reply())[0] == 100


@pytest.mark.asyncio
async def test_a_list_of_a_million_is_refused(tmp_socket_dir):
    """A request with more elements than its bound is refused without being built."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client:
            await client.write(request(b"\x92\xa6arenas\xdd" + struct.pack(">I", 1_000_000) + b"\x01" * 1_000_000))

            assert (await client.reply())[1].code == "protocol"


@pytest.mark.asyncio
async def test_unreadable_ids_end_the_connection(tmp_socket_dir):
    """A frame without a readable request id is answered under id 0, and the connection ends."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client:
            await client.write(framed(b"\xc1" * 20))

            assert (await client.reply())[0] == 0
            assert await client.is_closed()


@pytest.mark.asyncio
async def test_frames_may_come_in_any_pieces(tmp_socket_dir):
    """Two frames in one write, and one frame in single bytes, are the same as one at a time."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client:
            await client.write(encode_frame(8, STATUS) + encode_frame(9, STATUS))
            assert [(await client.reply())[0], (await client.reply())[0]] == [8, 9]

            for byte in encode_frame(10, requests.Acquire(1, 0, bytes(500))):
                await client.write(bytes([byte]))
                await asyncio.sleep(0)
            assert (await client.reply())[0] == 10


@pytest.mark.asyncio
async def test_half_frames_cost_nobody_else(tmp_socket_dir):
    """A client that sends half a frame, and one that then goes away, leave the others and the counts alone."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as stuck, await rig.client() as other:
            with await rig.client() as gone:
                await gone.write(encode_frame(5, STATUS)[:7])
            await stuck.write(encode_frame(5, STATUS)[:7])

            assert isinstance(await other.ask(STATUS), replies.StatusReport)
            await until(lambda: rig.server.connections == 2)
            assert rig.services.users.connections == 2


@pytest.mark.asyncio
async def test_nothing_comes_before_hello(tmp_socket_dir):
    """A request before hello is refused by name, and the connection ends."""
    async with serving(tmp_socket_dir) as rig:
        with await Client.connect(rig.path) as client:
            await client.send(STATUS, number=3)
            number, reply = await client.reply()

            assert (number, reply.code, reply.field) == (3, "protocol", "hello")
            assert await client.is_closed()


@pytest.mark.asyncio
async def test_hello_twice_is_refused(tmp_socket_dir):
    """A second hello is refused, and the connection stays what it was."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client:
            reply = await client.ask(requests.Hello((1, 1), ENGINE))
            assert (reply.code, reply.field) == ("protocol", "hello")

            assert isinstance(await client.ask(STATUS), replies.StatusReport)


@pytest.mark.asyncio
async def test_silent_connections_end(tmp_socket_dir):
    """Who says no hello in time is told so, and closed."""
    async with serving(tmp_socket_dir, limits=ConnectionLimits(hello_seconds=0.02)) as rig:
        with await Client.connect(rig.path) as client:
            assert (await client.reply())[1].field == "hello"
            assert await client.is_closed()


@pytest.mark.hostile("FR02")
@pytest.mark.asyncio
async def test_a_byte_now_and_then_is_no_hello(tmp_socket_dir):
    """Who sends one byte after the other has no longer for the hello than who sends none, and holds nobody up."""
    async with serving(tmp_socket_dir, limits=ConnectionLimits(hello_seconds=0.2)) as rig:
        with await Client.connect(rig.path) as slow, await rig.client() as other:
            frame = encode_frame(1, requests.Hello((1, 1), ENGINE, name="n" * 100))
            sent = 0
            with contextlib.suppress(OSError):
                for byte in frame[:-1]:
                    await slow.write(bytes([byte]))
                    sent += 1
                    assert isinstance(await other.ask(STATUS), replies.StatusReport)
                    await asyncio.sleep(0.01)
            assert sent < len(frame) - 1
            assert (await slow.reply())[1].field == "hello"
            assert await slow.is_closed()


@pytest.mark.asyncio
@pytest.mark.parametrize("versions", [(2, 3), (0, 0), (5, 2)])
async def test_other_versions_are_named(tmp_socket_dir, versions):
    """A client of another version learns both versions, and the connection ends."""
    async with serving(tmp_socket_dir) as rig:
        with await Client.connect(rig.path) as client:
            await client.send(requests.Hello(versions, ENGINE))
            _, reply = await client.reply()

            assert reply.field == "versions"
            assert f"{versions[0]} to {versions[1]}" in reply.message
            assert "speaks 1" in reply.message
            assert await client.is_closed()


@pytest.mark.asyncio
async def test_hellos_of_the_future_are_understood_that_far(tmp_socket_dir):
    """A hello with fields that this version does not know is refused for its version, not as malformed."""
    async with serving(tmp_socket_dir) as rig:
        with await Client.connect(rig.path) as client:
            await client.write(request(b"\x98\xa5hello\x92\x07\x09\x01\x02\x03\x04\x05\x06"))

            assert (await client.reply())[1].field == "versions"


@pytest.mark.asyncio
async def test_welcome_says_who_is_there(tmp_socket_dir):
    """The answer to hello carries version, incarnation, tenant, root and limits, and one descriptor."""
    async with serving(tmp_socket_dir) as rig:
        with await Client.connect(rig.path) as client:
            welcome = await client.hello()

            assert (welcome.version, welcome.incarnation, welcome.tenant) == (1, 7, "default")
            assert (len(welcome.root_key), welcome.frame_max) == (32, REQUEST_MAX)
            assert client.channel is not None


@pytest.mark.asyncio
async def test_requests_behind_hello_wait_for_it(tmp_socket_dir):
    """What is sent right behind hello is answered after it, in order."""
    async with serving(tmp_socket_dir) as rig:
        with await Client.connect(rig.path) as client:
            await client.write(encode_frame(1, requests.Hello((1, 1), ENGINE)) + encode_frame(2, STATUS))
            found = [await client.reply(), await client.reply()]

            assert [number for number, _ in found] == [1, 2]
            assert isinstance(found[0][1], replies.Welcome)


@pytest.mark.hostile("OR07")
@pytest.mark.asyncio
async def test_ids_in_flight_are_not_used_twice(tmp_socket_dir):
    """A second request under an id in flight is refused, and the first one is still answered."""
    async with serving(tmp_socket_dir, prompt=False) as rig:
        with await rig.client() as client:
            await client.send(requests.Renew(1), number=4)
            await client.send(STATUS, number=4)
            assert (await client.reply())[1].field == "id"

            rig.writer.reached(1, rig.log.last_seq)
            assert await client.reply() == (4, replies.Done())


@pytest.mark.asyncio
async def test_every_request_has_one_reply(tmp_socket_dir):
    """Requests that are granted, refused and that hit a bug are each answered once, under their id."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client:
            sent = [
                await client.send(body) for body in (requests.Abort(1), requests.Abort(2), requests.Renew(2), STATUS)
            ]
            found = dict([await client.reply() for _ in sent])

            assert sorted(found) == sorted(sent)
            assert [getattr(found[number], "code", None) for number in sent] == ["not_found", "internal", None, None]


@pytest.mark.asyncio
async def test_many_requests_wait_without_being_lost(tmp_socket_dir):
    """A client that sends more than it may have in flight, through a small queue, is slowed and answered in full."""
    limits = ConnectionLimits(connection_requests=4)
    async with serving(tmp_socket_dir, limits=limits, capacity=2) as rig:
        with await rig.client() as client:
            await client.write(b"".join(encode_frame(number, requests.Renew(2)) for number in range(10, 510)))

            assert [(await client.reply())[0] for _ in range(500)] == list(range(10, 510))


@pytest.mark.asyncio
async def test_requests_of_one_uid_are_bounded(tmp_socket_dir):
    """A uid with as many requests in flight as it may have gets a typed limit error, at once."""
    async with serving(tmp_socket_dir, in_flight=2, prompt=False) as rig:
        with await rig.client() as client, await rig.client() as other:
            for number in (1, 2):
                await client.send(requests.Renew(1), number=number)
            await until(lambda: rig.services.users.in_flight == 2)

            assert (await other.ask(STATUS)).code == "limit"
            rig.writer.reached(1, rig.log.last_seq)
            assert isinstance(await other.ask(STATUS), replies.StatusReport)


@pytest.mark.hostile("FR03")
@pytest.mark.asyncio
async def test_half_sent_requests_of_one_uid_are_bounded(tmp_socket_dir):
    """A uid that leaves too many bytes unfinished is turned away with the limit; what it closes makes room again."""
    half = (300_000).to_bytes(4, "little") + bytes(150_000)
    async with serving(tmp_socket_dir, frame_bytes=400_000) as rig:
        with await rig.client() as calm, await rig.client() as first, await rig.client() as second:
            for client in (first, second):
                await client.write(half)
            assert isinstance(await calm.ask(STATUS), replies.StatusReport)
            with await rig.client() as third:
                await third.write(half)
                assert (await third.reply())[1].code == "limit"
                assert await third.is_closed()
            first.close()
            await until(lambda: rig.server.connections == 2)
            with await rig.client() as fourth:
                await fourth.write(half)
                assert isinstance(await calm.ask(STATUS), replies.StatusReport)
                assert rig.server.connections == 3


@pytest.mark.hostile("LO01")
@pytest.mark.asyncio
async def test_connections_of_one_uid_are_bounded(tmp_socket_dir):
    """One connection too many is told why before it says anything, and a closed one makes room."""
    async with serving(tmp_socket_dir, connections=2) as rig:
        with await rig.client() as first, await rig.client():
            with await Client.connect(rig.path) as third:
                assert (await third.reply())[1].code == "limit"
                assert await third.is_closed()
            first.close()
            await until(lambda: rig.server.connections == 1)
            with await rig.client() as fourth:
                assert isinstance(await fourth.ask(STATUS), replies.StatusReport)


@pytest.mark.asyncio
async def test_who_is_refused_again_and_again_does_not_fill_the_log(tmp_socket_dir):
    """Of a uid that connects anew whenever it is turned away a few lines are written, and the rest is counted."""
    async with serving(tmp_socket_dir, connections=1) as rig:
        with capture_logs() as said, await rig.client():
            for _ in range(30):
                with await Client.connect(rig.path) as turned_away:
                    assert (await turned_away.reply())[1].code == "limit"
        lines = [line for line in said if line["event"] == "connection turned away"]
        assert {line["uid"] for line in lines} == {os.getuid()}
        assert 0 < len(lines) < 30


@pytest.mark.asyncio
async def test_two_hundred_connections_are_served(tmp_socket_dir):
    """Two hundred connections of one engine are all answered, and nothing is left of them afterwards."""
    before = open_descriptors()
    async with serving(tmp_socket_dir) as rig:
        clients = await asyncio.gather(*[rig.client(ENGINE) for _ in range(200)])
        found = await asyncio.gather(*[client.ask(STATUS) for client in clients])
        assert all(isinstance(reply, replies.StatusReport) for reply in found)
        assert len(rig.services.engines) == 1

        for client in clients:
            client.close()
        await until(lambda: rig.server.connections == 0)
        assert len(rig.services.engines) == 0
    assert open_descriptors() == before


@pytest.mark.hostile("LO03")
@pytest.mark.asyncio
async def test_slow_readers_are_dropped(tmp_socket_dir):
    """A client that never reads is dropped after a while; until then the others are served as ever."""
    async with serving(tmp_socket_dir, limits=ConnectionLimits(slow_seconds=0.1)) as rig:
        with await rig.client() as slow, await rig.client() as other:
            for number in range(8):
                await slow.send(requests.Settle(1 << 20, 0), number=number)
            assert isinstance(await other.ask(STATUS), replies.StatusReport)

            await until(lambda: rig.server.connections == 1)
            assert isinstance(await other.ask(STATUS), replies.StatusReport)


@pytest.mark.asyncio
async def test_replies_above_the_cap_are_refused(tmp_socket_dir):
    """A reply that is longer than a frame may be is turned into a typed error."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client:
            assert (await client.ask(requests.Settle(17 << 20, 0))).code == "protocol"


@pytest.mark.asyncio
async def test_stopping_answers_what_is_in_flight(tmp_socket_dir):
    """A server that stops accepts nobody new, answers what it has taken, and then closes."""
    async with serving(tmp_socket_dir, prompt=False) as rig:
        with await rig.client() as client:
            await client.send(requests.Renew(1), number=6)
            await until(lambda: rig.services.users.in_flight == 1)
            stopping = asyncio.create_task(rig.server.stop(5))
            await asyncio.sleep(0.02)
            rig.writer.reached(1, rig.log.last_seq)

            assert await client.reply() == (6, replies.Done())
            assert await client.is_closed()
            await stopping


HOLDER = """
import socket, sys, time
from kvledger.wire.framing import encode_frame
from kvledger.wire.requests import Hello
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
sock.sendall(encode_frame(1, Hello((1, 1), bytes(16), leader=True)))
sock.recv(4096)
child = sys.argv[2] == "fork" and __import__("os").fork()
open(sys.argv[1][:-1] + "joined", "w").close()
time.sleep(60)
"""


@pytest.mark.asyncio
@pytest.mark.parametrize("how", ["alone", "fork"])
async def test_engines_end_with_their_process(tmp_socket_dir, how):
    """A killed client ends its engine, also if a child of it holds the connection open."""
    async with serving(tmp_socket_dir) as rig:
        process = subprocess.Popen([sys.executable, "-c", HOLDER, str(rig.path), how], start_new_session=True)  # noqa: ASYNC220  the loop under test may wait for once
        try:
            await until((tmp_socket_dir / "joined").exists)
            assert len(rig.services.engines) == 1
            process.kill()

            await until(lambda: isinstance(rig.core.applied[-1], EngineLeft))
            assert len(rig.services.engines) == 0
            assert rig.core.applied[-1].reason.startswith("leader ended")
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
