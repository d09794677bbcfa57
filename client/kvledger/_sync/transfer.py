# Generated from kvledger/_async/transfer.py by scripts/unasync.py; change it there.
"""Bytes on their way through the staging ring: taken, handed over, and given back when the daemon has copied them.

Small objects are gathered into one put, since each message costs both sides more than a page's copy. Puts are sent
without waiting for the reply of the one before, so that the daemon copies one part while the engine fills the next; the
ring is what limits how many are under way.
"""

from collections import deque

from kvledger._sync.session import Session
from kvledger.errors import KVLedgerError
from kvledger.shm import Ring, RingFullError, RingRange
from kvledger.waiting import Deadline, sleep
from kvledger.wire.replies import Done
from kvledger.wire.requests import Put, PutRange

__all__ = ["Transfer"]

_RANGES_MAX = 4096
_BATCH_BYTES = 4 << 20
_OTHERS_PAUSE = 0.001


class Transfer:
    """Puts of one unit.

    Args:
        session: The session that the unit was reserved on; it has the ring.
        ring: The ring.
        unit: The reservation.
        timeout: Seconds that the daemon may take to copy one part.
    """

    def __init__(self, session: Session, ring: Ring, unit: int, timeout: float) -> None:
        self._session = session
        self._ring = ring
        self._unit = unit
        self._timeout = timeout
        self._batch_bytes = min(_BATCH_BYTES, ring.size // 8)
        self._ranges: list[PutRange] = []
        self._parts: list[RingRange] = []
        self._gathered = 0
        self._under_way: deque[tuple[int, list[RingRange]]] = deque()

    def __repr__(self) -> str:
        return f"<Transfer {len(self._ranges)} ranges gathered, {len(self._under_way)} puts under way>"

    @property
    def chunk(self) -> int:
        """Bytes of the parts into which a longer object is cut: a quarter of the ring, so that several fit."""
        return max(self._ring.size // 4, 4096)

    @property
    def ring(self) -> Ring:
        """The ring, to write into a range that was taken."""
        return self._ring

    def take(self, length: int) -> RingRange:
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
                self._make_room(deadline)

    def hand_over(self, ranges: list[PutRange], part: RingRange) -> None:
        """Put what was written into `part`, which goes back to the ring when all of it has been copied."""
        try:
            for start in range(0, len(ranges), _RANGES_MAX):
                if len(self._ranges) + len(ranges[start : start + _RANGES_MAX]) > _RANGES_MAX:
                    self._send()
                self._ranges += ranges[start : start + _RANGES_MAX]
        except BaseException:
            self._ring.give_back(part)
            raise
        self._parts.append(part)
        self._gathered += part.length
        # While nothing is under way the daemon has nothing to copy, so that it gets a quarter to begin with.
        if self._gathered >= self._batch_bytes // (1 if self._under_way else 4):
            self._send()

    @property
    def under_way(self) -> bool:
        """Whether the daemon may still read from ranges of this unit."""
        return bool(self._under_way)

    def flush(self) -> None:
        """Send what is gathered."""
        self._send()

    def finish(self) -> None:
        """Wait until the daemon has copied everything that was sent.

        A commit may be on its way by now, so whatever fails leaves the ranges taken: were one written to while the
        daemon copies it, the wrong bytes would be published. `drop` gives them back when that can not happen any more.
        """
        while self._under_way:
            number, parts = self._under_way[0]
            self._session.narrowed(self._session.collect(number, Deadline(self._timeout)), Done)
            self._under_way.popleft()
            self._give_back(parts)

    def drop(self) -> None:
        """Give all ranges back without waiting, when the unit will not be committed any more."""
        while self._under_way:
            number, parts = self._under_way.popleft()
            self._session.forget(number)
            self._give_back(parts)
        parts, self._parts, self._ranges, self._gathered = self._parts, [], [], 0
        self._give_back(parts)

    def _make_room(self, deadline: Deadline) -> None:
        if self._ranges:
            self._send()
        elif self._under_way:
            self._finish_oldest()
        else:  # other units hold it; their replies are read by those who wait for them
            sleep(min(_OTHERS_PAUSE, deadline.left()))

    def _send(self) -> None:
        if not self._ranges:
            return
        ranges, parts, self._ranges, self._parts, self._gathered = self._ranges, self._parts, [], [], 0
        try:
            number = self._session.send(Put(self._unit, ranges), Deadline(self._timeout))
        except BaseException:
            self._give_back(parts)
            raise
        self._under_way.append((number, parts))

    def _finish_oldest(self) -> None:
        number, parts = self._under_way.popleft()
        try:
            reply = self._session.collect(number, Deadline(self._timeout))
            self._session.narrowed(reply, Done)
        except KVLedgerError:
            self.drop()
            raise
        finally:
            self._give_back(parts)

    def _give_back(self, parts: list[RingRange]) -> None:
        for part in parts:
            self._ring.give_back(part)
