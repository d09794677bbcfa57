"""Which replies are still to come, and what becomes of those that nobody waits for any more.

A caller may give up (deadline, cancellation) after its request was sent. The reply still comes, and it may carry a
lease, a reservation or a topology; nobody would ever give these back. So the mailbox remembers who left, and answers
such a reply with the requests that undo it.
"""

import threading
from collections.abc import Callable
from typing import Any, Final

from kvledger.errors import KVLedgerError, ProtocolError
from kvledger.wire.replies import Acquired, Joined, PagesGiven, PoolRegistered, Reply, Reserved, TopologyRegistered
from kvledger.wire.requests import Abort, DropPool, DropTopology, GivePagesUp, Release, Request

__all__ = ["Mailbox", "undoing"]


class Mailbox:
    """Replies of one connection by request id. Thread-safe; nothing here waits.

    Args:
        last: The greatest id that this connection has used.
    """

    __slots__ = ("_error", "_left", "_lock", "_next", "_replies", "_unread")

    def __init__(self, last: int) -> None:
        self._lock = threading.Lock()
        self._next = last
        self._unread: set[int] = set()
        self._left: set[int] = set()
        self._replies: dict[int, Reply] = {}
        self._error: KVLedgerError | None = None

    @property
    def waiting(self) -> int:
        """Number of requests whose reply somebody waits for."""
        return len(self._unread)

    def require_open(self) -> None:
        """Raise the error with which the connection ended, if it has."""
        if self._error is not None:
            raise self._error.with_traceback(None)

    def expect(self) -> int:
        """Return the id of a new request."""
        with self._lock:
            self._next += 1
            self._unread.add(self._next)
            return self._next

    def withdraw(self, number: int) -> None:
        """Take back an id whose request was never sent, so that no reply is waited for."""
        with self._lock:
            self._unread.discard(number)

    def is_settled(self, number: int) -> bool:
        """Tell whether `collect` has something to say about this request."""
        return number in self._replies or self._error is not None

    def is_late(self, number: int) -> bool:
        """Tell whether a reply is still to come that nobody waits for any more."""
        return number in self._left and self._error is None

    def collect(self, number: int) -> Reply:
        """Return the reply to a request and forget both.

        Raises:
            KVLedgerError: The connection ended before the reply came; the error says how.
        """
        with self._lock:
            reply = self._replies.pop(number, None)
            if reply is not None:
                return reply
            self._unread.discard(number)
            assert self._error is not None
            raise self._error.with_traceback(None)

    def leave(self, number: int) -> list[Request]:
        """Say that nobody waits for a reply any more; if it is there already, return what undoes it."""
        with self._lock:
            reply = self._replies.pop(number, None)
            if reply is not None:
                return undoing(reply)
            if number in self._unread:
                self._unread.remove(number)
                self._left.add(number)
            return []

    def deliver(self, number: int, reply: Reply) -> list[Request]:
        """Take a reply; return the requests that undo it if nobody waits for it any more.

        Raises:
            ProtocolError: No request has this id, or it has its reply already.
        """
        with self._lock:
            if number in self._left:
                self._left.remove(number)
                return undoing(reply)
            if number not in self._unread:
                remedy = "the daemon breaks the protocol; restart it and report this"
                raise ProtocolError(f"a reply came for {number}, which awaits none", field="request id", remedy=remedy)
            self._unread.remove(number)
            self._replies[number] = reply
            return []

    def fail(self, error: KVLedgerError) -> None:
        """Let every request that has no reply fail with an error; the first one given stays."""
        with self._lock:
            self._error = self._error or error


def undoing(reply: Reply) -> list[Request]:
    """Return the requests that give back what a reply brings, if it reaches nobody who would."""
    undo = _UNDO.get(type(reply))
    return undo(reply) if undo is not None else []


_UNDO: Final[dict[type[Reply], Callable[[Any], list[Request]]]] = {
    Acquired: lambda reply: [Release(reply.lease)] if reply.lease else [],
    Reserved: lambda reply: [Abort(reply.unit)],
    Joined: lambda reply: [Abort(reply.unit)],
    TopologyRegistered: lambda reply: [DropTopology(reply.topology.topology)],
    PagesGiven: lambda reply: [GivePagesUp(reply.unit)],
    PoolRegistered: lambda reply: [] if reply.kept else [DropPool(reply.pool)],
}
