"""The arenas of one connection, mapped when a reply first names them.

The daemon sends each arena's descriptor before the reply that names it, so the packet is waiting when it is wanted and
nothing here waits. A packet may still be missing, for example because this process was at its limit of open files; then
the session asks for it again by `Arenas`.
"""

import os
import socket
import threading
from collections.abc import Iterable

from kvledger.device_view import DevicePages, ForeignPages, Pages
from kvledger.errors import LeaseLost, ProtocolError
from kvledger.shm import ArenaView
from kvledger.wire.descriptors import ArenaPacket, receive_packet

__all__ = ["ArenaMaps"]


class ArenaMaps:
    """Views of arenas by arena id. Thread-safe.

    Args:
        end: The client's end of the descriptor socket, non-blocking; it is closed with the maps.
    """

    __slots__ = ("_devices", "_end", "_lock", "_views")

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self._lock = threading.Lock()
        self._views: dict[int, ArenaView] = {}
        self._devices: dict[int, DevicePages] = {}

    def __repr__(self) -> str:
        return f"<ArenaMaps {len(self._views)} mapped>"

    def __getitem__(self, arena: int) -> ArenaView:
        """Return the view of a mapped arena.

        Raises:
            LeaseLost: The connection has ended, or it belongs to the parent of this process.
        """
        view = self._views.get(arena)
        if view is None:
            wrong = f"arena {arena} is mapped no more: its connection has ended, or belongs to the parent process"
            raise LeaseLost(wrong, field="arena", remedy="look up again, in the process that uses the bytes")
        return view

    def add_pages(self, pool: int, pages: DevicePages) -> None:
        """Note a device pool that this process registered; its number is that of no arena."""
        self._devices[pool] = pages

    def pages(self, pool: int) -> Pages:
        """Return the pages of a device pool, of which little is known if another process registered it."""
        return self._devices.get(pool) or ForeignPages()

    @property
    def end(self) -> socket.socket:
        """The descriptor socket, to send the ring."""
        return self._end

    def lacking(self, arenas: Iterable[int]) -> list[int]:
        """Map what has arrived and return the ids of which no packet has.

        Raises:
            ProtocolError: A packet is malformed, or what it brings is no arena.
            CapacityError: An arena can not be mapped.
        """
        wanted = set(arenas)
        with self._lock:
            if not wanted <= self._views.keys():
                self._map_arrived()
            return sorted(wanted - self._views.keys())

    def _map_arrived(self) -> None:
        while True:
            try:
                found = receive_packet(self._end)
            except (BlockingIOError, ConnectionError):
                return
            if found is None:
                return
            self._map(*found)

    def _map(self, packet: object, descriptor: int) -> None:
        try:
            if not isinstance(packet, ArenaPacket):
                remedy = "restart the daemon and report this"
                raise ProtocolError("the daemon sent a ring to a client", field="descriptor", remedy=remedy)
            self._views[packet.arena] = ArenaView(descriptor)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Close the socket. Maps go when the last handle that uses them does."""
        self._end.close()
        self._views = {}

    def after_fork_in_child(self) -> None:
        """Close the child's copy of the socket; the lock may be held by a thread that the child does not have."""
        self._lock = threading.Lock()
        self.close()
