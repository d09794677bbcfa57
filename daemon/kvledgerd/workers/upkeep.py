"""Threads for the upkeep of the disk tier: cleaning and scrubbing, which must never be in anybody's way.

What they read goes through one thread of their own, so that it is never more than one call beside those of restores.
What they write goes through the disk thread like everything else that writes, a few megabytes at a time, and only when
nobody else's write is waiting for it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kvledger.wire.replies import Reply
from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk.record import RecordType
from kvledger_storage.disk.store import DiskStore
from kvledger_storage.disk.upkeep import Held, Part
from kvledger_storage.disk_events import MANIFEST
from kvledgerd.core.commands import Command, RecordsLost
from kvledgerd.core.disk_commands import SeenRecord
from kvledgerd.workers.workers import Lane, Workers

__all__ = ["Upkeep", "seen"]

_T = TypeVar("_T")
# How long upkeep stands back when somebody else's write is under way.
_POLITE_SECONDS: Final = 0.02


class Upkeep:
    """What cleaning and scrubbing do to the store and say to the core; used on the loop.

    Args:
        store: The segments.
        workers: The threads.
        ask: Has a command decided and returns its reply once that is durable.

    Attributes:
        store: As above.
        ask: As above.
        unread: Records that the system refused to read, since the start.
    """

    def __init__(self, store: DiskStore, workers: Workers, ask: Callable[[Command], Awaitable[Reply | None]]) -> None:
        self.store: Final = store
        self.ask: Final = ask
        self._reads: Final[Lane] = workers.upkeep
        self._writes: Final[Lane] = workers.disk
        self.unread = 0

    async def read(self, number: int, offset: int, budget: int) -> Part:
        """Read live records of a segment from `offset` on, about `budget` bytes of them."""
        part = await self._reads.call(lambda: self.store.read_part(number, offset, budget))
        self.unread += part.unread
        return part

    async def write(self, act: Callable[[], _T]) -> _T:
        """Do something in the disk thread when it has nothing else to do."""
        while self._writes.running:  # noqa: ASYNC110  a lane tells nobody when it is idle
            await asyncio.sleep(_POLITE_SECONDS)
        return await self._writes.call(act)

    async def lose(self, refs: dict[str, list[BlobRef]], found: str) -> None:
        """Tell the core of records that can not be had, by why."""
        for why, places in refs.items():
            await self.ask(RecordsLost(tuple(places), why, found))


def seen(held: Held) -> SeenRecord:
    """Return a record as the core knows it."""
    key = held.key
    slot = MANIFEST if key.record_type is RecordType.MANIFEST else key.slot
    return SeenRecord(key.cell, slot, key.generation, key.layout, key.kind, key.fingerprint, held.ref, held.error)
