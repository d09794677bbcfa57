"""The staging rings that connections have handed in.

A ring may be replaced or its connection may go away while a worker reads from it, and a descriptor that is closed under
a reader could by then be a different file; so a ring is borrowed, and closed by whoever gives it back last.
"""

from typing import Final

from kvledger.errors import LimitError
from kvledger_storage.ring import RingReader
from kvledgerd.tenants import User

__all__ = ["BorrowedRing", "RingTable"]


class BorrowedRing:
    """A ring with the number of workers that read from it."""

    __slots__ = ("_borrowers", "_closing", "reader")

    def __init__(self, reader: RingReader) -> None:
        self.reader: Final = reader
        self._borrowers = 0
        self._closing = False

    def borrow(self) -> RingReader:
        """Return the reader; it stays open until `give_back`."""
        self._borrowers += 1
        return self.reader

    def give_back(self) -> None:
        """Say that one borrower is done."""
        self._borrowers -= 1
        self._close_if_free()

    def close(self) -> None:
        """Close the ring as soon as nobody reads from it."""
        self._closing = True
        self._close_if_free()

    def _close_if_free(self) -> None:
        if self._closing and not self._borrowers:
            self.reader.close()


class RingTable:
    """Connection number to its staging ring; used on the loop only.

    Args:
        cap_bytes: Greatest ring that a connection may hand in.
        tenant_bytes: What all rings of one tenant may have together.
        user_bytes: What all rings of one user may have together.
    """

    def __init__(self, *, cap_bytes: int, tenant_bytes: int, user_bytes: int) -> None:
        self.cap_bytes: Final = cap_bytes
        self.tenant_bytes: Final = tenant_bytes
        self._user_bytes: Final = user_bytes
        self._rings: Final[dict[int, BorrowedRing]] = {}
        self._users: Final[dict[int, User]] = {}

    @property
    def bytes(self) -> int:
        """Bytes of all rings."""
        return sum(ring.reader.size for ring in self._rings.values())

    def of_tenant(self, tenant: str) -> int:
        """Return the bytes of all rings of one tenant."""
        return sum(ring.reader.size for number, ring in self._rings.items() if self._users[number].tenant == tenant)

    def _others(self, connection: int) -> list[tuple[User, int]]:
        """Return user and bytes of each ring but a connection's own."""
        return [(self._users[n], ring.reader.size) for n, ring in self._rings.items() if n != connection]

    def accept(self, connection: int, user: User, fd: int, declared_bytes: int) -> None:
        """Take over a descriptor as the connection's ring, in place of the one before.

        Raises:
            LimitError: The user's or the tenant's rings would be more than they may be together.
            DescriptorError: It is not a sealed memfd of the declared size; the descriptor stays the caller's.
        """
        others = self._others(connection)
        # One that is too large by itself is refused as such by its reader, which names the cap that matters
        wanted = min(declared_bytes, self.cap_bytes)
        mine = sum(size for owner, size in others if owner == user)
        _require_room("uid_staging_bytes", wanted, mine, self._user_bytes)
        ours = sum(size for owner, size in others if owner.tenant == user.tenant)
        _require_room("staging_bytes", wanted, ours, self.tenant_bytes)
        ring = BorrowedRing(RingReader.accept(fd, declared_bytes, cap_bytes=self.cap_bytes))
        self.drop(connection)
        self._rings[connection], self._users[connection] = ring, user

    def get(self, connection: int) -> BorrowedRing | None:
        """Return the ring of a connection, None if it has none."""
        return self._rings.get(connection)

    def drop(self, connection: int) -> None:
        """Close the ring of a connection that has ended, if it had one."""
        ring = self._rings.pop(connection, None)
        if ring is not None:
            del self._users[connection]
            ring.close()


def _require_room(name: str, wanted: int, used: int, cap: int) -> None:
    if used + wanted > cap:
        raise LimitError(
            f"{wanted} bytes of ring would pass {name}, {used} of {cap} are in use",
            field=name,
            remedy=f"open caches with smaller rings, close those that write nothing, or raise {name}",
        )
