"""A connection without the client library: frames made beforehand go out, bodies come back.

Rows that compare servers use it for both, so that the client's own work is the same on either side, and small.
"""

import os
import socket
import struct
from pathlib import Path
from typing import Final

from kvledger.wire.framing import decode_reply, encode_frame
from kvledger.wire.replies import Reply, Welcome
from kvledger.wire.requests import PROTOCOL_VERSION, Hello
from kvledgerd.bench.contents import require

__all__ = ["RawClient", "greeted"]

_LENGTH: Final = struct.Struct("<I")
# A buffer that the C library does not map anew for each read, which would cost as much as a small server.
_PIECE: Final = 64 << 10


class RawClient:
    """One blocking connection.

    Args:
        path: The server's socket.
    """

    def __init__(self, path: Path) -> None:
        self.socket: Final = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.connect(str(path))
        self._held = bytearray()
        self._descriptors: list[int] = []

    def hello(self) -> Welcome:
        """Say hello as an engine of its own and keep the descriptor socket that comes with the answer."""
        self.send(encode_frame(1, Hello((PROTOCOL_VERSION, PROTOCOL_VERSION), os.urandom(16), name="bench")))
        data, self._descriptors, _, _ = socket.recv_fds(self.socket, _PIECE, 1)
        self._held += data
        _, reply = decode_reply(self.receive())
        require(isinstance(reply, Welcome), f"hello is answered with a welcome, got {reply!r}")
        assert isinstance(reply, Welcome), "it was just required"
        return reply

    def send(self, frame: bytes) -> None:
        """Send a whole frame."""
        self.socket.sendall(frame)

    def receive(self) -> bytes:
        """Return the next body, waiting for it."""
        while (body := self.cut()) is None:
            self.read()
        return body

    def read(self) -> None:
        """Take in what has arrived, waiting if nothing has.

        Raises:
            ConnectionError: The server has hung up.
        """
        data = self.socket.recv(_PIECE)
        if not data:
            raise ConnectionError("the server has hung up")
        self._held += data

    def cut(self) -> bytes | None:
        """Return the next body if all of it has arrived."""
        held = self._held
        if len(held) < _LENGTH.size:
            return None
        end = _LENGTH.size + _LENGTH.unpack_from(held)[0]
        if len(held) < end:
            return None
        body = bytes(memoryview(held)[_LENGTH.size : end])
        del held[:end]
        return body

    def ask(self, frame: bytes) -> Reply:
        """Send a frame and return the reply."""
        self.send(frame)
        return decode_reply(self.receive())[1]

    def close(self) -> None:
        """Hang up."""
        self.socket.close()
        for descriptor in self._descriptors:
            os.close(descriptor)
        self._descriptors = []


def greeted(path: Path) -> tuple[RawClient, Welcome]:
    """Return a connection to a daemon after its hello."""
    client = RawClient(path)
    return client, client.hello()
