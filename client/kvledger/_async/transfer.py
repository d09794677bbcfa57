"""Bytes on their way through the staging ring: taken, handed over, and given back when the daemon has copied them.

Puts are sent without waiting for the reply of the one before, so that the daemon copies one part while the engine fills
the next; the ring is what limits how many are under way.
"""

from collections import deque

from kvledger._async.session import AsyncSession
from kvledger.errors import KVLedgerError
from kvledger.shm import Ring, RingFullError, RingRange
from kvledger.waiting import Deadline, async_sleep
from kvledger.wire.replies import Done
from kvledger.wire.requests import Put, PutRange

__all__ = ["AsyncTransfer"]

_RANGES_MAX = 4096
_OTHERS_PAUSE = 0.001


class AsyncTransfer:
    """Puts of one unit.

    Args:
        session: The session that the unit was reserved on; it has the ring.
        ring: The ring.
        unit: The reservation.
        timeout: Seconds that the daemon may take to copy one part.
    """

    def __init__(self, session: AsyncSession, ring: Ring, unit: int, timeout: float) -> None:
        self._session = session
        self._ring = ring
        self._unit = unit
        self._timeout = timeout
        self._under_way: deque[tuple[int, RingRange | None]] = deque()

    def __repr__(self) -> str:
        return f"<AsyncTransfer {len(self._under_way)} puts under way>"

    @property
    def chunk(self) -> int:
        """Bytes of the parts into which a longer object is cut: a quarter of the ring, so that several fit."""
        return max(self._ring.size // 4, 4096)

    @property
    def ring(self) -> Ring:
        """The ring, to write into a range that was taken."""
        return self._ring

    async def take(self, length: int) -> RingRange:
        """Take a contiguous range of the ring, waiting for earlier puts to make room.

        Raises:
            CallerError: It is longer than the whole ring.
            DeadlineError: Others hold the ring for longer than the timeout.
        """
        deadline = Deadline(self._timeout)
        while True:
            try:
                return self._ring.take(length)
            except RingFullError:
                if self._under_way:
                    await self._finish_oldest()
                else:  # other units hold it; their replies are read by those who wait for them
                    await async_sleep(min(_OTHERS_PAUSE, deadline.left()))

    async def hand_over(self, ranges: list[PutRange], part: RingRange) -> None:
        """Send puts for what was written into `part`, which goes back to the ring when the last one is answered."""
        steps = [ranges[i : i + _RANGES_MAX] for i in range(0, len(ranges), _RANGES_MAX)]
        for step in steps[:-1]:
            await self._send(step, None, part)
        await self._send(steps[-1], part, part)

    async def finish(self) -> None:
        """Wait until the daemon has copied everything that was handed over."""
        while self._under_way:
            await self._finish_oldest()

    def drop(self) -> None:
        """Give all ranges back without waiting, when the unit will not be committed any more."""
        while self._under_way:
            number, part = self._under_way.popleft()
            self._session.forget(number)
            if part is not None:
                self._ring.give_back(part)

    async def _send(self, ranges: list[PutRange], part: RingRange | None, held: RingRange) -> None:
        try:
            number = await self._session.send(Put(self._unit, ranges), Deadline(self._timeout))
        except BaseException:
            self._ring.give_back(held)
            raise
        self._under_way.append((number, part))

    async def _finish_oldest(self) -> None:
        number, part = self._under_way.popleft()
        try:
            reply = await self._session.collect(number, Deadline(self._timeout))
            self._session.narrowed(reply, Done)
        except KVLedgerError:
            self.drop()
            raise
        finally:
            if part is not None:
                self._ring.give_back(part)
