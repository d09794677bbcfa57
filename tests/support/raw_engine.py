"""A raw client that knows how a prompt of the tiny layout is stored, one request at a time."""

from __future__ import annotations

import os
from contextlib import suppress

from kvledger.kinds import Kind
from kvledger.memfd import create_sealed
from kvledger.wire import replies, requests
from kvledger.wire.descriptors import RingPacket, receive_packet, send_packet
from support.shell import Client
from support.tiny import BLOCK, content

RING = 1 << 16
BLOCKS = 3
OBJECTS = BLOCKS + 1
"""What a unit of three blocks holds: three objects of rows, and the state at its end."""
OBJECT_BYTES = 8192
RING_BYTES = content(0, "any", 0, RING)


class Engine(Client):
    """A raw client of a daemon that can store a prompt, one request at a time."""

    @classmethod
    async def enter(cls, daemon, layout, engine=None):
        """Return a client that has said hello, registered a layout and sent a ring filled with its objects' bytes."""
        client = await cls.connect(daemon.socket)
        await client.hello(engine)
        client.layout = (await client.ask(requests.Register(layout))).layout
        client.hashes = os.urandom(32 * BLOCKS)
        client.ring, client.arenas = create_sealed("ring", RING), {}
        os.pwrite(client.ring, RING_BYTES, 0)
        assert await client.send_ring(client.ring, RING) == replies.Done()
        return client

    async def send_ring(self, fd, size):
        """Send a descriptor as the ring, and return the answer."""
        send_packet(self.channel, RingPacket(size), fd)
        return await self.ask(requests.Ring(size))

    @property
    def end(self):
        """The boundary of this client's own prompt."""
        return requests.Boundary(self.hashes)

    async def reserve(self):
        """Return the number of a reservation of this client's own prompt."""
        return (await self.ask(requests.Reserve(self.layout, self.end))).unit

    def put(self, unit, objects=range(OBJECTS)):
        """Return the request that hands all bytes of these objects in."""
        return requests.Put(unit, [self.range_of(index) for index in objects])

    def range_of(self, index, offset=0, ring_offset=0, length=OBJECT_BYTES):
        """Return a range of one object; all of it, from the start of the ring, unless told otherwise."""
        kind = Kind.COMPRESSED_KV if index < BLOCKS else Kind.UNCOMPRESSED_TAIL
        return requests.PutRange(kind, index, offset, ring_offset, length)

    async def store(self):
        """Store this client's prompt and return the number of its reservation, which is over."""
        unit = await self.reserve()
        assert await self.ask(self.put(unit)) == replies.Done()
        assert isinstance(await self.ask(requests.Commit(unit)), replies.Committed)
        return unit

    def lookup(self):
        """Return the request that looks this client's prompt up."""
        return requests.Acquire(self.layout, BLOCK * BLOCKS + 1, self.hashes)

    def take_arenas(self):
        """Return the descriptors of all arenas that were sent so far, by their numbers."""
        with suppress(BlockingIOError):
            while True:
                packet, fd = receive_packet(self.channel)
                self.arenas[packet.arena] = fd
        return self.arenas

    def close(self):
        """Close everything."""
        super().close()
        for fd in (self.ring, *self.arenas.values()):
            os.close(fd)
