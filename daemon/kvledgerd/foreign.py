"""Descriptors that others sent and nobody wants: taken out of the sockets they came over, and closed elsewhere.

To close a descriptor can take as long as its sender likes: the last close of a socket that lingers waits until its peer
has read everything, that of a file waits for whoever serves the file system. And a close can not be avoided: what a
reader makes no room for is closed by the kernel in the reader's own thread, and so is what still lies in the queue of a
socket that is closed. A client could stop the loop like that for hours, and any process on the machine the keeper.

So room is made for descriptors wherever somebody else may write to a socket, queues are emptied before a socket is
closed, and what was found is closed by threads that nobody waits for. Their number is bounded: who sends files that can
not be closed keeps them open here as long as he keeps them hanging, and costs nobody a turn.
"""

import array
import os
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterable
from typing import Final

__all__ = ["ROOM", "close_elsewhere", "descriptors_in", "empty"]

_INT_BYTES: Final = array.array("i").itemsize
ROOM: Final = socket.CMSG_SPACE(253 * _INT_BYTES)
"""Bytes of control data that the descriptors of one message take at most; the kernel allows 253."""

_THREADS_MAX: Final = 8
_NO_LINGER: Final = struct.pack("ii", 0, 0)
_PIECE: Final = 64 << 10

_lock: Final = threading.Lock()
_waiting: Final[deque[int]] = deque()
_running = 0


def descriptors_in(control: Iterable[tuple[int, int, bytes]]) -> list[int]:
    """Return the descriptors that came with a message, which are the receiver's to close."""
    found = array.array("i")
    for level, kind, payload in control:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(payload[: len(payload) // _INT_BYTES * _INT_BYTES])
    return list(found)


def close_elsewhere(descriptors: Iterable[int]) -> None:
    """Close foreign descriptors soon, in a thread that nobody waits for."""
    global _running  # noqa: PLW0603  one set of threads for the process, which has one table of descriptors
    with _lock:
        _waiting.extend(descriptors)
        if not _waiting or _running == _THREADS_MAX:
            return
        _running += 1
    threading.Thread(target=_close_waiting, name="kvledger-foreign", daemon=True).start()


def _close_waiting() -> None:
    global _running  # noqa: PLW0603  as above
    while True:
        with _lock:
            if not _waiting:
                _running -= 1
                return
            descriptor = _waiting.popleft()
        _close(descriptor)


def _close(descriptor: int) -> None:
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError:  # no socket
        os.close(descriptor)
        return
    with sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


def empty(end: socket.socket) -> None:
    """Stop the peer of a non-blocking socket from sending and close what lies in the queue; the next close is quick."""
    try:
        end.shutdown(socket.SHUT_RD)
        while True:
            data, control, _, _ = end.recvmsg(_PIECE, ROOM, socket.MSG_CMSG_CLOEXEC)
            close_elsewhere(descriptors_in(control))
            if not data and not control:
                return
    except OSError:  # the queue is empty, or the peer is gone
        return
