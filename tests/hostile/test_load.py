"""Too much of everything at once: refused by its limit or slowed down, while others are served and keep their bytes."""

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

from kvledger import Cache, Kind
from kvledger.errors import CapacityError
from kvledger.testing import Daemon
from kvledger.wire import replies, requests
from kvledger.wire.framing import REQUEST_MAX, encode_frame
from support.neighbour import Neighbour
from support.raw_engine import Engine
from support.shell import Client
from support.soak.measures import own_bytes
from support.tiny import prompt, store, tiny_layout

STATUS = requests.Status()

FLOOD = """
import os, select, socket, struct, sys
from kvledger.wire.framing import encode_frame
from kvledger.wire.requests import Hello
flood = (struct.pack("<I", 10) + b"\\x92\\x05\\x92\\xa5renew\\xff") * 100_000
poll, socks, at = select.poll(), {}, {}
for _ in range(int(sys.argv[2])):
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(sys.argv[1])
    sock.sendall(encode_frame(1, Hello((1, 1), os.urandom(16))))
    sock.recv(4096)
    sock.setblocking(False)
    socks[sock.fileno()], at[sock.fileno()] = sock, 0
    poll.register(sock, select.POLLIN | select.POLLOUT)
print("flooding", flush=True)
while True:
    for fd, what in poll.poll():
        if what & select.POLLIN:
            socks[fd].recv(1 << 20)
        if what & select.POLLOUT:
            at[fd] = (at[fd] + socks[fd].send(memoryview(flood)[at[fd] :])) % len(flood)
"""


@pytest.mark.hostile("LO12")
def test_a_flood_of_short_frames_costs_others_a_turn(daemon, neighbour):
    """While sixteen connections send wrong frames as fast as they can, another's requests are each answered soon."""
    command = [sys.executable, "-c", FLOOD, str(daemon.socket), "16"]
    flood = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert flood.stdout.readline() == "flooding\n"
        for _ in range(5):
            began = time.monotonic()
            neighbour.cache.status()
            assert time.monotonic() - began < 5
    finally:
        flood.kill()
        flood.communicate()


@pytest.mark.hostile("LO03")
@pytest.mark.slow
@pytest.mark.timeout(180)
def test_clients_that_never_read_are_dropped(daemon, neighbour):
    """Twenty clients that ask without reading cost a bounded amount of memory, delay nobody, and are dropped."""
    before = own_bytes(daemon.pid)
    clients = [deaf(daemon) for _ in range(20)]
    end = time.monotonic() + 90
    while clients := [sock for sock in clients if asks_on(sock)]:
        began = time.monotonic()
        neighbour.is_served()
        assert time.monotonic() - began < 5
        assert own_bytes(daemon.pid) - before < 256 << 20
        assert time.monotonic() < end
        time.sleep(0.2)


def deaf(daemon):
    """Return a connection that has said hello and will never read again."""
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(str(daemon.socket))
    sock.sendall(encode_frame(1, requests.Hello((1, 1), os.urandom(16))))
    assert sock.recv(4096)
    sock.settimeout(0)
    return sock


def asks_on(sock):
    """Send as many requests as the daemon takes; tell whether it still does, and close the connection if not."""
    try:
        while True:
            sock.send(encode_frame(5, STATUS) * 100)
    except BlockingIOError:
        return True
    except OSError:
        sock.close()
        return False


@pytest.mark.hostile("LO06")
@pytest.mark.slow
def test_a_full_backlog_turns_away_and_is_worked_off(daemon, neighbour):
    """While a stopped daemon's backlog is full further connects fail at once; continued, it serves all that wait."""
    os.kill(daemon.pid, signal.SIGSTOP)
    waiting = []
    try:
        for _ in range(10_000):
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            try:
                sock.connect(str(daemon.socket))
            except BlockingIOError:
                sock.close()
                break
            waiting.append(sock)
            sock.send(encode_frame(1, requests.Hello((1, 1), os.urandom(16))))
        else:
            pytest.fail("the backlog has no end")
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    answered = 0
    for sock in waiting:
        sock.settimeout(60)
        answered += bool(sock.recv(4096))
        sock.close()
    assert answered == len(waiting) > 50


