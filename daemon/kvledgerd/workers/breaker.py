"""A circuit breaker for the disk: counts what restores came to, and asks for a stop when too many fail.

A disk that fails makes each look-up slower than no disk at all: it is offered, waited for, and computed in the end. So
failures and missed deadlines are counted over a window. Past the threshold the core is told to begin no more restores,
and to probe now and then until a record is read.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Final

import structlog

from kvledger.counts import counted
from kvledgerd.core.commands import Command, DegradeDue, Probed, ProbeDue, RestoreDone, RestoreLate

__all__ = ["Breaker"]

_log = structlog.get_logger(__name__)


class Breaker:
    """Counts failures; used on the loop.

    Args:
        post: Takes what the core is to decide.
        is_open: Tells whether restores have stopped.
        failures: How many restores may fail within the window, 0 for any number.
        window: Its length, seconds.
        pause: Seconds from one probe to the next.
        clock: Seconds, monotonic.

    Attributes:
        failures: As above; it and the other two may be changed.
        window: As above.
        pause: As above.
    """

    def __init__(
        self,
        post: Callable[[Command], None],
        is_open: Callable[[], bool],
        *,
        failures: int,
        window: float,
        pause: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._post: Final = post
        self._is_open: Final = is_open
        self.failures = failures
        self.window = window
        self.pause = pause
        self._clock: Final = clock
        self._failed: Final[deque[float]] = deque()
        self._late: Final[set[int]] = set()
        self._probed = 0.0
        self._probing = False

    @property
    def recent(self) -> int:
        """Restores that failed within the window."""
        return len(self._failed)

    def note(self, command: Command) -> None:
        """Take in an answer on its way to the core."""
        if isinstance(command, Probed):
            self._probing = False
            if not command.error.startswith("failed"):
                self._failed.clear()
            return
        if isinstance(command, RestoreLate):
            self._late.add(command.job)
            self._count(f"failed: not read within {command.seconds} s")
        if not isinstance(command, RestoreDone):
            return
        if command.job in self._late:
            self._late.discard(command.job)  # what it came to at last was counted when it was given up
            return
        wrong = next((error for error in command.errors if error.startswith(("failed", "damaged"))), "")
        if wrong:
            self._count(wrong)

    def look(self) -> None:
        """Forget what is older than the window, and probe if it is time; never waits."""
        now = self._clock()
        self._forget(now)
        if not self._is_open():
            self._probing = False
        elif not self._probing and now - self._probed >= self.pause:
            self._probed, self._probing = now, True
            self._post(ProbeDue())

    def _count(self, wrong: str) -> None:
        now = self._clock()
        self._failed.append(now)
        self._forget(now)
        if self.failures and len(self._failed) >= self.failures and not self._is_open():
            reason = f"{counted(len(self._failed), 'restore')} failed within {self.window:g} s, the last one: {wrong}"
            _log.error("degraded", why=reason)
            self._probed = now
            self._post(DegradeDue(reason[:480]))

    def _forget(self, now: float) -> None:
        while self._failed and self._failed[0] <= now - self.window:
            self._failed.popleft()
