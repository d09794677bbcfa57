"""A queue of background work: what is urgent first, so much at a time.

A thread pool takes what it is given in the order in which it came. That would let a restore for which an engine waits
stand behind a hundred that nobody has asked for yet. So work waits here, on the loop, and a lane gets only what may run
now. What goes next is what has waited longest, after what each sort of work can be asked to wait was added: the urgent
goes first, and nothing starves.
"""

import enum
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kvledgerd.core.commands import Command
from kvledgerd.workers.workers import Fallback, Job, Lane

__all__ = ["Piece", "Urgency", "WorkQueue"]


class Urgency(enum.IntEnum):
    """Sorts of background work, by how long each may wait for the sort before it."""

    RESTORE = 0
    """Somebody waits for it."""
    PROMOTION = 1
    """Brought back ahead of need."""
    OFFLOAD = 2
    """Written to disk."""
    CLEANING = 3
    """Given back."""


PATIENCE: Final = {Urgency.RESTORE: 0.0, Urgency.PROMOTION: 5.0, Urgency.OFFLOAD: 5.0, Urgency.CLEANING: 20.0}
"""Seconds that work of each sort stands back for what came later and is more urgent."""


@dataclass(eq=False, slots=True)
class Piece:
    """One piece of work.

    Attributes:
        job: The job that it belongs to, 0 for none.
        urgency: Its sort.
        bytes: What it reads or writes.
        run: Does it, in a thread, and returns the answer if this piece has one.
        fallback: Makes the answer if it could not be done.
        since: When it was queued, seconds; set by the queue.
    """

    job: int
    urgency: Urgency
    bytes: int
    run: Job
    fallback: Fallback
    since: float = 0.0

    @property
    def due(self) -> float:
        """By when it goes next, seconds of the queue's clock."""
        return self.since + PATIENCE[self.urgency]


@dataclass(slots=True)
class _Count:
    """Pieces of one sort that run."""

    running: int = 0
    bytes: int = 0


class WorkQueue:
    """Work of one kind for one lane; used on the loop.

    Args:
        lane: Where it runs.
        post: Takes answers of what never ran.
        pieces: How many may run at the same time.
        bytes_max: How many bytes these may have in all; one piece may always run.
        sorts: Sorts of work that come here.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        lane: Lane,
        post: Callable[[Command], None],
        *,
        pieces: int,
        bytes_max: int,
        sorts: tuple[Urgency, ...] = tuple(Urgency),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._lane: Final = lane
        self._post: Final = post
        self._pieces: Final = pieces
        self._bytes_max: Final = bytes_max
        self._clock: Final = clock
        self._waiting: Final[dict[Urgency, deque[Piece]]] = {urgency: deque() for urgency in sorts}
        self._counts: Final[dict[Urgency, _Count]] = {urgency: _Count() for urgency in sorts}

    def put(self, piece: Piece) -> None:
        """Queue a piece, and start what may run."""
        piece.since = self._clock()
        self._waiting[piece.urgency].append(piece)
        self._pump()

    def hasten(self, job: int) -> None:
        """Let what waits of a job go with what somebody waits for."""
        for piece in self._take(job):
            piece.urgency = Urgency.RESTORE
            self._waiting[Urgency.RESTORE].append(piece)

    def cancel(self, job: int, why: BaseException) -> None:
        """Answer what waits of a job as if it had failed so; what runs comes to its end."""
        for piece in self._take(job):
            answer = piece.fallback(why)
            if answer is not None:
                self._post(answer)

    def is_busy(self, urgency: Urgency) -> bool:
        """Tell whether work of one sort waits or runs."""
        return bool(self._waiting[urgency] or self._counts[urgency].running)

    def counters(self, name: str) -> dict[str, int]:
        """Return the queue in numbers, by sort of work."""
        found: dict[str, int] = {}
        now = self._clock()
        for urgency, count in self._counts.items():
            waiting = self._waiting[urgency]
            oldest = min((piece.since for piece in waiting), default=now)
            numbers = {
                "queued": len(waiting),
                "running": count.running,
                "bytes": count.bytes + sum(piece.bytes for piece in waiting),
                "oldest_ms": int((now - oldest) * 1000),
            }
            found |= {f"{urgency.name.lower()}_{what}.{name}": number for what, number in numbers.items()}
        return found

    def _take(self, job: int) -> list[Piece]:
        found: list[Piece] = []
        for urgency, waiting in self._waiting.items():
            mine = [piece for piece in waiting if piece.job == job]
            if mine:
                self._waiting[urgency] = deque(piece for piece in waiting if piece.job != job)
                found += mine
        return found

    def _pump(self) -> None:
        while True:
            heads = [waiting[0] for waiting in self._waiting.values() if waiting]
            if not heads:
                return
            piece = min(heads, key=lambda head: (head.due, head.urgency))
            running = sum(count.running for count in self._counts.values())
            in_flight = sum(count.bytes for count in self._counts.values())
            if running and (running >= self._pieces or in_flight + piece.bytes > self._bytes_max):
                return
            self._waiting[piece.urgency].popleft()
            self._start(piece)

    def _start(self, piece: Piece) -> None:
        count = self._counts[piece.urgency]
        count.running += 1
        count.bytes += piece.bytes

        def ended() -> None:
            count.running -= 1
            count.bytes -= piece.bytes
            self._pump()

        self._lane.start(piece.run, piece.fallback, ended)
