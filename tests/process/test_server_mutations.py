"""Every request, damaged in every byte and cut at every length: one answer each, and nobody else notices."""

from __future__ import annotations

import struct

import pytest

from kvledger.kinds import Kind
from kvledger.wire import replies, requests
from kvledger.wire.framing import FRAME_MIN, encode_frame
from support.shell import Client, Rig, SmallCore, serving
from support.tiny import tiny_layout

AT = requests.Boundary(bytes(32), 3, bytes(32))
REQUESTS = (
    requests.Hello((1, 1), bytes(16), name="x"),
    requests.Register(tiny_layout()),
    requests.Ring(4096),
    requests.Acquire(1, 20, bytes(32)),
    requests.Settle(1, 0),
    requests.Renew(0),
    requests.Abort(3),
    requests.Commit(3),
    requests.Fingerprints(1),
    requests.Arenas([1]),
    requests.Reserve(1, AT),
    requests.Put(1, [requests.PutRange(Kind.COMPRESSED_KV, 0, 0, 0, 16)]),
    requests.Evict(Kind.COMPRESSED_KV, 1, AT),
    requests.Offload(1, AT),
    requests.Restore(1, AT),
    requests.Describe(1, AT),
    requests.Status(),
)
# Damage in the middle of a layout is a matter of its fields, which are tested by themselves; the ends are enough here.
EDGE = 90


def damaged(body: bytes) -> list[bytes]:
    """Return a body cut at every length, and with every byte replaced in two ways."""
    places = [at for at in range(len(body)) if at < EDGE or at >= len(body) - EDGE]
    cut = [body[:at] for at in places if at >= FRAME_MIN]
    return cut + [body[:at] + bytes([body[at] ^ mask]) + body[at + 1 :] for at in places for mask in (0xFF, 0x01)]


async def answered(rig: Rig, client: Client, body: bytes) -> Client:
    """Send a body and take its one answer; return the client to go on with, a new one if the daemon closed this one."""
    await client.write(struct.pack("<I", len(body)) + body)
    number, reply = await client.reply()
    if number == 0 and isinstance(reply, replies.Failed) and await client.is_closed():
        client.close()
        return await rig.client()
    return client


@pytest.mark.hostile("FU01")
@pytest.mark.asyncio
async def test_damaged_requests_are_each_answered_once(tmp_socket_dir):
    """Some two thousand damaged requests each get one answer, and a good one is served as ever."""
    core = SmallCore(lookup=replies.Acquired(0, [], [], 0, 0, [], [], [], []), wait_ms=1)
    tried = 0
    async with serving(tmp_socket_dir, core=core) as rig:
        client = await rig.client()
        for request in REQUESTS:
            for body in damaged(encode_frame(5, request)[4:]):
                client = await answered(rig, client, body)
                tried += 1
        with client, await rig.client() as other:
            for healthy in (client, other):
                assert isinstance(await healthy.ask(requests.Status()), replies.StatusReport)
        assert rig.fatal == []
    assert tried > 2000
