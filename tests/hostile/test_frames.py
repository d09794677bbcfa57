"""Hostile frames over the socket of a real daemon: one typed error each, and the neighbour notices nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import time

import pytest

from kvledger.kinds import Kind
from kvledger.wire import replies, requests
from kvledger.wire.framing import FRAME_MIN, REQUEST_MAX, encode_frame
from support.shell import Client

STATUS = requests.Status()


def framed(body):
    """Return a body with its length."""
    return struct.pack("<I", len(body)) + body


def request(message, number=5):
    """Return a frame with a request id and a message as raw msgpack."""
    return framed(b"\x92" + bytes([number]) + message)


@contextlib.asynccontextmanager
async def greeted(daemon):
    """Give a client that has said hello."""
    with await Client.connect(daemon.socket) as client:
        await client.hello()
        yield client


# Messages that are whole frames with a readable id, and are no requests: answered, and the connection goes on.
UNREADABLE = {
    "FR06 trailing bytes": b"\x92\xa5renew\x01\x00",
    "FR06 trailing bytes behind a whole request": b"\x91\xa6status\xc0\xc0",
    "FR07 unknown tag": b"\x91\xa7explode",
    "FR07 a reply": b"\x91\xa4done",
    "FR07 no tag": b"\x96" + b"\xc0" * 6,
    "FR07 a number as tag": b"\x96\x07" + b"\x00" * 5,
    "FR08 extension type": b"\x92\xa5renew\xd4\x01\x00",
    "FR08 extension as tag": b"\x91\xd7\x01" + bytes(8),
    "FR08 extension of 2^32 - 1 bytes": b"\x92\xa5renew\xc9\xff\xff\xff\xff\x01",
    "FR09 timestamp of 32 bits": b"\x92\xa5renew\xd6\xff\x00\x00\x00\x01",
    "FR09 timestamp of 96 bits": b"\x92\xa5renew\xc7\x0c\xff" + bytes(12),
    "FR10 float for an integer": b"\x92\xa5renew\xcb\x3f\xf1\x99\x99\x99\x99\x99\x9a",
    "FR10 whole float for an integer": b"\x92\xa5renew\xcb\x3f\xf0\x00\x00\x00\x00\x00\x00",
    "FR10 short float for an integer": b"\x92\xa5renew\xca\x3f\x80\x00\x00",
    "FR10 no number": b"\x92\xa5renew\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    "FR10 true for an integer": b"\x92\xa5renew\xc3",
    "FR10 false for an integer": b"\x92\xa5renew\xc2",
    "FR10 one for a boolean": b"\x95\xa7reserve\x01\x93\xc4\x00\x00\xc4\x00\x00\x01",
    "FR11 bad UTF-8 in the tag": b"\x91\xa6\xff\xfe\xfdabc",
    "FR11 half a character in a name": b"\x97\xadregister_pool\x01\xa3\xed\xa0\x80\xc4\x00\x00\x01\x90",
    "FR11 overlong form in a name": b"\x97\xadregister_pool\x01\xa2\xc0\x80\xc4\x00\x00\x01\x90",
    "FR12 arrays 100,000 deep": b"\x91" * 100_000 + b"\x90",
    "FR12 maps 100,000 deep": b"\x81\x01" * 100_000 + b"\x80",
    "FR12 arrays 100,000 deep in a field": b"\x92\xa6arenas" + b"\x91" * 100_000 + b"\x01",
    "FR12 arrays 100,000 deep in a layout": b"\x92\xa8register\x81\xa6groups" + b"\x91" * 100_000 + b"\x01",
    "FR13 array that claims 2^32 - 1": b"\x93\xa3put\x01\xdd\xff\xff\xff\xff",
    "FR13 array of the message claims 2^32 - 1": b"\xdd\xff\xff\xff\xff\xa6status",
    "FR13 map that claims 2^32 - 1": b"\xdf\xff\xff\xff\xff\x01\x02\x03",
    "FR13 map of a layout claims 2^32 - 1": b"\x92\xa8register\xdf\xff\xff\xff\xff",
    "FR13 text that claims 2^32 - 1": b"\x92\xa5renew\xdb\xff\xff\xff\xff",
    "FR13 bytes that claim 2^32 - 1": b"\x94\xa7acquire\x01\x01\xc6\xff\xff\xff\xff",
    "FR14 negative integer": b"\x92\xa5renew\xff",
    "FR14 least integer": b"\x92\xa5renew\xd3\x80" + bytes(7),
    "FR14 2^64 - 1": b"\x92\xa5renew\xcf" + b"\xff" * 8,
    "FR14 2^63": b"\x92\xa5renew\xcf\x80" + bytes(7),
    "FR15 a million arenas": b"\x92\xa6arenas\xdd" + struct.pack(">I", 1_000_000) + b"\x01" * 1_000_000,
    "FR15 a million ranges": b"\x93\xa3put\x01\xdd" + struct.pack(">I", 1_000_000) + b"\x90" * 1_000_000,
    "FR15 a million groups": b"\x92\xa8register\x81\xa6groups\xdd" + struct.pack(">I", 1_000_000) + b"\x80" * 1_000_000,
    "FR16 NUL in the tag": b"\x91\xa7status\x00",
    "FR16 path in the tag": b"\x91\xac../../status",
    "too many fields": b"\x93\xa5renew\x01\x02",
    "too few fields": b"\x91\xa5renew",
    "text for a message": b"\xa6status",
}


@pytest.mark.hostile("FR06", "FR07", "FR08", "FR09", "FR10", "FR11", "FR12", "FR13", "FR14", "FR15", "FR16")
@pytest.mark.asyncio
async def test_unreadable_messages_get_a_typed_error(daemon):
    """A frame that is no request is refused under its own id, and the same connection goes on."""
    async with greeted(daemon) as client:
        for what, message in UNREADABLE.items():
            await client.write(request(message))
            number, reply = await client.reply()

            assert (number, getattr(reply, "code", reply)) == (5, "protocol"), what
            assert reply.remedy
            assert isinstance(await client.ask(STATUS), replies.StatusReport), what


@pytest.mark.hostile("FR16")
@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["\0", "a\0b", "../../x", "/etc/passwd", "..", "%s%n", "\u202e", "\ufeff"])
async def test_odd_text_in_a_field_is_text(daemon, neighbour, name):
    """NUL and path parts in names are stored as they are or refused by field, and name no file."""
    before = {path.name for path in daemon.data_dir.rglob("*") if path.suffix != ".seg"}
    with await Client.connect(daemon.socket) as client:
        assert isinstance(await client.hello(name=name), replies.Welcome)
        number = (await client.ask(requests.Register(neighbour.layout.layout))).layout
        evicted = await client.ask(requests.Evict(Kind.COMPRESSED_KV, number, requests.Boundary(b""), group=name))
        assert evicted.field == "group"
        pool = await client.ask(requests.RegisterPool(number, name, name.encode(), 4096, 4096, [1, 1]))
        assert isinstance(pool, replies.Failed | replies.PoolRegistered)
    assert {path.name for path in daemon.data_dir.rglob("*") if path.suffix != ".seg"} == before


@pytest.mark.hostile("FR01")
@pytest.mark.asyncio
@pytest.mark.parametrize("said", [False, True], ids=["before hello", "after hello"])
async def test_impossible_lengths_end_the_connection(daemon, said):
    """After a length out of bounds nothing can be trusted: one typed error, then the end of this connection."""
    for length in (0, 3, 4, FRAME_MIN - 1, REQUEST_MAX + 1, 2**31 - 1, 2**31, 2**32 - 1):
        with await Client.connect(daemon.socket) as client:
            if said:
                await client.hello()
            await client.write(struct.pack("<I", length) + bytes(min(length, 64)))
            number, reply = await client.reply()

            assert (number, reply.code, reply.field) == (0, "protocol", "length"), length
            assert await client.is_closed()


@pytest.mark.hostile("FR01")
@pytest.mark.asyncio
async def test_frames_at_the_cap_are_read(daemon):
    """A frame of exactly the greatest length is answered under its id, whether it is a request or not."""
    async with greeted(daemon) as client:
        empty = len(encode_frame(100, requests.Acquire(1, 0, bytes(70_000)))) - 4 - 70_000
        await client.send(requests.Acquire(1, 0, bytes(REQUEST_MAX - empty)), number=100)
        assert (await client.reply())[0] == 100
        await client.write(framed(b"\x92\x05\xc6\xff" + bytes(REQUEST_MAX - 4)))
        assert (await client.reply())[0] == 5
        assert isinstance(await client.ask(STATUS), replies.StatusReport)


@pytest.mark.asyncio
async def test_unreadable_ids_end_the_connection(daemon):
    """A frame without a readable request id is answered under id 0, and the connection ends."""
    for body in (b"\xc1" * 20, b"\x92\xcf" + b"\xff" * 8 + b"\x91\xa6status", b"\x92\xff\x91\xa6status", b"\x90" * 9):
        async with greeted(daemon) as client:
            await client.write(framed(body))
            assert (await client.reply())[0] == 0
            assert await client.is_closed()


@pytest.mark.hostile("FR04", "FR05")
@pytest.mark.asyncio
async def test_frames_may_come_in_any_pieces(daemon):
    """Two frames in one write, and one frame in 4,096 writes, are the same as one at a time."""
    async with greeted(daemon) as client:
        await client.write(encode_frame(8, STATUS) + encode_frame(9, STATUS))
        assert [(await client.reply())[0], (await client.reply())[0]] == [8, 9]

        empty = len(encode_frame(10, requests.Acquire(1, 0, bytes(3000)))) - 3000
        frame = encode_frame(10, requests.Acquire(1, 0, bytes(4096 - empty)))
        assert len(frame) == 4096
        for byte in frame:
            await client.write(bytes([byte]))
        assert (await client.reply())[0] == 10


@pytest.mark.hostile("FR02")
@pytest.mark.slow
@pytest.mark.asyncio
async def test_one_byte_a_second_is_no_hello(daemon):
    """Who sends a hello by one byte a second is told after ten seconds that none came, while others are served."""
    with await Client.connect(daemon.socket) as slow:
        async with greeted(daemon) as other:
            began = time.monotonic()
            with contextlib.suppress(OSError):
                for byte in encode_frame(1, requests.Hello((1, 1), bytes(16), name="n" * 100)):
                    await slow.write(bytes([byte]))
                    assert isinstance(await other.ask(STATUS), replies.StatusReport)
                    await asyncio.sleep(1)
            assert 9 < time.monotonic() - began < 15
        assert (await slow.reply())[1].field == "hello"
        assert await slow.is_closed()


HALF_A_FRAME = """
import os, signal, socket, sys
from kvledger.wire.framing import encode_frame
from kvledger.wire.requests import Acquire, Hello
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
if sys.argv[2] == "after":
    sock.sendall(encode_frame(1, Hello((1, 1), os.urandom(16))))
    sock.recv(4096)
