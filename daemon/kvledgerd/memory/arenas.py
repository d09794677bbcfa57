"""The arenas that this process holds, with the descriptors that go with them; an arena stays until the daemon ends."""

from typing import Final

from kvledger.kinds import Kind
from kvledger_storage.arena import Arena
from kvledgerd.tenants import tenant_digest

__all__ = ["ArenaTable"]


class ArenaTable:
    """Arena id to arena, with the read-only descriptor that readers get; filled by the loop, read by workers."""

    def __init__(self) -> None:
        self._arenas: Final[dict[int, Arena]] = {}
        self._readable: Final[dict[int, int]] = {}

    def __len__(self) -> int:
        return len(self._arenas)

    def __getitem__(self, arena_id: int) -> Arena:
        return self._arenas[arena_id]

    def kind_of(self, arena_id: int) -> Kind:
        """Return the kind of the objects in an arena; DISK_PREFIX, of which none is, for one that is not here."""
        arena = self._arenas.get(arena_id)
        return Kind.DISK_PREFIX if arena is None else Kind(arena.header.identity.kind)

    def add(self, arena: Arena) -> None:
        """Take an arena; opens its read-only descriptor, so not on the loop.

        Raises:
            OSError: No descriptor is to be had.
        """
        self._readable[arena.arena_id] = arena.read_only_fd()
        self._arenas[arena.arena_id] = arena

    def of_tenant(self, tenant: str) -> set[int]:
        """Return the ids of one tenant's arenas."""
        digest = tenant_digest(tenant)
        return {number for number, arena in self._arenas.items() if arena.header.identity.tenant == digest}

    def readable(self, arena_id: int) -> int:
        """Return the descriptor that readers get; it stays the table's."""
        return self._readable[arena_id]

    @property
    def bytes(self) -> int:
        """Bytes of data in all arenas."""
        return sum(arena.data_bytes for arena in self._arenas.values())
