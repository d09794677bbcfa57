"""What one uid may have open at the same time, so that nobody can starve the others of descriptors or queue."""

from collections import Counter
from typing import Final

from kvledger.errors import LimitError

__all__ = ["UidLimits"]


class UidLimits:
    """Counts connections and requests in flight by uid.

    Args:
        connections: Connections that one uid may have open.
        in_flight: Requests of one uid that may wait for their reply.
    """

    def __init__(self, *, connections: int, in_flight: int) -> None:
        self._connections_max: Final = connections
        self._in_flight_max: Final = in_flight
        self._connections: Final[Counter[int]] = Counter()
        self._in_flight: Final[Counter[int]] = Counter()

    @property
    def connections(self) -> int:
        """Connections that are open, of all uids."""
        return self._connections.total()

    @property
    def in_flight(self) -> int:
        """Requests that wait for their reply, of all uids."""
        return self._in_flight.total()

    def connect(self, uid: int) -> None:
        """Count a connection.

        Raises:
            LimitError: The uid has as many as it may have; nothing was counted.
        """
        if self._connections[uid] >= self._connections_max:
            raise LimitError(
                f"uid {uid} has {self._connections_max} connections open",
                field="connections",
                remedy="close some, share one cache between threads, or raise uid_connections",
            )
        self._connections[uid] += 1

    def disconnect(self, uid: int) -> None:
        """Take a connection off the count."""
        _take_off(self._connections, uid)

    def begin(self, uid: int) -> None:
        """Count a request.

        Raises:
            LimitError: The uid has as many in flight as it may have; nothing was counted.
        """
        if self._in_flight[uid] >= self._in_flight_max:
            raise LimitError(
                f"uid {uid} has {self._in_flight_max} requests in flight",
                field="in_flight",
                remedy="wait for replies, or raise uid_requests",
            )
        self._in_flight[uid] += 1

    def end(self, uid: int) -> None:
        """Take a request off the count."""
        _take_off(self._in_flight, uid)


def _take_off(counter: Counter[int], uid: int) -> None:
    counter[uid] -= 1
    if not counter[uid]:
        del counter[uid]