@pytest.mark.hostile("LO07")
@pytest.mark.slow
def test_sixty_four_clients_that_reserve_up_to_the_cap_at_the_same_instant():
    """Whoever asks at once for more than there is gets room or a refusal; what another has leased stays."""
    with Daemon(memory="16MiB", settings={"arena_bytes": "1MiB"}) as daemon, Neighbour(daemon) as neighbour:
        hits = [neighbour.cache.acquire(neighbour.layout, [*prompt(seed), 7]) for seed in (1, 2)]
        with neighbour.unharmed():
            answers = asyncio.run(reserved_at_once(daemon, neighbour.layout.layout, 64))
            refused = [reply for reply in answers if isinstance(reply, replies.Failed)]
            assert {type(reply) for reply in answers} == {replies.Reserved, replies.Failed}
            assert {reply.code for reply in refused} == {"capacity"}
            assert all(reply.remedy for reply in refused)
        for hit in hits:
            hit.check()
            hit.release()


async def reserved_at_once(daemon, layout, clients):
    """Send twice as many reservations as there is room for, all before the first answer is read."""
    engines = [await Engine.enter(daemon, layout) for _ in range(clients)]
    each = 2 * (16 << 20) // 40960 // clients
    for engine in engines:
        frames = [requests.Reserve(engine.layout, requests.Boundary(os.urandom(96))) for _ in range(each)]
        await engine.write(b"".join(encode_frame(number, frame) for number, frame in enumerate(frames, 10)))
    answers = [(await asyncio.wait_for(engine.reply(), 60))[1] for engine in engines for _ in range(each)]
    for engine in engines:
        engine.close()
    return answers


@pytest.mark.hostile("LO08")
@pytest.mark.slow
def test_a_flood_of_tiny_objects_is_bounded():
    """Two thousand prompts of the smallest objects make room among themselves, and the daemon stays as it is."""
    with Daemon(memory="16MiB", settings={"arena_bytes": "1MiB"}) as daemon, Neighbour(daemon) as neighbour:
        hit = neighbour.cache.acquire(neighbour.layout, [*prompt(1), 7])
        with Cache.open(daemon.socket, staging_bytes=1 << 16) as flood:
            layout = flood.register(tiny_layout("flood"))
            before = 0
            for seed in range(2000):
                with contextlib.suppress(CapacityError):
                    store(flood, layout, seed, 17)
                if seed == 500:
                    before = own_bytes(daemon.pid)
            assert own_bytes(daemon.pid) - before < 32 << 20
            counters = flood.status().counters
            assert sum(counters[f"live_bytes.{kind.name}"] for kind in Kind) <= 16 << 20
        hit.check()
        hit.release()
        neighbour.is_served()


@pytest.mark.hostile("LO11")
@pytest.mark.asyncio
async def test_a_look_up_of_a_million_hashes_is_refused_by_its_length(daemon):
    """A million hashes pass the cap of a frame; the most that fit are answered, while another client is served."""
    with await Client.connect(daemon.socket) as client, await Client.connect(daemon.socket) as other:
        await client.hello()
        await other.hello()
        number = (await client.ask(requests.Register(tiny_layout()))).layout
        most = (REQUEST_MAX - 64) // 32
        await client.send(requests.Acquire(number, 16 * most, os.urandom(32 * most)), number=9)
        began = time.monotonic()
        assert isinstance(await other.ask(STATUS), replies.StatusReport)
        assert time.monotonic() - began < 5
        found, reply = await client.reply()
        assert (found, reply.usable_tokens) == (9, 0)
        await client.write(struct.pack("<I", 32_000_000) + bytes(64))
        assert (await client.reply())[1].field == "length"
        assert await client.is_closed()
