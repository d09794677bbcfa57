"""Topologies: what captured graphs read in place.

A captured graph reads fixed addresses each time it is replayed, and can neither ask nor check. So what it reads is held
by the engine itself and not by a run of the daemon: a topology names its owner by what outlives the connection (engine
id, tenant, uid) and by the processes that could replay the graph. It reads memory or pages of its own devices.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kvledger_storage.events import GraphObject, Process
from kvledgerd.core.device_pools.device import DevicePool
from kvledgerd.core.index import Cell

__all__ = ["Held", "Topology", "held"]


class Held(NamedTuple):
    """An object as it lay when it was named.

    Attributes:
        cell: Its cell.
        slot: Its slot there.
        pool: The device pool in which its copy lies, None for the one in memory.
        arena: Number of the arena or device pool.
        offset: First byte there.
        generation: Generation of these bytes.
    """

    cell: Cell
    slot: int
    pool: DevicePool | None
    arena: int
    offset: int
    generation: int

    @property
    def is_there(self) -> bool:
        """Whether these very bytes are still kept, at this address."""
        if self.pool is not None:
            copy = self.pool.copies.get((self.cell.id, self.slot))
            return copy is not None and (copy.offset, copy.generation) == (self.offset, self.generation)
        return bool(self.cell.memory >> self.slot & 1) and held(self.cell, self.slot) == self


def held(cell: Cell, slot: int, pool: DevicePool | None = None) -> Held:
    """Return an object as it lies now, in memory or in a device pool."""
    if pool is None:
        return Held(cell, slot, None, *cell.place(slot))
    copy = pool.copies[cell.id, slot]
    return Held(cell, slot, pool, pool.id, copy.offset, copy.generation)


class Topology:
    """Objects that keep their addresses until it ends.

    Attributes:
        id: Its number.
        key: Engine id of its owner, 16 bytes.
        tenant: Tenant of its owner.
        uid: User id of its owner.
        processes: Processes that may replay the graph.
        objects: What it pins, by name.
        lost: Those of them that are no longer what was registered; their memory is kept from being reused all the same.
        recapturing: Its recapture window is open.
    """

    __slots__ = ("id", "key", "lost", "objects", "processes", "recapturing", "tenant", "uid")

    def __init__(self, number: int, key: bytes, tenant: str, uid: int, processes: tuple[Process, ...]) -> None:
        self.id = number
        self.key = key
        self.tenant = tenant
        self.uid = uid
        self.processes = processes
        self.objects: dict[GraphObject, Held] = {}
        self.lost: dict[GraphObject, None] = {}
        self.recapturing = False

    def cells(self) -> list[Cell]:
        """Return every cell whose memory it pins, each once."""
        return list({one.cell.id: one.cell for one in self.objects.values() if one.pool is None}.values())

    def facts(self) -> Iterator[int | bytes | str]:
        """Yield all that the digest of the state has to know of it."""
        yield from ("topology", self.id, self.key, self.tenant, self.uid, int(self.recapturing))
        yield len(self.processes)
        for process in self.processes:
            yield from process
        for name, one in self.objects.items():
            yield from (*name, one.arena, one.offset, one.generation, int(name in self.lost))
