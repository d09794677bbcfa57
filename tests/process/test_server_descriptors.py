"""Descriptors: what a hostile client can send as its ring, and when arenas go out."""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import stat

import pytest

from kvledger.arena_header import ArenaIdentity
from kvledger.kinds import Kind
from kvledger.memfd import create_sealed
from kvledger.verdict import Exactness
from kvledger.wire import replies, requests
from kvledger.wire.descriptors import ArenaPacket, receive_packet
from kvledger_storage.arena import Arena
from kvledgerd.access import DEFAULT_TENANT
from kvledgerd.memory.arenas import ArenaTable
from kvledgerd.tenants import tenant_digest
from support.hostile_descriptors import HOSTILE, SIZE, send_ring
from support.shell import RING_CAP, Client, SmallCore, serving, until
from support.shm import open_descriptors

STATUS = requests.Status()


@pytest.mark.asyncio
@pytest.mark.parametrize("make", HOSTILE, ids=[make.__name__ for make in HOSTILE])
async def test_false_rings_are_refused(tmp_socket_dir, make):
    """A descriptor that is no sealed memfd of the declared size is refused by name and closed."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client:
            before = open_descriptors()
            send_ring(client.channel, [make(tmp_socket_dir)])
            reply = await client.ask(requests.Ring(SIZE))

            assert (reply.code, reply.field) == ("protocol", "ring")
            assert reply.remedy
            await until(lambda: open_descriptors() == before)
            assert isinstance(await client.ask(STATUS), replies.StatusReport)


@pytest.mark.asyncio
@pytest.mark.parametrize("count", [0, 2, 253])
async def test_rings_come_one_at_a_time(tmp_socket_dir, count):
    """A packet with no descriptor, or with more than one, is refused, and none of them stays open."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client:
            before = open_descriptors()
            send_ring(client.channel, [create_sealed("ring", SIZE) for _ in range(count)])
            reply = await client.ask(requests.Ring(SIZE))

            assert (reply.code, reply.field) == ("protocol", "descriptors")
            await until(lambda: open_descriptors() == before)


@pytest.mark.asyncio
async def test_rings_that_never_came_are_missed(tmp_socket_dir):
    """A Ring request without a packet before it is refused, and says what to send first."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client:
            reply = await client.ask(requests.Ring(SIZE))

            assert reply.message == "no descriptor has come over the descriptor socket"


@pytest.mark.asyncio
@pytest.mark.parametrize("packet", [b"", b"\x01", b"\x01\x09" + bytes(8), b"\x02\x02" + bytes(8), bytes(64)])
async def test_malformed_packets_are_refused(tmp_socket_dir, packet):
    """A packet of another version, type or length is refused, and its descriptor closed."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client:
            before = open_descriptors()
            fd = create_sealed("ring", SIZE)
            socket.send_fds(client.channel, [packet], [fd])
            os.close(fd)

            assert (await client.ask(requests.Ring(SIZE))).code == "protocol"
            await until(lambda: open_descriptors() == before)