frame = encode_frame(5, Acquire(1, 0, bytes(500_000)))
sock.sendall(frame[: len(frame) // 2])
print("half", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.hostile("FR03")
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_stops_in_the_middle_of_a_frame(daemon, neighbour, when):
    """Half a frame of a process that was stopped, before its hello or after, holds nobody up and ends with it."""
    command = [sys.executable, "-c", HALF_A_FRAME, str(daemon.socket), when]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "half\n"
        neighbour.is_served()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()


@pytest.mark.hostile("FR03")
@pytest.mark.parametrize("said", [False, True], ids=["before hello", "after hello"])
def test_half_a_frame_and_then_the_end(daemon, said):
    """A connection that ends at any place of a frame leaves nothing, whether it was closed or shut down for writing."""
    frame = encode_frame(5, requests.Acquire(1, 0, bytes(300)))
    for at in (1, 3, 4, 5, 100, len(frame) - 1):
        for half in (socket.socket.close, lambda sock: sock.shutdown(socket.SHUT_WR)):
            with socket.socket(socket.AF_UNIX) as sock:
                sock.connect(str(daemon.socket))
                sock.settimeout(60)
                if said:
                    sock.sendall(encode_frame(1, requests.Hello((1, 1), os.urandom(16))))
                    sock.recv(4096)
                sock.sendall(frame[:at])
                half(sock)
                if sock.fileno() >= 0:
                    assert sock.recv(4096) == b""
