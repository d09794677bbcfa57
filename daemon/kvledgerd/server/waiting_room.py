"""Whoever comes while the log is being replayed is told how far it is, instead of waiting without a word.

A restart usually takes less than anybody notices, and then the best answer to an early hello is the real one: so for a
second connections just wait in the socket's backlog. After that, each hello is answered with a typed error that says
how many percent are done. Its code is that of a daemon that is away, which is what clients try again by themselves.

The replay keeps the main thread busy and there is no loop yet, so this is a thread of its own. It ends before the
server takes the socket over.
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
from kvledgerd.server.refusals import failed

__all__ = ["WaitingRoom"]

_PATIENCE_SECONDS: Final = 1.0
# A client writes its hello right after connecting; whoever does not gets the answer under the id that hellos have.
_HELLO_SECONDS: Final = 0.2
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
        while self._woken not in (ready := select.select([*self._listeners, self._woken], [], [])[0]):
            with contextlib.suppress(OSError):
                self._tell(ready[0].accept()[0])

    def _tell(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(_HELLO_SECONDS)
            try:
                number = _hello_id(connection)
                connection.sendall(encode_frame(number, failed(self._answer)))
            finally:
                connection.settimeout(0)
                empty(connection)


def _away(text: str) -> DisconnectedError:
    return DisconnectedError(text, field="daemon", remedy="ask again in a moment")


def _hello_id(connection: socket.socket) -> int:
    """Return the id under which the answer goes out."""
    with contextlib.suppress(KVLedgerError, TimeoutError):
        data, control, _, _ = connection.recvmsg(_PIECE, ROOM, socket.MSG_CMSG_CLOEXEC)
        close_elsewhere(descriptors_in(control))
        bodies = Splitter().feed(data)
        if bodies:
            return peek_id(bodies[0])
    return _HELLO_ID