@pytest.mark.asyncio
async def test_giants_are_refused(tmp_socket_dir):
    """A sparse ring above the cap is refused whatever its declared size."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client:
            send_ring(client.channel, [create_sealed("ring", 1 << 40)], 1 << 40)
            reply = await client.ask(requests.Ring(1 << 40))

            assert str(RING_CAP) in reply.message


@pytest.mark.asyncio
async def test_rings_are_taken_replaced_and_closed(tmp_socket_dir):
    """A right ring is taken, a second one takes its place, and both are closed with the connection."""
    before = open_descriptors()
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client:
            for _ in range(2):
                send_ring(client.channel, [create_sealed("ring", SIZE)])
                assert await client.ask(requests.Ring(SIZE)) == replies.Done()
                assert rig.services.rings.bytes == SIZE
    assert rig.services.rings.bytes == 0
    assert open_descriptors() == before


@pytest.mark.asyncio
async def test_borrowed_rings_stay_open(tmp_socket_dir):
    """A ring whose connection goes away while a worker reads from it is closed when the worker is done."""
    async with serving(tmp_socket_dir) as rig:
        with await rig.client() as client:
            send_ring(client.channel, [create_sealed("ring", SIZE)])
            await client.ask(requests.Ring(SIZE))
            ring = rig.services.rings.get(1)
            reader = ring.borrow()
        await until(lambda: rig.server.connections == 0)
        await asyncio.to_thread(reader.read_into, memoryview(bytearray(16)), 0)
        ring.give_back()

        with pytest.raises(OSError, match="Bad file descriptor"):
            os.preadv(reader._fd, [bytearray(1)], 0)


@pytest.fixture
def arenas():
    """Give a table with two arenas of the default tenant and one of another."""
    table = ArenaTable()
    made = []
    for number, tenant in ((1, DEFAULT_TENANT), (2, DEFAULT_TENANT), (3, "foreign")):
        identity = ArenaIdentity(bytes(16), bytes(16), number, tenant_digest(tenant), Kind.COMPRESSED_KV)
        made.append(Arena.create(identity, SIZE))
        table.add(made[-1])
    yield table
    for arena in made:
        os.close(table.readable(arena.arena_id))
        arena.close()


def lookup(*arenas: int) -> replies.Acquired:
    """Return a verdict whose handles lie in these arenas, the last one in an offer."""
    runs = [replies.HandleRun(0, 0, 0, 16, 16, 1, arena, 0, 4096, 4096, 1) for arena in arenas]
    offer = replies.Offer(16, 0, b"", next(iter(Exactness)), 0, runs[-1:])
    return replies.Acquired(1, [offer], runs[:-1], 16, 16, [16], [16], [], [])


@pytest.mark.asyncio
async def test_arenas_come_before_the_reply_that_names_them(tmp_socket_dir, arenas):
    """Each arena is sent once for a connection, opened read-only, before the first reply whose handles lie in it."""
    core = SmallCore(lookup=lookup(2, 1))
    async with serving(tmp_socket_dir, core=core, arenas=arenas) as rig:
        with await rig.client() as client:
            await client.ask(requests.Acquire(1, 20, bytes(32)))
            found = {}
            for _ in range(2):
                packet, fd = receive_packet(client.channel)
                found[packet] = fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE, stat.S_ISREG(os.fstat(fd).st_mode)
                os.close(fd)
            assert found == {ArenaPacket(1, SIZE): (os.O_RDONLY, True), ArenaPacket(2, SIZE): (os.O_RDONLY, True)}

            await client.ask(requests.Acquire(1, 20, bytes(32)))
            with pytest.raises(BlockingIOError):
                receive_packet(client.channel)


@pytest.mark.asyncio
async def test_arenas_are_sent_again_when_asked_for(tmp_socket_dir, arenas):
    """A client that lost its maps gets the descriptors of its tenant's arenas once more."""
    async with serving(tmp_socket_dir, arenas=arenas) as rig:
        with await rig.client() as client:
            for _ in range(2):
                assert await client.ask(requests.Arenas([1, 2])) == replies.ArenaList([1, 2])
                for number in (1, 2):
                    packet, fd = receive_packet(client.channel)
                    os.close(fd)
                    assert packet == ArenaPacket(number, SIZE)


@pytest.mark.hostile("ID01")
@pytest.mark.asyncio
async def test_foreign_and_missing_arenas_look_the_same(tmp_socket_dir, arenas):
    """Another tenant's arena and one that never was get one and the same answer, and no descriptor is sent."""
    async with serving(tmp_socket_dir, arenas=arenas) as rig:
        with await rig.client() as client:
            foreign = await client.ask(requests.Arenas([1, 3]))
            missing = await client.ask(requests.Arenas([1, 99]))

            assert foreign == missing
            assert foreign.code == "not_found"
            with pytest.raises(BlockingIOError):
                receive_packet(client.channel)


async def ask_for_ever(client: Client) -> None:
    """Ask for descriptors and read none."""
    while True:
        await client.ask(requests.Arenas([1, 2] * 64))


@pytest.mark.asyncio
async def test_clients_that_leave_descriptors_unread_are_dropped(tmp_socket_dir, arenas):
    """Who lets descriptors pile up is dropped in the end, and costs the daemon no descriptor."""
    async with serving(tmp_socket_dir, arenas=arenas) as rig:
        with await rig.client() as client, await rig.client() as other:
            before = open_descriptors()
            with pytest.raises((EOFError, ConnectionResetError, BrokenPipeError)):
                await ask_for_ever(client)
            assert isinstance(await other.ask(STATUS), replies.StatusReport)
            await until(lambda: open_descriptors() <= before)
