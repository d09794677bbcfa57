"""What one user may have open at the same time, so that nobody can starve the others of descriptors or queue.

A user is a uid within a tenant: inside of containers everyone is uid 0, and those of one must not count for another. A
container with a user namespace has as many uids as it likes, so where there are several tenants each has a part of all.
"""

from typing import Final, NamedTuple

from kvledger.errors import LimitError
from kvledgerd.core.placement.caps import NO_CAP
from kvledgerd.core.placement.sureness import ARENAS_MAX
from kvledgerd.tenants import User

__all__ = ["Most", "UserLimits", "connections_of_each"]

_CONNECTION_DESCRIPTORS: Final = 4
"""Both sockets of a connection, the process behind it and its ring."""
_OWN_DESCRIPTORS: Final = ARENAS_MAX + 128
"""What the daemon needs beside connections: arenas, and with room to spare log, segments, pipes and threads' files."""


class Most(NamedTuple):
    """How many of something there may be: of a user, and of all users of a tenant together."""

    user: int
    tenant: int = NO_CAP


def connections_of_each(tenants: int, descriptors: int) -> int:
    """Return the connections that each of several tenants may have open, of the descriptors of the process.

    What the daemon needs itself is left out: all tenants together must not be able to keep it from opening a segment of
    its log. Where descriptors are very few that is half of them.
    """
    free = max(descriptors - _OWN_DESCRIPTORS, descriptors // 2)
    return max(free // _CONNECTION_DESCRIPTORS // tenants, 1)


class UserLimits:
    """Counts connections, requests in flight and bytes of requests by user.

    Args:
        connections: Connections that may be open.
        in_flight: Requests that may wait for their reply.
        frame_bytes: Bytes of requests that have not arrived whole, or wait to be looked at.
    """

    def __init__(self, *, connections: Most, in_flight: Most, frame_bytes: Most) -> None:
        remedy = "close some, share one cache between threads, or raise uid_connections"
        self._connections: Final = _Counted("connections", "connections open", connections, remedy)
        remedy = "wait for replies, or raise uid_requests"
        self._in_flight: Final = _Counted("in_flight", "requests in flight", in_flight, remedy)
        remedy = "send requests whole, fewer at a time, or raise uid_frame_bytes"
        self._frame_bytes: Final = _Counted("frame", "bytes of requests half sent or waiting", frame_bytes, remedy)

    @property
    def connections(self) -> int:
        """Connections that are open, of all users."""
        return self._connections.total

    @property
    def in_flight(self) -> int:
        """Requests that wait for their reply, of all users."""
        return self._in_flight.total

    def connect(self, user: User) -> None:
        """Count a connection; raises LimitError, and counts nothing, if there are as many as there may be."""
        self._connections.take(user)

    def disconnect(self, user: User) -> None:
        """Take a connection off the count."""
        self._connections.give(user)

    def begin(self, user: User) -> None:
        """Count a request; raises LimitError, and counts nothing, if there are as many as there may be."""
        self._in_flight.take(user)

    def end(self, user: User) -> None:
        """Take a request off the count."""
        self._in_flight.give(user)

    def hold(self, user: User, more: int) -> None:
        """Count bytes of requests, or take them off with ``more`` below 0; raises as `begin` does."""
        if more > 0:
            self._frame_bytes.take(user, more)
        elif more:
            self._frame_bytes.give(user, -more)


class _Counted:
    """One thing that is counted."""

    def __init__(self, field: str, what: str, most: Most, remedy: str) -> None:
        self._field: Final = field
        self._what: Final = what
        self._most: Final = most
        self._remedy: Final = remedy
        self._users: Final[dict[User, int]] = {}
        self._tenants: Final[dict[str, int]] = {}

    @property
    def total(self) -> int:
        return sum(self._tenants.values())

    def take(self, user: User, count: int = 1) -> None:
        mine = self._users.get(user, 0) + count
        if mine > self._most.user:
            wrong = f"uid {user.uid} has {self._most.user} {self._what}"
            raise LimitError(wrong, field=self._field, remedy=self._remedy)
        all_of = self._tenants.get(user.tenant, 0) + count
        if all_of > self._most.tenant:
            wrong = f"all users of {user.tenant} together have {self._most.tenant} {self._what}, their part of all"
            raise LimitError(wrong, field=self._field, remedy=self._remedy.partition(", or ")[0])
        self._users[user] = mine
        self._tenants[user.tenant] = all_of

    def give(self, user: User, count: int = 1) -> None:
        left = self._users[user] - count
        if left:
            self._users[user] = left
        else:
            del self._users[user]
        self._tenants[user.tenant] -= count
