"""What a client is told while the daemon replays its log."""

import contextlib
import os
import socket
import time

import pytest

from kvledger import Cache
from kvledger.errors import DisconnectedError
from kvledger.testing import say_hello
from kvledgerd.server import waiting_room
from kvledgerd.server.waiting_room import WaitingRoom
from support.hostile_descriptors import LINGER_SECONDS, lingering


@pytest.fixture
def listener(tmp_socket_dir):
    """Give a listening socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(str(tmp_socket_dir / "s"))
        sock.listen(16)
        yield sock


def test_l48_hellos_are_answered_with_the_progress(listener):
    """L48: a client that opens a cache meanwhile is told at once how far the recovery is, and again when it asks."""
    with WaitingRoom([listener], patience=0.0) as room:
        for percent in (1, 42):
            room.status(f"recovering {percent} %: as a test says")
            with pytest.raises(DisconnectedError, match=f"recovering {percent} %"):
                Cache.open(listener.getsockname(), timeout=60)


def test_those_who_say_nothing_or_hang_up_delay_nobody(listener, monkeypatch):
    """A connection without a hello, and one that is gone already, are not waited for before the next is answered."""
    monkeypatch.setattr(waiting_room, "_HELLO_SECONDS", 600.0)
    with WaitingRoom([listener], patience=0.0):
        silent = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        silent.connect(listener.getsockname())
        gone = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        gone.connect(listener.getsockname())
        gone.close()
        with pytest.raises(DisconnectedError, match="recovering 0 %"):
            say_hello(listener.getsockname(), 60.0)
        silent.close()


def test_many_who_say_nothing_keep_nobody_from_his_answer(listener, monkeypatch):
    """Who says hello is answered while a dozen others before him are still waited for."""
    monkeypatch.setattr(waiting_room, "_HELLO_SECONDS", 600.0)
    with WaitingRoom([listener], patience=0.0), contextlib.ExitStack() as stack:
        silent = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) for _ in range(12)]
        for one in silent:
            one.connect(listener.getsockname())
        with pytest.raises(DisconnectedError, match="recovering 0 %"):
            say_hello(listener.getsockname(), 60.0)
        for one in silent:
            one.settimeout(0)
            with pytest.raises(BlockingIOError):
                one.recv(1)


@pytest.mark.hostile("DE06")
@pytest.mark.parametrize("body", [b"x", bytes(64), b""], ids=["part of a frame", "garbage", "as the first of two"])
def test_a_descriptor_that_closes_slowly_delays_nobody(listener, body):
    """A descriptor whose close takes a minute, sent while the log is replayed, delays neither the next nor the end."""
    fd, peer = lingering()
    began = time.monotonic()
    with WaitingRoom([listener], patience=0.2), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as hostile, peer:
        hostile.connect(listener.getsockname())
        if not body:
            hostile.sendall(b"x" * 4096)
        socket.send_fds(hostile, [body or b"x"], [fd])
        os.close(fd)
        with pytest.raises(DisconnectedError, match="recovering 0 %"):
            say_hello(listener.getsockname(), 60.0)
    assert time.monotonic() - began < LINGER_SECONDS / 2


def test_short_recoveries_are_not_noticed(listener):
    """Within its patience nobody is answered, and who has connected is left to the server."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as early:
        with WaitingRoom([listener], patience=60.0):
            early.connect(listener.getsockname())
        listener.settimeout(60)
        listener.accept()[0].close()
