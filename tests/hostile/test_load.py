"""Too much of everything at once: refused by its limit or slowed down, while others are served and keep their bytes."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from kvledger.wire import requests

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


@pytest.mark.hostile("FLOOD")
def test_a_flood_of_short_frames_costs_others_a_turn(daemon, neighbour):
    """While sixteen connections send wrong frames as fast as they can, another's requests are each answered soon."""
    command = [sys.executable, "-c", FLOOD, str(daemon.socket), "16"]
    flood = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert flood.stdout.readline() == "flooding\n"
        for _ in range(5):
            began = time.monotonic()
            neighbour.cache.status()
            assert time.monotonic() - began < 2
    finally:
        flood.kill()
        flood.communicate()
