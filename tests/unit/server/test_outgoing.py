"""Replies of one turn of the loop leave together, and none is lost when the connection closes."""

from __future__ import annotations

import asyncio
import socket
from functools import partial

import pytest

from kvledgerd.server.outbox import Outbox
from kvledgerd.server.protocol import RequestProtocol


class Transport(asyncio.Transport):
    """Keeps what is written to it, write by write."""

    def __init__(self, end):
        super().__init__({"socket": end})
        self.writes = []
        self.closed = False

    def set_write_buffer_limits(self, high=None, low=None):
        """Take the limits, which do not matter here."""

    def get_write_buffer_size(self):
        """Return that nothing waits."""
        return 0

    def write(self, data):
        """Keep one write."""
        self.writes.append(bytes(data))

    def is_closing(self):
        """Return whether it was closed."""
        return self.closed

    def close(self):
        """Note the end."""
        self.closed = True

    abort = close


class Handler:
    """Takes frames and does nothing."""

    def take(self, _body):
        """Take a frame."""
        return True

    def holds(self, _size):
        """Take note of the bytes."""

    def ended(self):
        """Take note of the end."""


@pytest.fixture
def stream():
    """A stream on a transport that keeps its writes; to be made on a running loop."""
    ours, theirs = socket.socketpair()

    def make():
        made = RequestProtocol(memoryview(bytearray(64)), lambda _: Handler(), 1.0, Outbox())
        transport = Transport(ours)
        made.connection_made(transport)
        return made, transport

    with ours, theirs:
        yield make


@pytest.mark.asyncio
async def test_frames_of_one_turn_are_one_write(stream):
    """Frames that are sent in one turn of the loop are written at once, in order, and later ones by themselves."""
    sender, transport = stream()
    sender.send(b"first")
    sender.send(b"second")
    assert transport.writes == []
    await asyncio.sleep(0)
    sender.send(b"third")
    await asyncio.sleep(0)
    assert transport.writes == [b"firstsecond", b"third"]


@pytest.mark.asyncio
async def test_a_turn_of_the_writer_loop_ends_with_its_replies():
    """What is sent in a turn leaves at its end, in the order of the connections."""
    outbox, left = Outbox(), []
    with outbox:
        for number in (1, 2):
            outbox.add(partial(left.append, number))
        assert left == []
    assert left == [1, 2]


@pytest.mark.asyncio
@pytest.mark.parametrize("size", [1, (1 << 20) + 1])
async def test_replies_that_can_not_be_sent_end_their_connection(stream, size):
    """A peer whose replies are lost to a failure sees its connection close, whether they waited for the turn or not."""
    sender, transport = stream()
    transport.write = None
    lost = []
    sender.send(bytes(size), lambda: lost.append(size))
    await asyncio.sleep(0)
    assert transport.closed
    sender.connection_lost(None)
    assert lost == [size]


@pytest.mark.asyncio
async def test_large_answers_do_not_pile_up(stream):
    """What passes a mebibyte is written without waiting for the turn's end."""
    sender, transport = stream()
    sender.send(bytes(1 << 20))
    sender.send(b"x")
    assert [len(written) for written in transport.writes] == [(1 << 20) + 1]


@pytest.mark.asyncio
async def test_closing_sends_what_waits_first(stream):
    """A refusal that is sent just before the connection closes still goes out."""
    sender, transport = stream()
    sender.send(b"refused")
    sender.close()
    assert transport.writes == [b"refused"]
    assert transport.closed


@pytest.mark.asyncio
async def test_nothing_is_written_to_a_lost_connection(stream):
    """Frames that wait when the peer goes away are dropped."""
    sender, transport = stream()
    sender.send(b"late")
    sender.connection_lost(None)
    await asyncio.sleep(0)
    assert transport.writes == []
