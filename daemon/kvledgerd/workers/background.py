"""What the daemon does behind its answers: reading records back, writing them, giving them back.

Each kind has a read queue of its own, so that a flood of one kind never starves another. Writing and cleaning share the
queue of disk prefixes: a prefix is written whole, with all the kinds that it consists of, and the store's writing side
belongs to one thread. Every job is answered, also one that nobody waits for any more: what of it had not begun is then
not begun, so that its slots come back soon.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from kvledger.kinds import Kind
from kvledgerd.core.commands import Command, Probed, RestoreDone, RestoreLate, Written
from kvledgerd.core.decision import DiskProbe, DiskRead, DiskWrite, DropBlobs
from kvledgerd.core.placement.sureness import MEMORY_KINDS
from kvledgerd.loop.interest import Interest
from kvledgerd.workers.disk_jobs import DiskJobs, Reading
from kvledgerd.workers.room import WriteRoom
from kvledgerd.workers.work_queue import Piece, Urgency, WorkQueue
from kvledgerd.workers.workers import Workers

__all__ = ["Background", "reason"]

_READING: Final = (Urgency.RESTORE, Urgency.PROMOTION)
_WRITING: Final = (Urgency.OFFLOAD, Urgency.CLEANING)
_POLL_SECONDS: Final = 1.0
"""How often a restore is looked at that waits in its queue: its time runs from its first read on."""
_LATE_SECONDS: Final = 2.0
"""What a restore may take beyond its time: the part that was begun just before its end."""


class AbandonedError(Exception):
    """Nobody waits for it any more."""

    def __init__(self) -> None:
        super().__init__("nobody waits for it any more")


class Background:
    """The queues of disk work; used on the loop.

    Args:
        workers: The threads.
        disk: Reads and writes records.
        post: Takes answers of what never ran.
        interest: Who waits for which job.
        room: Keeps writes that find no room.
        pieces: Reads of one kind that may run at the same time.
        bytes_max: Bytes that these may have in all.
    """

    def __init__(
        self,
        workers: Workers,
        disk: DiskJobs,
        post: Callable[[Command], None],
        interest: Interest,
        room: WriteRoom,
        *,
        pieces: int,
        bytes_max: int,
    ) -> None:
        self._disk: Final = disk
        self._interest: Final = interest
        self._room: Final = room
        self._reads: Final = {
            kind: WorkQueue(workers.reads[kind], post, pieces=pieces, bytes_max=bytes_max, sorts=_READING)
            for kind in Kind
        }
        self._writes: Final = WorkQueue(workers.disk, post, pieces=1, bytes_max=bytes_max, sorts=_WRITING)
        self._post: Final = post
        self._readings: Final[dict[int, Reading]] = {}
        # Counted by the one thread of the disk
        self._given_back = self._not_given_back = 0
        interest.on_ended = lambda job: self._readings.pop(job, None)
        interest.on_joined, interest.on_abandoned = self._hasten, self._abandon

    def read(self, effect: DiskRead) -> None:
        """Queue a restore, part by part with the queue of its kind."""
        reading = self._readings[effect.job] = self._disk.reading(effect)
        awaited = self._interest.is_awaited(effect.job)
        urgency = Urgency.RESTORE if awaited or not effect.promotion else Urgency.PROMOTION
        if not awaited and not effect.promotion:
            self._answer_abandoned(reading)
            return
        self._watch(reading, begun=False)
        for number, kind in enumerate(reading.kinds):
            run, fallback = partial(reading.read, number), partial(self._unread, reading, number)
            self._reads[kind].put(Piece(effect.job, urgency, reading.sizes[number], run, fallback))

    def write(self, effect: DiskWrite) -> None:
        """Queue an offload."""
        size = sum(record.length for record in effect.records)

        def run() -> Command:
            written = self._disk.write(effect)
            self._room.forget(effect.job)
            return written

        def failed(error: BaseException) -> Command | None:
            return None if self._room.take(effect, error) else Written(effect.job, error=reason(error))

        self._writes.put(Piece(effect.job, Urgency.OFFLOAD, size, run, failed))

    def drop(self, effect: DropBlobs) -> None:
        """Queue records to be given back; nobody waits for that."""
        size = sum(ref.length for ref in effect.refs)

        def run() -> None:
            self._disk.drop(effect)
            self._given_back += 1

        def failed(_: BaseException) -> None:
            self._not_given_back += 1

        self._writes.put(Piece(0, Urgency.CLEANING, size, run, failed))

    @property
    def is_awaited(self) -> bool:
        """Whether a restore is read for which somebody waits."""
        return any(queue.is_busy(Urgency.RESTORE) for queue in self._reads.values())

    def probe(self, effect: DiskProbe) -> None:
        """Queue a probe: one record, read for nobody."""

        def failed(error: BaseException) -> Command:
            return Probed(f"failed: {reason(error)}")

        record = effect.record
        self._reads[record.kind].put(
            Piece(0, Urgency.PROMOTION, record.length, partial(self._disk.probe, effect), failed)
        )

    def progress(self, job: int) -> tuple[int, int]:
        """Return how many objects a restore has read and verified by now, and their bytes."""
        reading = self._readings.get(job)
        return reading.progress() if reading is not None else (0, 0)

    def counters(self) -> dict[str, int]:
        """Return all queues in numbers."""
        name = Kind.DISK_PREFIX.name
        found = self._writes.counters(name)
        found |= {f"cleaning_done.{name}": self._given_back, f"cleaning_failed.{name}": self._not_given_back}
        for kind in MEMORY_KINDS:
            found |= self._reads[kind].counters(kind.name)
        return found

    def _watch(self, reading: Reading, *, begun: bool) -> None:
        """Give up on a restore of which a call hangs; one that merely is slow ends by itself when its time is over."""
        if reading.ended:
            return
        if begun:
            self._post(RestoreLate(reading.effect.job, int(self._disk.read_seconds)))
            return
        seconds = self._disk.read_seconds + _LATE_SECONDS if reading.begun else _POLL_SECONDS
        asyncio.get_running_loop().call_later(seconds, partial(self._watch, reading, begun=reading.begun))

    def _hasten(self, job: int) -> None:
        for queue in self._reads.values():
            queue.hasten(job)

    def _abandon(self, job: int) -> None:
        reading = self._readings.get(job)
        if reading is not None and not reading.effect.promotion:
            for queue in self._reads.values():
                queue.cancel(job, AbandonedError())

    def _answer_abandoned(self, reading: Reading) -> None:
        answers = [self._unread(reading, number, AbandonedError()) for number in range(reading.parts)]
        for answer in filter(None, answers):
            self._post(answer)

    @staticmethod
    def _unread(reading: Reading, number: int, error: BaseException) -> RestoreDone | None:
        word = "cancelled" if isinstance(error, AbandonedError) else "failed"
        return reading.failed(number, f"{word}: {reason(error)}")


def reason(error: BaseException) -> str:
    """Return what went wrong; never empty, since an empty text means success."""
    return str(error) or type(error).__name__
