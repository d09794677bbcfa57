"""Notifications with the descriptors that travel in them, and who sent them.

`socket.recv_fds` is not used because it neither sets close-on-exec nor tells the sender. It has no part in the wire
protocol of clients, whose packets are in `kvledger.wire.descriptors`: a keeper imports nothing that is not needed here.
"""

import array
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kvledger.memfd import DescriptorError

__all__ = ["MAX_DESCRIPTORS", "Message", "Sender", "receive", "send"]

# SCM_MAX_FD of the kernel: more in one message is EINVAL.
MAX_DESCRIPTORS: Final = 253

_INT_BYTES: Final = array.array("i").itemsize
_CREDENTIALS: Final = struct.Struct("3i")
_ANCILLARY_BYTES: Final = socket.CMSG_SPACE(MAX_DESCRIPTORS * _INT_BYTES) + socket.CMSG_SPACE(_CREDENTIALS.size)


@dataclass(frozen=True, slots=True)
class Sender:
    """Who sent a message, on the word of the kernel; pid 0 if it lives outside the receiver's pid namespace."""

    pid: int
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Message:
    """One message with what came along.

    Attributes:
        data: Its bytes; empty at the end of a stream.
        descriptors: Open, close-on-exec, and the receiver's to close.
        sender: Only if the receiving socket has SO_PASSCRED.
        whole: False if bytes or descriptors were cut off.
    """

    data: bytes
    descriptors: tuple[int, ...]
    sender: Sender | None
    whole: bool

    def close(self) -> None:
        """Close all descriptors."""
        for fd in self.descriptors:
            os.close(fd)


def send(sock: socket.socket, data: bytes, descriptors: Sequence[int], flags: int = 0) -> None:
    """Send one message with up to 253 descriptors, which stay open here.

    Raises:
        DescriptorError: Too many descriptors.
        OSError: As `socket.sendmsg`.
    """
    if len(descriptors) > MAX_DESCRIPTORS:
        raise DescriptorError(
            f"{len(descriptors)} in one message", field="descriptors", remedy=f"send at most {MAX_DESCRIPTORS}"
        )
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    sock.sendmsg([data], ancillary, flags | socket.MSG_NOSIGNAL)


def receive(sock: socket.socket, limit: int, flags: int = 0) -> Message:
    """Receive one message of at most ``limit`` bytes, with its descriptors.

    Raises:
        OSError: As `socket.recvmsg`.
    """
    data, ancillary, status, _ = sock.recvmsg(limit, _ANCILLARY_BYTES, flags | socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    sender = None
    for level, kind, payload in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            descriptors.frombytes(payload[: len(payload) // _INT_BYTES * _INT_BYTES])
        elif level == socket.SOL_SOCKET and kind == socket.SCM_CREDENTIALS:
            sender = Sender(*_CREDENTIALS.unpack(payload))
    whole = not status & (socket.MSG_CTRUNC | socket.MSG_TRUNC)
    return Message(data, tuple(descriptors), sender, whole)
