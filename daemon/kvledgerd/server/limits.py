"""What one user may have open at the same time, so that nobody can starve the others of descriptors or queue.

A user is a uid within a tenant: inside of containers everyone is uid 0, and those of one must not count for another.
"""

from collections import Counter
from typing import Final, NamedTuple

from kvledger.errors import LimitError

__all__ = ["User", "UserLimits"]


class User(NamedTuple):
    """A uid within a tenant."""

    tenant: str
    uid: int


class UserLimits:
    """Counts connections and requests in flight by user.

    Args:
        connections: Connections that one user may have open.
        in_flight: Requests of one user that may wait for their reply.
    """

    def __init__(self, *, connections: int, in_flight: int) -> None:
        self._connections_max: Final = connections
        self._in_flight_max: Final = in_flight
        self._connections: Final[Counter[User]] = Counter()
        self._in_flight: Final[Counter[User]] = Counter()

    @property
    def connections(self) -> int:
        """Connections that are open, of all users."""
        return self._connections.total()

    @property
    def in_flight(self) -> int:
        """Requests that wait for their reply, of all users."""
        return self._in_flight.total()

    def connect(self, user: User) -> None:
        """Count a connection.

        Raises:
            LimitError: The user has as many as it may have; nothing was counted.
        """
        if self._connections[user] >= self._connections_max:
            raise LimitError(
                f"uid {user.uid} has {self._connections_max} connections open",
                field="connections",
                remedy="close some, share one cache between threads, or raise uid_connections",
            )
        self._connections[user] += 1

    def disconnect(self, user: User) -> None:
        """Take a connection off the count."""
        _take_off(self._connections, user)

    def begin(self, user: User) -> None:
        """Count a request.

        Raises:
            LimitError: The user has as many in flight as it may have; nothing was counted.
        """
        if self._in_flight[user] >= self._in_flight_max:
            raise LimitError(
                f"uid {user.uid} has {self._in_flight_max} requests in flight",
                field="in_flight",
                remedy="wait for replies, or raise uid_requests",
            )
        self._in_flight[user] += 1

    def end(self, user: User) -> None:
        """Take a request off the count."""
        _take_off(self._in_flight, user)


def _take_off(counter: Counter[User], user: User) -> None:
    counter[user] -= 1
    if not counter[user]:
        del counter[user]
