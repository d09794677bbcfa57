"""A connection that ends before its replies were read takes their receipts with it, though its engine lives on."""

from __future__ import annotations

import asyncio
import os

import pytest

from kvledger.errors import ProtocolError
from kvledger.wire import replies, requests
from kvledgerd.server import session
from support.shell import SmallCore, serving, until

LEASED = replies.Acquired(77, [], [], 0, 0, [], [], [], [])
LOOKUP = requests.Acquire(1, 0, b"")


def leasing() -> SmallCore:
    """Return a core that answers every look-up with lease 77."""
    return SmallCore(lookup=LEASED)


def given_back(rig) -> list[int]:
    """Return the leases that the core was told to end."""
    bodies = [getattr(command, "body", None) for command in rig.core.decided]
    return [body.lease for body in bodies if isinstance(body, requests.Release)]


async def asked(rig, count: int) -> None:
    """Wait until the core has decided look-ups, and for the replies to leave."""
    await until(lambda: sum(getattr(c, "body", None) == LOOKUP for c in rig.core.decided) == count)
    await asyncio.sleep(0.02)


@pytest.mark.asyncio
async def test_replies_that_lie_unread_are_taken_back(tmp_socket_dir):
    """A lease whose reply was written and never read is given back when its connection ends."""
    engine = os.urandom(16)
    async with serving(tmp_socket_dir, core=leasing()) as rig:
        with await rig.client(engine):
            dying = await rig.client(engine)
            await dying.send(LOOKUP)
            await dying.send(LOOKUP)
            await asked(rig, 2)
            assert given_back(rig) == []
            dying.close()
            await until(lambda: given_back(rig) == [77, 77])


@pytest.mark.asyncio
async def test_requests_in_flight_at_the_end_are_taken_back(tmp_socket_dir):
    """Leases that are decided after their connection closed are given back, whenever the close is noticed."""
    engine = os.urandom(16)
    async with serving(tmp_socket_dir, core=leasing()) as rig:
        with await rig.client(engine):
            for _ in range(20):
                dying = await rig.client(engine)
                for _ in range(5):
                    await dying.send(LOOKUP)
                dying.close()
            decided = rig.core.decided
            await until(lambda: rig.server.connections == 1)
            await rig.writer.acknowledged()
            assert len(given_back(rig)) == sum(getattr(command, "body", None) == LOOKUP for command in decided) > 0


@pytest.mark.asyncio
async def test_replies_that_were_read_are_left_alone(tmp_socket_dir):
    """A lease whose reply was read stays with the engine when its connection ends, since a sibling may use it."""
    engine = os.urandom(16)
    async with serving(tmp_socket_dir, core=leasing()) as rig:
        with await rig.client(engine) as living:
            dying = await rig.client(engine)
            assert await dying.ask(LOOKUP) == LEASED
            assert await dying.ask(LOOKUP) == LEASED
            await dying.send(requests.Status())
            await asyncio.sleep(0.02)
            dying.close()
            await until(lambda: rig.server.connections == 1)
            await living.ask(requests.Status())
            assert given_back(rig) == []


@pytest.mark.asyncio
async def test_replies_above_the_cap_are_taken_back(tmp_socket_dir, monkeypatch):
    """A lease whose reply is refused for its size is given back: the refusal does not name it."""
    real = session.encode_frame

    def capped(number, message, most):
        if isinstance(message, replies.Acquired):
            raise ProtocolError("too large", field="length")
        return real(number, message, most)

    monkeypatch.setattr(session, "encode_frame", capped)
    async with serving(tmp_socket_dir, core=leasing()) as rig:
        with await rig.client() as client:
            assert isinstance(await client.ask(LOOKUP), replies.Failed)
            await until(lambda: given_back(rig) == [77])
