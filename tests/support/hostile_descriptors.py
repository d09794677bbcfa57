"""Descriptors of everything that is no ring, as a hostile client may send them in a ring's place."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
from pathlib import Path

from kvledger.memfd import create_sealed
from kvledger.wire.descriptors import RingPacket, encode_packet

SIZE = 64 << 10
"""What the client declares."""


def directory(_path: Path) -> int:
    """Return a directory."""
    return os.open("/", os.O_RDONLY | os.O_DIRECTORY)


def device(_path: Path) -> int:
    """Return a device."""
    return os.open("/dev/zero", os.O_RDWR)


def plain_file(path: Path) -> int:
    """Return a file of a file system."""
    fd = os.open(path / "file", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, SIZE)
    return fd


def path_only(path: Path) -> int:
    """Return a descriptor that only names a file."""
    os.close(plain_file(path))
    return os.open(path / "file", os.O_PATH)


def pipe(_path: Path) -> int:
    """Return one end of a pipe."""
    ours, theirs = os.pipe()
    os.close(theirs)
    return ours


def a_socket(_path: Path) -> int:
    """Return one end of a socket pair."""
    ours, theirs = socket.socketpair()
    theirs.close()
    return ours.detach()


def unsealed(_path: Path) -> int:
    """Return a memfd that may still be shrunk."""
    fd = os.memfd_create("unsealed", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, SIZE)
    return fd


def write_only(_path: Path) -> int:
    """Return a right ring that can not be read."""
    fd = create_sealed("ring", SIZE)
    try:
        return os.open(f"/proc/self/fd/{fd}", os.O_WRONLY)
    finally:
        os.close(fd)


def half_sealed(_path: Path) -> int:
    """Return a memfd of which one seal is missing."""
    fd = unsealed(_path)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)
    return fd


def other_size(_path: Path) -> int:
    """Return a ring of another size than declared."""
    return create_sealed("ring", 2 * SIZE)


def log_file(path: Path) -> int:
    """Return the event log's own segment, if the folder is a data directory; else a file like it."""
    segments = sorted(path.glob("log/*.seg"))
    return os.open(segments[0], os.O_RDWR) if segments else plain_file(path)


def event(_path: Path) -> int:
    """Return a descriptor behind which there is no file at all."""
    return os.eventfd(0)


def empty(_path: Path) -> int:
    """Return a sealed memfd without a byte."""
    return create_sealed("ring", 0)


HOSTILE = [
    event,
    empty,
    log_file,
    directory,
    device,
    plain_file,
    path_only,
    pipe,
    a_socket,
    unsealed,
    write_only,
    half_sealed,
    other_size,
]


def send_ring(channel: socket.socket, fds: list[int], size: int = SIZE) -> None:
    """Send a ring packet with descriptors and close them here."""
    socket.send_fds(channel, [encode_packet(RingPacket(size))], fds)
    for fd in fds:
        os.close(fd)


LINGER_SECONDS = 60


def lingering():
    """Return a socket whose last close waits for its peer, and the peer, which reads nothing."""
    listener = socket.create_server(("127.0.0.1", 0))
    sock = socket.create_connection(listener.getsockname())
    peer, _ = listener.accept()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, LINGER_SECONDS))
    sock.settimeout(0)
    with contextlib.suppress(BlockingIOError):
        while True:
            sock.send(bytes(1 << 16))
    listener.close()
    return sock.detach(), peer


def close_quickly(fd):
    """Close a lingering socket that nobody else holds, without waiting."""
    with socket.socket(fileno=fd) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 0, 0))
