"""Descriptors that are no ring, on both sockets of a real daemon: refused, closed, and nobody waits for the closing."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import socket
import time

import pytest

from kvledger.memfd import create_sealed
from kvledger.wire import replies, requests
from kvledger.wire.descriptors import close_all
from kvledger.wire.framing import encode_frame
from support.hostile_descriptors import (
    HOSTILE,
    LINGER_SECONDS,
    SIZE,
    close_quickly,
    lingering,
    other_size,
    send_ring,
    unsealed,
)
from support.raw_engine import BLOCKS, OBJECTS, Engine
from support.shell import Client

STATUS = requests.Status()
TIB = 1 << 40
# A test that waits for a lingering close fails long before the end of its time.
AT_ONCE = 20


@pytest.mark.hostile("DE02", "DE03", "DE05")
@pytest.mark.asyncio
async def test_what_is_no_ring_is_refused(daemon):
    """Socket, directory, pipe, device, O_PATH descriptor, the log file itself: each is refused by name and closed."""
    with await Client.connect(daemon.socket) as client:
        await client.hello()
        for make in HOSTILE:
            send_ring(client.channel, [make(daemon.data_dir)])
            reply = await client.ask(requests.Ring(SIZE))

            assert (reply.code, reply.field) == ("protocol", "ring"), make.__name__
            assert reply.remedy
            assert isinstance(await client.ask(STATUS), replies.StatusReport), make.__name__


@pytest.mark.hostile("DE01")
@pytest.mark.asyncio
async def test_rings_come_one_at_a_time(daemon):
    """A packet with no descriptor, or with 2 or 253, is refused; exactly one ring is taken."""
    with await Client.connect(daemon.socket) as client:
        await client.hello()
        for count in (0, 2, 253):
            send_ring(client.channel, [create_sealed("ring", SIZE) for _ in range(count)])
            reply = await client.ask(requests.Ring(SIZE))
            assert (reply.code, reply.field) == ("protocol", "descriptors"), count
        send_ring(client.channel, [create_sealed("ring", SIZE)])
        assert await client.ask(requests.Ring(SIZE)) == replies.Done()


@pytest.mark.hostile("DE01")
@pytest.mark.asyncio
async def test_descriptors_that_nobody_asked_for_stay_their_senders(daemon, neighbour):
    """Packets that pile up on the descriptor socket cost the daemon no descriptor, and are gone with the connection."""
    with await Client.connect(daemon.socket) as client:
        await client.hello()
        before = await asyncio.to_thread(neighbour.holdings)
        with contextlib.suppress(BlockingIOError, OSError):
            for _ in range(1000):
                send_ring(client.channel, [create_sealed("ring", SIZE) for _ in range(10)])
        assert await asyncio.to_thread(neighbour.holdings) == before


@pytest.mark.hostile("DE03")
@pytest.mark.asyncio
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_ring_that_can_be_shrunk_is_none(daemon, when):
    """An unsealed memfd is refused, whether it was shrunk before the daemon looked or is shrunk afterwards."""
    with await Client.connect(daemon.socket) as client:
        await client.hello()
        fd = unsealed(daemon.data_dir)
        send_ring(client.channel, [os.dup(fd)])
        if when == "before":
            os.ftruncate(fd, 0)
        assert (await client.ask(requests.Ring(SIZE))).field == "ring"
        os.ftruncate(fd, 0)
        os.close(fd)


@pytest.mark.hostile("DE03")
@pytest.mark.asyncio
async def test_a_ring_whose_memory_is_taken_away_reads_as_zeros(daemon, neighbour):
    """A sealed ring keeps its size; if its owner punches its pages out, what is stored are zeros, under their name."""
    with await Engine.enter(daemon, neighbour.layout.layout) as client:
        with mmap.mmap(client.ring, SIZE) as area:
            area.madvise(mmap.MADV_REMOVE)
        with pytest.raises(PermissionError):
            os.ftruncate(client.ring, 0)
        unit = await client.reserve()
        assert await client.ask(client.put(unit)) == replies.Done()
        zeros = await client.ask(requests.Commit(unit))
        assert zeros.stored == OBJECTS
        assert (await client.ask(client.lookup())).hash_tokens == 16 * BLOCKS


@pytest.mark.hostile("DE04", "DE05")
@pytest.mark.asyncio
async def test_sizes_are_those_that_were_declared(daemon):
    """A sparse giant of 1 TiB is refused whatever was declared, and so is a ring of another size; nothing is mapped."""
    with await Client.connect(daemon.socket) as client:
        await client.hello()
        for made, declared in ((TIB, TIB), (TIB, SIZE), (SIZE, TIB), (2 * SIZE, SIZE), (SIZE // 2, SIZE)):
            send_ring(client.channel, [create_sealed("ring", made)], declared)
            reply = await client.ask(requests.Ring(declared))
            assert (reply.code in {"protocol", "limit"}, bool(reply.remedy)) == (True, True), (made, declared)
        send_ring(client.channel, [other_size(daemon.data_dir)], 2 * SIZE)
        assert (await client.ask(requests.Ring(SIZE))).field == "ring"


async def on_the_request_socket(client, fds):
    """Send descriptors beside a request, which is answered as ever."""
    socket.send_fds(client.sock, [encode_frame(7, STATUS)], fds)
    close_all(fds)
    assert (await client.reply())[0] == 7


async def beside_garbage(client, fds):
    """Send descriptors beside a frame that ends the connection."""
    socket.send_fds(client.sock, [bytes(64)], fds)
    close_all(fds)
    assert (await client.reply())[1].field == "length"


async def behind_garbage(client, fds):
    """Send descriptors that the daemon has no reason to read any more."""
    await client.write(bytes(64))
    try:
        socket.send_fds(client.sock, [encode_frame(7, STATUS)], fds)
    except OSError:  # it has closed already, so that the last one is ours
        for fd in fds:
            close_quickly(fd)
    else:
        close_all(fds)
    assert (await client.reply())[1].field == "length"


async def as_a_ring(client, fds):
    """Send descriptors as a ring, and ask for it."""
    send_ring(client.channel, fds)
    assert (await client.ask(requests.Ring(SIZE))).code == "protocol"


async def in_a_packet_that_is_none(client, fds):
    """Send descriptors with a packet that is too long to be read."""
    socket.send_fds(client.channel, [bytes(4096)], fds)
    close_all(fds)
    assert (await client.ask(requests.Ring(SIZE))).code == "protocol"


async def unasked(client, fds):
    """Send descriptors that no request announces, and go."""
    send_ring(client.channel, fds)


@pytest.mark.hostile("DE06")
@pytest.mark.asyncio
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    "send",
    [on_the_request_socket, beside_garbage, behind_garbage, as_a_ring, in_a_packet_that_is_none, unasked],
    ids=lambda send: send.__name__,
)
async def test_nobody_waits_for_a_descriptor_that_closes_slowly(daemon, send, count):
    """A descriptor whose close takes a minute delays nobody, over whichever socket and with whatever it was sent."""
    fds, peers = zip(*(lingering() for _ in range(count)), strict=True)
    began = time.monotonic()
    with await Client.connect(daemon.socket) as client, await Client.connect(daemon.socket) as other:
        await client.hello()
        await other.hello()
        await asyncio.wait_for(send(client, list(fds)), AT_ONCE)
        assert isinstance(await asyncio.wait_for(other.ask(STATUS), AT_ONCE), replies.StatusReport)
        client.close()
        assert isinstance(await asyncio.wait_for(other.ask(STATUS), AT_ONCE), replies.StatusReport)
    for peer in peers:
        peer.close()
    assert time.monotonic() - began < LINGER_SECONDS / 2
