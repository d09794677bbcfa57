"""What looks after the disk tier while the daemon runs: cleaning, scrubbing, and trying whether writes work again.

Both work in the background, each one step at a time, and neither waits for the other: a scrub that reads slowly must
not keep a write from getting its room.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from kvledger.errors import KVLedgerError
from kvledger_storage.disk.store import DiskStore
from kvledger_storage.disk.upkeep import dead_bytes
from kvledgerd.core.commands import Command, TierNoted
from kvledgerd.core.copies.tier import Tier
from kvledgerd.core.decision import DiskWrite
from kvledgerd.workers.cleaner import Cleaner
from kvledgerd.workers.room import WriteRoom
from kvledgerd.workers.scrubber import Scrubber
from kvledgerd.workers.upkeep import Upkeep

__all__ = ["DiskCare"]

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 64.0
"""Seconds between two tries whether writes work again; doubled each time they stop soon after."""

_log = structlog.get_logger(__name__)


class DiskCare:
    """Drives cleaner and scrubber; used on the loop.

    Args:
        upkeep: What both work with.
        scrubber: The scrubber.
        room: Writes that wait for room.
        tier: Returns what the log says of the tier.
        post: Takes a command for whose answer nobody waits.
        again: Tries a write again.
        reserve: Bytes that writes leave to the cleaner.
    """

    def __init__(
        self,
        upkeep: Upkeep,
        scrubber: Scrubber,
        room: WriteRoom,
        tier: Callable[[], Tier],
        post: Callable[[Command], None],
        again: Callable[[DiskWrite], None],
        reserve: int,
    ) -> None:
        self._upkeep: Final = upkeep
        self._store: Final[DiskStore] = upkeep.store
        self._cleaner: Final = Cleaner(upkeep)
        self._scrubber: Final = scrubber
        self._room: Final = room
        self._tier: Final = tier
        self._post: Final = post
        self._again: Final = again
        self._reserve: Final = reserve
        self._tasks: Final[dict[str, asyncio.Task[None]]] = {}
        self._pause, self._try_at, self._stopped = _FIRST_PAUSE, 0.0, False

    def look(self) -> None:
        """Do what is due, if anything; never waits."""
        self._note_tier()
        if self._stopped:
            return
        self._begin("cleaning", self._clean)
        if self._scrubber.due:
            self._begin("scrubbing", self._scrub)

    async def stop(self) -> None:
        """End what runs; what it was about to do is done by the next start."""
        self._stopped = True
        running = [task for task in self._tasks.values() if not task.done()]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)

    def counters(self) -> dict[str, int]:
        """Return how the files stand, for status reports."""
        infos = self._store.segments()
        return {
            "disk_file_bytes": self._store.file_bytes,
            "disk_dead_bytes": sum(map(dead_bytes, infos)),
            "disk_segments": len(infos),
            "disk_direct": int(self._store.direct),
            "disk_writes_waiting": len(self._room),
            "disk_records_unread": self._upkeep.unread,
            "disk_removed_segments": self._store.removed_segments,
            "disk_removed_bytes": self._store.removed_bytes,
        }

    def _begin(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        running = self._tasks.get(name)
        if running is None or running.done():
            self._tasks[name] = asyncio.get_running_loop().create_task(self._guarded(name, work), name=name)

    async def _guarded(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except (KVLedgerError, OSError) as error:
            _log.warning(f"{name} failed; it is tried again", why=str(error))

    async def _clean(self) -> None:
        if self._store.read_only:
            await self._try_writes()
        while True:
            await self._make_room()
            if self._store.read_only:
                return
            await self._cleaner.tidy()
            if not self._room.wanted:  # a write that began to wait meanwhile could wake nobody
                return

    async def _make_room(self) -> None:
        while self._room.wanted and not self._store.read_only:
            made = await self._cleaner.make_room(self._room.wanted + self._reserve)
            self._retry(made=made)
        if self._store.read_only:
            self._retry(made=False)

    def _retry(self, *, made: bool) -> None:
        for effect in self._room.leave(made=made):
            self._again(effect)

    async def _scrub(self) -> None:
        while self._scrubber.due:  # noqa: ASYNC110  it waits for time to pass, to keep to its rate
            await asyncio.sleep(await self._scrubber.step())

    async def _try_writes(self) -> None:
        now = asyncio.get_running_loop().time()
        if now < self._try_at:
            return
        works = await self._upkeep.write(self._store.try_writes)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)
        self._try_at = now + self._pause
        if works:
            _log.warning("disk tier takes writes again")
        self._note_tier()

    def _note_tier(self) -> None:
        """Have the core note what the store says, if that is news."""
        why = self._store.read_only or ""
        if bool(why) != bool(self._tier().read_only):
            self._post(TierNoted(why))
        if not why and asyncio.get_running_loop().time() > self._try_at + _LONGEST_PAUSE:
            self._pause = _FIRST_PAUSE
