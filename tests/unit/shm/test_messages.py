import fcntl
import os
import socket

import pytest

from kvledger.memfd import DescriptorError
from kvledgerd.keeper.messages import MAX_DESCRIPTORS, receive, send
from support.shm import open_descriptors


@pytest.fixture
def pair():
    """Give two connected message sockets; the second one learns who sends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    with ours, theirs:
        yield ours, theirs


@pytest.mark.parametrize("count", [0, 1, MAX_DESCRIPTORS])
def test_descriptors_arrive_whole_and_close_on_exec(pair, count):
    """None, one and as many as the kernel allows arrive as one message, named by their sender."""
    ours, theirs = pair
    fd = os.memfd_create("x")
    before = open_descriptors()
    send(ours, b"data", [fd] * count)
    message = receive(theirs, 100)
    assert (message.data, len(message.descriptors), message.whole) == (b"data", count, True)
    assert (message.sender.pid, message.sender.uid) == (os.getpid(), os.getuid())
    assert all(fcntl.fcntl(got, fcntl.F_GETFD) & fcntl.FD_CLOEXEC for got in message.descriptors)
    message.close()
    assert open_descriptors() == before
    os.close(fd)


def test_one_descriptor_too_many_is_refused_before_it_is_sent(pair):
    """254 descriptors are refused by name, and the connection can be used afterwards."""
    ours, theirs = pair
    with pytest.raises(DescriptorError, match="254 in one message"):
        send(ours, b"data", [0] * (MAX_DESCRIPTORS + 1))
    send(ours, b"next", [])
    assert receive(theirs, 100).data == b"next"


def test_cut_message_says_so(pair):
    """A message longer than the receiver's limit is marked, so that nobody believes half of it."""
    ours, theirs = pair
    send(ours, b"0123456789", [])
    message = receive(theirs, 4)
    assert (message.data, message.whole) == (b"0123", False)


def test_end_of_stream_is_an_empty_message(pair):
    """A peer that closed its socket is read as an empty message without descriptors."""
    ours, theirs = pair
    ours.close()
    message = receive(theirs, 100)
    assert (message.data, message.descriptors) == (b"", ())
