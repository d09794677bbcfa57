"""The descriptor socket: how arenas and rings change hands.

The reply to `Hello` carries exactly one descriptor: the client's end of a `SOCK_SEQPACKET` pair that the daemon made.
It exists because the transports that serve the request socket carry no descriptors. Each packet on it carries one
descriptor and says what it is, all numbers little-endian without padding:

========  ================  =======================================  =====================================
type      direction         fields after (u8 version, u8 type)       descriptor
========  ================  =======================================  =====================================
1, arena  daemon to client  u32 arena id, u64 bytes of its data      the arena's memfd, opened read-only
2, ring   client to daemon  u64 size in bytes                        the ring's memfd, SHRINK, GROW sealed
========  ================  =======================================  =====================================

Order stands in for acknowledgement. The daemon sends an arena once for each connection and always before the reply
whose handles name it, so a client that finds an unknown id in a reply has the packet waiting. The client sends its ring
before the `Ring` request, so the daemon finds the packet waiting when it reads that request.

Only the standard library and the errors are used, and nothing here waits: both ends set the socket non-blocking.
"""

import array
import os
import socket
import struct
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kvledger.errors import ProtocolError

__all__ = [
    "MAX_DESCRIPTORS",
    "ArenaPacket",
    "RingPacket",
    "close_all",
    "decode_packet",
    "encode_packet",
    "receive_packet",
    "receive_with_descriptors",
    "send_packet",
]

MAX_DESCRIPTORS: Final = 253
"""The most that Linux puts into one message (SCM_MAX_FD); room is made for all, so that none is left unclosed."""

_VERSION: Final = 1
_HEAD: Final = struct.Struct("<BB")
_ARENA: Final = struct.Struct("<BBIQ")
_RING: Final = struct.Struct("<BBQ")
_ARENA_TYPE: Final = 1
_RING_TYPE: Final = 2
_PACKET_MAX: Final = 64


class ArenaPacket(NamedTuple):
    """An arena comes: its id and the bytes of its data area."""

    arena: int
    data_bytes: int


class RingPacket(NamedTuple):
    """A staging ring comes: its size in bytes."""

    size: int


def encode_packet(packet: ArenaPacket | RingPacket) -> bytes:
    """Return the bytes of a packet."""
    if isinstance(packet, ArenaPacket):
        return _ARENA.pack(_VERSION, _ARENA_TYPE, *packet)
    return _RING.pack(_VERSION, _RING_TYPE, *packet)


def decode_packet(data: bytes) -> ArenaPacket | RingPacket:
    """Return what a packet says.

    Raises:
        ProtocolError: Its version, type or length is none of this protocol.
    """
    if len(data) < _HEAD.size:
        raise _refusal("length", f"a packet of {len(data)} bytes has no head")
    version, number = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise _refusal("version", f"packets of version {version} are not spoken here, only {_VERSION}")
    if number == _ARENA_TYPE and len(data) == _ARENA.size:
        return ArenaPacket(*_ARENA.unpack(data)[2:])
    if number == _RING_TYPE and len(data) == _RING.size:
        return RingPacket(*_RING.unpack(data)[2:])
    raise _refusal("type", f"no packet has type {number} and {len(data)} bytes")


def send_packet(end: socket.socket, packet: ArenaPacket | RingPacket, descriptor: int) -> None:
    """Send a packet with its descriptor, which stays the caller's.

    Raises:
        BlockingIOError: The socket is non-blocking and the peer has not read earlier packets; try again later.
        OSError: The peer is gone.
    """
    socket.send_fds(end, [encode_packet(packet)], [descriptor])


def close_all(descriptors: Iterable[int]) -> None:
    """Close descriptors that nobody wants."""
    for descriptor in descriptors:
        os.close(descriptor)


def receive_packet(
    end: socket.socket, close: Callable[[Iterable[int]], None] = close_all
) -> tuple[ArenaPacket | RingPacket, int] | None:
    """Return the next packet with its descriptor, which is the caller's to close; None when the peer is gone.

    Args:
        end: This side's end of the descriptor socket.
        close: Closes what a malformed packet brought; of a peer that is not trusted a close may take long.

    Raises:
        BlockingIOError: The socket is non-blocking and no packet waits.
        ProtocolError: The packet is malformed or brings not exactly one descriptor; all it brought are closed.
    """
    data, descriptors = receive_with_descriptors(end, _PACKET_MAX, close)
    if not data and not descriptors:
        return None
    try:
        packet = decode_packet(data)
        if len(descriptors) != 1:
            raise _refusal("descriptors", f"a packet brought {len(descriptors)} descriptors instead of one")
    except ProtocolError:
        close(descriptors)
        raise
    return packet, descriptors[0]


def receive_with_descriptors(
    end: socket.socket, size: int, close: Callable[[Iterable[int]], None] = close_all
) -> tuple[bytes, list[int]]:
    """Receive up to `size` bytes and all descriptors that come with them, close-on-exec from birth.

    Raises:
        BlockingIOError: The socket is non-blocking and nothing waits.
        ProtocolError: The kernel cut the message short; the descriptors that came are closed.
    """
    numbers = array.array("i")
    room = socket.CMSG_SPACE(MAX_DESCRIPTORS * numbers.itemsize)
    data, control, flags, _ = end.recvmsg(size, room, socket.MSG_CMSG_CLOEXEC)
    for level, kind, raw in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers.frombytes(raw[: len(raw) - len(raw) % numbers.itemsize])
    if flags & (socket.MSG_CTRUNC | socket.MSG_TRUNC):
        close(numbers)
        raise _refusal("descriptors", "a message was cut short, perhaps by this process's limit of open files")
    return data, list(numbers)


def _refusal(field: str, why: str) -> ProtocolError:
    return ProtocolError(why, field=field, remedy="send packets as docs/protocol.md describes the descriptor socket")
