"""Whoever comes while the log is being replayed is told how far it is, instead of waiting without a word.

A restart usually takes less than anybody notices, and then the best answer to an early hello is the real one: so for a
second connections just wait in the socket's backlog. After that, each hello is answered with a typed error that says
how many percent are done. Its code is that of a daemon that is away, which is what clients try again by themselves.

The replay keeps the main thread busy and there is no loop yet, so this is a thread of its own, which waits for many at
the same time. It ends before the server takes the socket over.
"""

import contextlib
import select
import socket
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Final, Self

from kvledger.errors import DisconnectedError, KVLedgerError
from kvledger.wire.framing import Splitter, encode_frame, peek_id
from kvledgerd.foreign import ROOM, close_elsewhere, descriptors_in, empty
from kvledgerd.loop.refusals import failed

__all__ = ["WaitingRoom"]

_PATIENCE_SECONDS: Final = 1.0
# A client writes its hello right after connecting; whoever does not gets the answer under the id that hellos have.
_HELLO_SECONDS: Final = 0.2
# Few enough for `select`; the others wait in the backlog.
_CONNECTIONS_MAX: Final = 64
_HELLO_ID: Final = 1
_PIECE: Final = 4096


class WaitingRoom:
    """Answers hellos until it is left; a context manager around the recovery.

    Args:
        listeners: The listening sockets; others have them again afterwards.
        patience: Seconds in which nobody is answered.
    """

    def __init__(self, listeners: Sequence[socket.socket], patience: float = _PATIENCE_SECONDS) -> None:
        self._listeners: Final = listeners
        self._open_at: Final = time.monotonic() + patience
        self._answer: KVLedgerError = _away("recovering 0 %: reading the log")
        self._wake, self._woken = socket.socketpair()
        self._thread: Final = threading.Thread(target=self._run, name="kvledger-waiting-room", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._wake.close()
        self._thread.join()
        self._woken.close()

    def status(self, text: str) -> None:
        """Take how far it is, which is answered from now on."""
        self._answer = _away(text)

    def refuse(self, error: KVLedgerError) -> None:
        """Take an error that is answered from now on: there will be no recovery."""
        self._answer = error

    def _run(self) -> None:
        patience = max(0.0, self._open_at - time.monotonic())
        if select.select([self._woken], [], [], patience)[0]:
            return
        waiting: dict[socket.socket, float] = {}
        while self._round(waiting):
            pass
        for connection in waiting:
            _close(connection)

    def _round(self, waiting: dict[socket.socket, float]) -> bool:
        """Answer who has said hello, or nothing for long enough; False once nobody is to be answered any more.

        Args:
            waiting: Connections that have said nothing yet, each with the time at which that was long enough.
        """
        listeners = self._listeners if len(waiting) < _CONNECTIONS_MAX else ()
        seconds = max(0.0, min(waiting.values()) - time.monotonic()) if waiting else None
        ready = select.select([*listeners, *waiting, self._woken], [], [], seconds)[0]
        if self._woken in ready:
            return False
        now = time.monotonic()
        for connection in [one for one, end in waiting.items() if one in ready or end <= now]:
            del waiting[connection]
            with contextlib.suppress(OSError):
                self._tell(connection)
        for listener in ready:
            if listener in listeners:
                with contextlib.suppress(OSError):
                    connection = listener.accept()[0]
                    connection.settimeout(0)
                    waiting[connection] = now + _HELLO_SECONDS
        return True

    def _tell(self, connection: socket.socket) -> None:
        try:
            connection.sendall(encode_frame(_hello_id(connection), failed(self._answer)))
        finally:
            _close(connection)


def _close(connection: socket.socket) -> None:
    with connection:
        empty(connection)


def _away(text: str) -> DisconnectedError:
    return DisconnectedError(text, field="daemon", remedy="ask again in a moment")


def _hello_id(connection: socket.socket) -> int:
    """Return the id under which the answer goes out."""
    with contextlib.suppress(KVLedgerError, BlockingIOError):
        data, control, _, _ = connection.recvmsg(_PIECE, ROOM, socket.MSG_CMSG_CLOEXEC)
        close_elsewhere(descriptors_in(control))
        bodies = Splitter().feed(data)
        if bodies:
            return peek_id(bodies[0])
    return _HELLO_ID
