"""What daemon and tensor process say to each other, over one stream that nobody else has an end of.

The daemon begins, hands arenas over as they are needed (descriptors travel with the message), and gives one job at a
time; each job is answered. Frames are a length and msgpack, decoded into types: the process is trusted no further than
its answers fit these.
"""

import os
import socket
import struct
import time
from typing import Final

import msgspec

from kvledgerd.keeper import messages

__all__ = ["Begin", "Done", "Failed", "FromProcess", "Give", "Job", "Link", "Ready", "Refused", "ToProcess"]

_HEAD: Final = struct.Struct("<I")
# An effect over a million tokens has some 20,000 objects of 200 bytes
_FRAME_MAX: Final = 256 << 20


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """The first message: which device to work on, and whose arenas will come."""

    device: str
    log_id: bytes
    boot_id: bytes


class Give(msgspec.Struct, frozen=True, tag="give"):
    """An arena, whose descriptor comes along."""

    arena: int


class Job(msgspec.Struct, frozen=True, tag="job"):
    """One effect of a sort."""

    sort: str
    effect: msgspec.Raw


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The device works, and is this one."""

    device: str


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """The device can not be used."""

    why: str
    remedy: str


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The answer to a job."""

    answer: msgspec.Raw


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """A job could not be done; the process goes on."""

    why: str


ToProcess = Begin | Give | Job
FromProcess = Ready | Refused | Done | Failed

_encoder: Final = msgspec.msgpack.Encoder()
_to_process: Final = msgspec.msgpack.Decoder(ToProcess)
_from_process: Final = msgspec.msgpack.Decoder(FromProcess)


class Link:
    """One end of the stream; every call blocks.

    Args:
        sock: The end; the link's to close.
    """

    def __init__(self, sock: socket.socket) -> None:
        self._socket: Final = sock

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def send(self, message: ToProcess | FromProcess, end: float | None = None, descriptor: int | None = None) -> None:
        """Send a message.

        Args:
            message: It.
            end: Until when, monotonic seconds; None for ever.
            descriptor: Goes along; for small messages.

        Raises:
            TimeoutError: The other side takes nothing.
            OSError: It is gone.
        """
        data = _encoder.encode(message)
        self._limit(end)
        frame = _HEAD.pack(len(data)) + data
        if descriptor is None:
            self._socket.sendall(frame)
        else:
            messages.send(self._socket, frame, [descriptor])

    def receive_job(self) -> tuple[ToProcess, int | None]:
        """Wait for a message of the daemon and return it with its descriptor.

        Raises:
            EOFError: The daemon is gone.
        """
        data, descriptor = self._receive(None)
        return _to_process.decode(data), descriptor

    def receive_answer(self, end: float) -> FromProcess:
        """Wait for a message of the process.

        Raises:
            TimeoutError: None came until `end`.
            EOFError: The process is gone.
            OSError: So it is.
            msgspec.MsgspecError: It is none.
        """
        data, descriptor = self._receive(end)
        if descriptor is not None:
            os.close(descriptor)
        return _from_process.decode(data)

    def _receive(self, end: float | None) -> tuple[bytearray, int | None]:
        self._limit(end)
        head = messages.receive(self._socket, _HEAD.size)
        try:
            data = self._body(head.data, end)
        except BaseException:
            head.close()
            raise
        return data, next(iter(head.descriptors), None)

    def _body(self, begun: bytes, end: float | None) -> bytearray:
        """Return what follows a head of which the first bytes have come."""
        if not begun:
            raise EOFError
        head = bytearray(begun.ljust(_HEAD.size, b"\0"))
        self._fill(memoryview(head)[len(begun) :], end)
        (length,) = _HEAD.unpack(head)
        if length > _FRAME_MAX:
            raise ConnectionError(f"a frame of {length} bytes")
        data = bytearray(length)
        self._fill(memoryview(data), end)
        return data

    def _fill(self, view: memoryview, end: float | None) -> None:
        while view:
            self._limit(end)
            count = self._socket.recv_into(view)
            if not count:
                raise EOFError
            view = view[count:]

    def _limit(self, end: float | None) -> None:
        left = None if end is None else end - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
