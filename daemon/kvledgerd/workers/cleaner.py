"""Cleaning: live records of a segment that is mostly dead are copied to the open one, and the old file is removed.

The order makes it safe at every moment: a copy is synced before the core is told, the event that names it is durable
before the old place counts as dead, and a file is removed only when nothing in it is alive. A crash in between leaves
copies that nobody names, which the next start counts as dead. Nothing is held meanwhile; see `decide_records`.
"""

import asyncio
from typing import Final

import structlog

from kvledger.errors import KVLedgerError
from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk.pages import PAGE
from kvledger_storage.disk.record import RecordIn
from kvledger_storage.disk.segments import SegmentInfo
from kvledger_storage.disk.upkeep import Part, dead_bytes, worth_cleaning
from kvledgerd.core.commands import RecordsCopied, RoomWanted
from kvledgerd.workers.upkeep import Upkeep, seen

__all__ = ["Cleaner"]

_BATCH_BYTES: Final = 8 << 20
"""What is copied between two looks at whether somebody else wants the disk."""

_SETTLE_SECONDS: Final = 0.02
_SETTLE_LOOKS: Final = 250

_log = structlog.get_logger(__name__)


class Cleaner:
    """Cleans segments one after the other; used on the loop.

    Args:
        upkeep: Reads, writes and tells the core.
    """

    def __init__(self, upkeep: Upkeep) -> None:
        self._upkeep: Final = upkeep
        self._store: Final = upkeep.store
        self._stuck: Final[dict[int, int]] = {}

    async def tidy(self) -> None:
        """Clean what is worth it when nobody is in a hurry, and keep to the quota."""
        await self._remove_dead()
        while await self._clean(urgent=False):
            pass
        excess = self._store.file_bytes - self._store.quota_bytes
        if excess > 0 and not await self.make_room(0):
            # The quota was made smaller than what is alive: the prefixes that were used least recently go.
            await self._upkeep.ask(RoomWanted(excess, "disk_bytes is less than what is kept"))

    async def make_room(self, wanted: int) -> bool:
        """Clean until so many bytes are free under the quota; return whether they are."""
        await self._remove_dead()
        while self._free() < wanted:
            if not await self._clean(urgent=True) and not await self._close_open():
                return False
        return True

    def _free(self) -> int:
        return self._store.quota_bytes - self._store.file_bytes

    async def _close_open(self) -> bool:
        """Let the open segment be cleaned if it is mostly dead; return whether it may be now."""
        newest = self._store.segments()[-1:]
        mostly_dead = [i for i in newest if not i.closed and dead_bytes(i) > max(i.live_bytes, PAGE)]
        if mostly_dead:
            await self._upkeep.write(self._store.close_segment)
        return bool(mostly_dead)

    async def _clean(self, *, urgent: bool) -> bool:
        """Copy the live records out of one segment; return whether there was one worth it."""
        infos = [info for info in self._store.segments() if self._stuck.get(info.number) != info.live_bytes]
        info = None if self._store.read_only else worth_cleaning(infos, self._free(), urgent=urgent)
        if info is None:
            return False
        if await self._empty(info):
            await self._settled(info)
        await self._remove_dead()
        self._note_stuck(info.number)
        return True

    async def _empty(self, info: SegmentInfo) -> bool:
        """Copy what is alive in a segment, part by part; return whether anything was given up there."""
        offset, given_up = 0, False
        while True:
            part = await self._upkeep.read(info.number, offset, _BATCH_BYTES)
            if not await self._copy(info, part):
                return given_up
            given_up = given_up or bool(part.records or part.lost)
            offset = part.next_offset
            if not offset:
                return given_up

    async def _settled(self, info: SegmentInfo) -> None:
        """Wait a little until the places that the core gave up count as dead: that is queued behind others' writes."""
        for _ in range(_SETTLE_LOOKS):
            left = [one.live_bytes for one in self._store.segments() if one.number == info.number]
            if not left or left[0] < info.live_bytes:
                return
            await asyncio.sleep(_SETTLE_SECONDS)

    async def _copy(self, info: SegmentInfo, part: Part) -> bool:
        """Copy what was read and have the core take the copies over; return whether it could be written."""
        wrong: dict[str, list[BlobRef]] = {}
        for ref, why in (*part.lost, *((held.ref, held.error) for held in part.records if held.error)):
            wrong.setdefault(why, []).append(ref)
        await self._upkeep.lose(wrong, "cleaning")
        right = [held for held in part.records if not held.error]
        if not right:
            return True
        try:
            copies = await self._upkeep.write(
                lambda: self._store.append([RecordIn(held.key, held.payload) for held in right])
            )
        except KVLedgerError as error:
            _log.warning("segment could not be cleaned", segment=info.number, why=str(error))
            return False
        pairs = ((seen(held), copy) for held, copy in zip(right, copies, strict=True))
        await self._upkeep.ask(RecordsCopied(info.number, tuple(pairs)))
        return True

    async def _remove_dead(self) -> None:
        removed = await self._upkeep.write(self._store.unlink_dead)
        if removed:
            _log.info("dead segments removed", segments=removed)

    def _note_stuck(self, number: int) -> None:
        """Leave a segment alone that is still there, until something else in it dies."""
        left = [info.live_bytes for info in self._store.segments() if info.number == number]
        self._stuck.pop(number, None)
        self._stuck.update((number, live) for live in left)
