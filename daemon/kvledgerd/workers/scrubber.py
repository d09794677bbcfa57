"""The scrubber: reads all live records now and then, so that damage is found before somebody needs the bytes.

It reads at most so many bytes a second, one part after the other, and stands back when restores are under way. How far
it is stands in the log, so a restart goes on where the last part ended.
"""

import time
from collections.abc import Callable
from typing import Final

import structlog

from kvledger.wire.replies import Evicted
from kvledger_storage.blob_ref import BlobRef
from kvledgerd.core.commands import Scrubbed
from kvledgerd.core.copies.tier import Tier
from kvledgerd.workers.upkeep import Upkeep, seen

__all__ = ["Scrubber"]

_PART_BYTES: Final = 4 << 20
"""What is read at once: the core judges all of it in one turn of the loop."""

_log = structlog.get_logger(__name__)


class Scrubber:
    """Scrubs one part at a time; used on the loop.

    Args:
        upkeep: Reads and tells the core.
        tier: Returns how far the log says that it is.
        bytes_per_second: Most that it reads.
        seconds: From the end of one pass to the begin of the next; 0 for none but those an operator asks for.
        wall: Wall time in seconds since 1970.

    Attributes:
        rate: Most that it reads, bytes a second; may be changed.
        seconds: As above; may be changed.
    """

    def __init__(
        self,
        upkeep: Upkeep,
        tier: Callable[[], Tier],
        *,
        bytes_per_second: int,
        seconds: int,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._upkeep: Final = upkeep
        self._tier: Final = tier
        self.rate = bytes_per_second
        self.seconds = seconds
        self._wall: Final = wall

    @property
    def due(self) -> bool:
        """Whether there is something to scrub now."""
        tier = self._tier()
        if tier.paused or not any(info.live_bytes for info in self._upkeep.store.segments()):
            return False
        waited = self._wall() - tier.ended_ms / 1000
        return bool(tier.segment or tier.due or (self.seconds and not 0 <= waited < self.seconds))

    async def step(self) -> float:
        """Scrub one part; return how many seconds to wait before the next one, to keep to the rate."""
        tier = self._tier()
        live = sorted(info.number for info in self._upkeep.store.segments() if info.live_bytes)
        ahead = [number for number in live if number > tier.segment]
        segment, offset = (tier.segment, tier.offset) if tier.offset else (ahead[0] if ahead else tier.segment, 0)
        part = await self._upkeep.read(segment, offset, _PART_BYTES if segment in live else 0)
        lost: dict[str, list[BlobRef]] = {}
        for ref, why in part.lost:
            lost.setdefault(why, []).append(ref)
        await self._upkeep.lose(lost, "scrub")
        last = not part.next_offset and not any(number > segment for number in live)
        ended = int(self._wall() * 1000) if last else 0
        records = tuple(seen(held) for held in part.records)
        reply = await self._upkeep.ask(Scrubbed(segment, part.next_offset, records, ended))
        if isinstance(reply, Evicted) and reply.dropped:
            _log.warning("damage found by the scrubber", segment=segment, records=reply.dropped)
        return part.bytes / self.rate
