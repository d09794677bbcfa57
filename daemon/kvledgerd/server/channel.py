"""The daemon's end of a descriptor socket.

Arenas go out before the reply that names them, once for each connection. A ring comes in before the request that
announces it, so its packet is read when that request is handled and not a moment sooner: descriptors that nobody asked
for stay in the kernel's buffer, at their sender's expense.
"""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Self

from kvledger.errors import ProtocolError
from kvledger.memfd import DescriptorError
from kvledger.wire.descriptors import ArenaPacket, RingPacket, receive_packet, send_packet
from kvledger.wire.replies import Acquired, ArenaList, Reply
from kvledgerd.foreign import close_elsewhere, empty
from kvledgerd.memory.arenas import ArenaTable

__all__ = ["ArenaChannel", "Received", "arenas_named"]


class Received:
    """A descriptor that came over the channel; closed unless somebody keeps it."""

    def __init__(self, number: int) -> None:
        self.number: Final = number
        self._kept = False

    def keep(self) -> None:
        """Leave it open; it has found its owner."""
        self._kept = True

    def close(self) -> None:
        """Close it, unless it was kept; whose it is may make that take long."""
        if not self._kept:
            close_elsewhere([self.number])


class ArenaChannel:
    """One descriptor socket; both ends until the client's has been sent."""

    def __init__(self, ours: socket.socket, theirs: socket.socket) -> None:
        self._ours: Final = ours
        self._theirs: Final = theirs
        self._sent: Final[set[int]] = set()

    @classmethod
    def open(cls) -> Self:
        """Make a pair.

        Raises:
            OSError: No descriptor is left.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)  # noqa: FBT003  the standard library takes no keyword
        return cls(ours, theirs)

    @property
    def client_end(self) -> int:
        """The descriptor that goes with the answer to hello."""
        return self._theirs.fileno()

    def client_end_sent(self) -> None:
        """Close our copy of the client's end."""
        self._theirs.close()

    def send_arenas(self, reply: Reply, arenas: ArenaTable) -> None:
        """Send the descriptors that a reply presupposes.

        Raises:
            BlockingIOError: The client leaves the packets unread.
            OSError: It is gone.
        """
        named = arenas_named(reply)
        if named <= self._sent and not isinstance(reply, ArenaList):
            return
        for arena_id in sorted(named if isinstance(reply, ArenaList) else named - self._sent):
            packet = ArenaPacket(arena_id, arenas[arena_id].data_bytes)
            send_packet(self._ours, packet, arenas.readable(arena_id))
            self._sent.add(arena_id)

    @contextmanager
    def received_ring(self, size: int) -> Iterator[Received]:
        """Read the packet that a `Ring` request announces; its descriptor is closed at exit unless it was kept.

        Raises:
            DescriptorError: No packet is there, or it is another one than announced.
            ProtocolError: The packet is malformed.
        """
        packet, fd = self._receive()
        received = Received(fd)
        try:
            if packet != RingPacket(size):
                raise _refused(f"the packet says {packet}, the request says {size} bytes")
            yield received
        finally:
            received.close()

    def _receive(self) -> tuple[ArenaPacket | RingPacket, int]:
        try:
            found = receive_packet(self._ours, close_elsewhere)
        except BlockingIOError:
            found = None
        except OSError as error:
            raise _refused(f"the descriptor socket failed: {error.strerror}") from error
        if found is None:
            raise _refused("no descriptor has come over the descriptor socket")
        return found

    def close(self) -> None:
        """Close both ends, and what was sent and never asked for."""
        empty(self._ours)
        self._ours.close()
        self._theirs.close()


def arenas_named(reply: Reply) -> set[int]:
    """Return the ids of the arenas whose descriptors a client needs to make use of a reply."""
    if isinstance(reply, Acquired):
        # What bears `fp64` lies in a device pool, which no descriptor leads to
        found = {run.arena for run in reply.rows if not run.prints}
        for offer in reply.offers:
            found.update([run.arena for run in offer.runs if not run.prints])
        return found
    return set(reply.arenas) if isinstance(reply, ArenaList) else set()


def _refused(why: str) -> ProtocolError:
    return DescriptorError(
        why, field="ring", remedy="send the ring's descriptor first, then the Ring request with the same size"
    )
