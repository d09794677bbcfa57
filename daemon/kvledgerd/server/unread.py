"""What has to be taken back if a connection ends before its peer has read certain replies.

A lease or a reservation belongs to the engine, and lives on with its other connections. If the reply that names one is
lost with the connection that asked, nobody knows its number, so nobody would ever give it back.

That a reply was written tells nothing: it may lie unread in the peer's queue. The kernel knows: as long as the peer
lives, the bytes it has not read are counted for the sender; when it closes with bytes unread, the sender gets
ECONNRESET instead of the plain end. What was read is never taken back, since a sibling may use it.
"""

import fcntl
import socket
import struct
import termios
from asyncio.trsock import TransportSocket
from collections import deque
from collections.abc import Callable
from typing import Final

__all__ = ["Lost", "UnreadReplies"]

Lost = Callable[[], None]
"""Called once if the peer can not have read the reply."""


class UnreadReplies:
    """Replies of one connection that must not be lost unnoticed, by the offset of their last byte in the stream."""

    __slots__ = ("_replies", "_reset", "_written")

    def __init__(self) -> None:
        self._replies: Final[deque[tuple[int, Lost]]] = deque()
        self._written = 0
        self._reset = False

    def __bool__(self) -> bool:
        return bool(self._replies)

    def add(self, end: int, lost: Lost) -> None:
        """Note a reply that ends at this offset."""
        self._replies.append((end, lost))

    def written(self, offset: int) -> None:
        """Note that the kernel has taken everything up to this offset."""
        self._written = offset

    def look(self, end: TransportSocket) -> bool:
        """Forget what was written, if the peer has read all of it; return whether it has."""
        # In this order: a queue that is dropped counts nothing, but the error is there before it is dropped. Asking for
        # the error takes it away from whoever reads next, so it is kept.
        if _bytes_unread(end):
            return False
        self._reset = self._reset or bool(end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
        while self._replies and not self._reset and self._replies[0][0] <= self._written:
            self._replies.popleft()
        return not self._reset

    def ended(self, *, unread: bool) -> None:
        """Report what is lost: what was never written, and with `unread` also what may lie in the peer's queue."""
        while self._replies:
            end, lost = self._replies.popleft()
            if unread or end > self._written:
                lost()


def _bytes_unread(end: TransportSocket) -> int:
    found: int = struct.unpack("i", fcntl.ioctl(end.fileno(), termios.TIOCOUTQ, bytes(4)))[0]
    return found
