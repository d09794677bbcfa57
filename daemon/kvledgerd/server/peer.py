"""Who is at the other end of a request socket, on the word of the kernel."""

import array
import asyncio
import os
import socket
import struct
from asyncio.trsock import TransportSocket
from collections.abc import Callable
from typing import Final, NamedTuple

from kvledger.errors import LimitError
from kvledgerd.server.processes import identified

__all__ = ["Peer", "ProcessWatch", "peer_of"]

_CREDENTIALS: Final = struct.Struct("3i")

# Not in the socket module of Python 3.11; since Linux 6.5.
_SO_PEERPIDFD: Final = 77
_SO_PEERGROUPS: Final = 59
_GROUPS_BYTES: Final = 1024
"""As much as Python's getsockopt takes: 256 groups."""


class Peer(NamedTuple):
    """Process, user and groups that opened the connection; pid 0 if it lives outside the daemon's pid namespace."""

    pid: int
    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def peer_of(sock: TransportSocket) -> Peer:
    """Return the credentials of the peer as they were when it connected.

    Raises:
        LimitError: It is in more groups than can be asked for; a rule about one of them could be missed.
    """
    pid, uid, gid = _CREDENTIALS.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    try:
        groups = array.array("I", sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, _GROUPS_BYTES))
    except OSError as error:
        wrong, remedy = f"uid {uid} is in more than {_GROUPS_BYTES // 4} groups", "leave some of them"
        raise LimitError(wrong, field="groups", remedy=remedy) from error
    return Peer(pid, uid, gid, tuple(groups))


class ProcessWatch:
    """Calls back when the process at the other end has ended, also if a child of it keeps the socket open.

    A process that can not be watched (an older kernel, another pid namespace) is alive as long as its connection is.

    Args:
        sock: The request socket.
        pid: The peer's process id.
        ended: Called once, on the loop.

    Attributes:
        process: The process by pid and start time, None if it can not be told for sure.
    """

    def __init__(self, sock: TransportSocket, pid: int, ended: Callable[[], None]) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._ended: Final = ended
        self._pidfd = _open_pidfd(sock, pid)
        self.process: Final = identified(pid, self._pidfd)
        if self._pidfd is not None:
            self._loop.add_reader(self._pidfd, self._fire)

    def _fire(self) -> None:
        self.close()
        self._ended()

    def close(self) -> None:
        """Watch no more; closing twice is nothing."""
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None


def _open_pidfd(sock: TransportSocket, pid: int) -> int | None:
    try:
        # Of the very process that connected; a pid may have been given to another one meanwhile.
        return sock.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD)
    except OSError:
        pass
    try:
        return os.pidfd_open(pid) if pid else None
    except OSError:
        return None
