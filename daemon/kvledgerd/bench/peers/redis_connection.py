"""Redis's protocol, as little of it as the rows about peers ask for, from memory to memory.

The usual client library is not used: it copies every value several times, and took three to six times as long for the
same bytes. What is measured is the server, at its best: one value after the other, sent from where it lies and received
where it belongs.
"""

import socket
from pathlib import Path
from typing import Final

from kvledgerd.bench.contents import require

__all__ = ["Connection"]

_PIECE: Final = 64 << 10
_END: Final = b"\r\n"


class Connection:
    """One blocking connection.

    Args:
        path: The server's socket.
    """

    def __init__(self, path: Path) -> None:
        self._socket: Final = socket.socket(socket.AF_UNIX)
        try:
            self._socket.connect(str(path))
        except OSError:
            self._socket.close()
            raise

    def close(self) -> None:
        """Hang up."""
        self._socket.close()

    def ask(self, *words: bytes) -> bytes:
        """Send a command and return its answer, which is short."""
        self._socket.sendall(_command(*words))
        return self._socket.recv(_PIECE)

    def set(self, key: bytes, value: memoryview) -> None:
        """Store a value."""
        self._socket.sendall(b"*3\r\n" + _bulk(b"SET") + _bulk(key) + b"$%d\r\n" % len(value))
        self._socket.sendall(value)
        self._socket.sendall(b"\r\n")
        answer = self._socket.recv(_PIECE)
        require(answer == b"+OK\r\n", f"a value is stored, got {answer!r}")

    def get(self, key: bytes, target: memoryview) -> None:
        """Receive a value of a known size."""
        self._socket.sendall(_command(b"GET", key))
        head = b"$%d\r\n" % len(target)
        answer = self._socket.recv(len(head), socket.MSG_WAITALL)
        require(answer == head, f"a value of {len(target)} bytes, got {answer!r}")
        while target:
            count = self._socket.recv_into(target)
            require(count, "the server goes on answering")
            target = target[count:]
        self._socket.recv(len(_END), socket.MSG_WAITALL)


def _bulk(word: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(word), word)


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(map(_bulk, words))
