"""Commands that wait for jobs: a restore, a copy, a write to disk.

A parked command holds nothing and owns nothing; it is decided anew from the beginning when one of its jobs was
answered, or once more, for the last time, when its deadline passed.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from kvledgerd.core.commands import Ask
from kvledgerd.core.decision import Park
from kvledgerd.loop.queued import Queued

__all__ = ["ParkingLot"]


class ParkingLot:
    """All parked commands.

    Args:
        clock: Seconds, monotonic.
        overdue: Called with a command whose deadline passed; it is parked no more.
    """

    def __init__(self, clock: Callable[[], float], overdue: Callable[[Queued], None]) -> None:
        self._clock: Final = clock
        self._overdue: Final = overdue
        self._timers: Final[dict[Queued, asyncio.TimerHandle | None]] = {}
        self._jobs: Final[dict[Queued, tuple[int, ...]]] = {}
        self._by_job: Final[dict[int, list[Queued]]] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, item: Queued, park: Park) -> None:
        """Park a request; its deadline counts from its first parking, and it will know what it was parked on."""
        assert isinstance(item.command, Ask), "only requests are parked"
        item.command = msgspec.structs.replace(item.command, parked=park.jobs)
        if item.deadline is None and park.deadline_ms is not None:
            item.deadline = self._clock() + park.deadline_ms / 1000
        self._jobs[item] = park.jobs
        for job in park.jobs:
            self._by_job.setdefault(job, []).append(item)
        self._timers[item] = None if item.deadline is None else self._timer(item, item.deadline)

    def answered(self, job: int) -> list[Queued]:
        """Take out the commands that waited for ``job``, in the order in which they were parked."""
        items = list(self._by_job.get(job, ()))
        for item in items:
            self._remove(item)
        return items

    def take(self, item: Queued) -> list[Queued]:
        """Take out one command."""
        self._remove(item)
        return [item]

    def drop_connection(self, connection: int) -> int:
        """Forget the commands of a connection that is gone; return how many these were."""
        gone = [item for item in self._jobs if item.connection == connection]
        for item in gone:
            self._remove(item)
        return len(gone)

    def clear(self) -> None:
        """Forget everything, with its timers."""
        for item in list(self._jobs):
            self._remove(item)

    def _timer(self, item: Queued, deadline: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(max(0.0, deadline - self._clock()), self._expire, item)

    def _expire(self, item: Queued) -> None:
        self._remove(item)
        self._overdue(item)

    def _remove(self, item: Queued) -> None:
        timer = self._timers.pop(item)
        if timer is not None:
            timer.cancel()
        for job in self._jobs.pop(item):
            waiting = self._by_job[job]
            if item in waiting:
                waiting.remove(item)
            if not waiting:
                del self._by_job[job]
