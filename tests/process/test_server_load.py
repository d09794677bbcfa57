"""Many clients of the real daemon at once, and what is left when they are gone."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kvledger.testing import Daemon
from kvledger.wire.framing import REPLY_MAX, Splitter, decode_reply, encode_frame
from kvledger.wire.replies import StatusReport, Welcome
from kvledger.wire.requests import Hello, Request, Status

CONNECTIONS = 1000


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """Give one daemon to all tests of this module."""
    with Daemon(memory="16MiB", settings={"arena_bytes": "1MiB"}) as running:
        yield running


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """Let this process open as many descriptors as it ever may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def ask(sock: socket.socket, request: Request):
    """Send a request and return its reply."""
    sock.sendall(encode_frame(1, request))
    splitter = Splitter(REPLY_MAX)
    while True:
        data = sock.recv(1 << 16)
        assert data, "the daemon closed the connection"
        for body in splitter.feed(data):
            return decode_reply(body)[1]


def connected(daemon: Daemon) -> socket.socket:
    """Return a connection that has waited its turn."""
    sock = socket.socket(socket.AF_UNIX)
    # A blocking connect waits while the backlog is full; one with a timeout fails at once.
    sock.connect(str(daemon.socket))
    sock.settimeout(60)
    return sock


def held(daemon: Daemon) -> int:
    """Return how many descriptors the daemon has open."""
    return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))


def wait_for(condition, seconds: float = 60.0) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


@pytest.mark.hostile("LO01")
def test_a_thousand_connections_of_one_uid(daemon, many_descriptors):
    """A thousand engines of one uid are all let in and answered, and leave no descriptor and no engine behind."""
    before = held(daemon)
    clients = []
    try:
        for _ in range(CONNECTIONS):
            clients.append(connected(daemon))
            assert isinstance(ask(clients[-1], Hello((1, 1), os.urandom(16))), Welcome)
        report = ask(clients[0], Status())
        assert report.counters["connections"] == report.counters["engines"] == CONNECTIONS
        assert all(isinstance(ask(client, Status()), StatusReport) for client in clients)
    finally:
        for client in clients:
            client.close()

    wait_for(lambda: held(daemon) <= before)
    with connected(daemon) as client:
        ask(client, Hello((1, 1), os.urandom(16)))
        assert ask(client, Status()).counters["engines"] == 1


@pytest.mark.hostile("LO02")
@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_connects_and_closes(daemon, count):
    """Connections that come and go without a word leave nothing behind, and the next client is served."""
    before = held(daemon)
    for _ in range(count):
        connected(daemon).close()

    wait_for(lambda: held(daemon) <= before)
    daemon.wait_ready()


@pytest.mark.hostile("LO05")
def test_descriptors_run_out_and_come_back(daemon):
    """A daemon without a descriptor left turns new engines away or lets them wait, and goes on serving those it has."""
    first = connected(daemon)
    ask(first, Hello((1, 1), os.urandom(16)))
    soft, hard = resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (held(daemon) + 20, hard))
    clients, codes = [], []
    try:
        for _ in range(30):
            clients.append(connected(daemon))
            clients[-1].settimeout(0.2 if codes else 60)  # the first one has its descriptors
            try:
                codes.append(getattr(ask(clients[-1], Hello((1, 1), os.urandom(16))), "code", "welcome"))
            except (TimeoutError, ConnectionError, AssertionError):
                codes.append("waits")
            assert isinstance(ask(first, Status()), StatusReport)
    finally:
        resource.prlimit(daemon.pid, resource.RLIMIT_NOFILE, (soft, hard))
        for client in (first, *clients):
            client.close()

    assert codes[0] == "welcome"
    assert codes[-1] != "welcome"
    assert set(codes) <= {"welcome", "limit", "waits"}
    assert daemon.wait_ready().incarnation == 1
