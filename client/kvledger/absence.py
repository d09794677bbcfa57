"""How long calls go on trying while nobody listens at the daemon's socket.

Nobody listens is another thing than nobody answers. A daemon with a keeper keeps its socket while it restarts, so who
can connect has good reason to wait until the deadline. Where no socket is, either a daemon without keeper restarts,
which takes less than a second, or there is none; an engine that paid its deadline for each of its requests then would
be slower with a cache than without. So one call tries for a second, and the next ones fail at once until a pause is
over, of which one dial sees the end.
"""

import time
from collections.abc import Callable
from typing import Final

from kvledger.errors import DisconnectedError

__all__ = ["Absence", "AbsentError"]

_PATIENCE: Final = 1.0
_PAUSE_FIRST: Final = 0.5
_PAUSE_MAX: Final = 5.0


class AbsentError(DisconnectedError):
    """Nobody listens at the daemon's socket, or nobody to whom this user may connect."""


class Absence:
    """What one cache knows of a daemon that was not there. Used under the turn of those who connect.

    Args:
        clock: Tells the time, seconds.
    """

    __slots__ = ("_clock", "_error", "_next", "_pause")

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._error: AbsentError | None = None
        self._pause = 0.0
        self._next = 0.0

    def __repr__(self) -> str:
        return f"<Absence, next try in {self._next - self._clock():.1f} s>" if self._error else "<Absence: none>"

    @property
    def patience(self) -> float:
        """Seconds for which a call may dial again: none for a daemon that was away before."""
        return 0.0 if self._error else _PATIENCE

    def require_due(self) -> None:
        """Return if it is time to dial.

        Raises:
            AbsentError: Nobody listened a moment ago; the error says when a call will dial again.
        """
        if self._error is not None and self._clock() < self._next:
            raise self._told(self._error)

    def note(self, error: AbsentError) -> AbsentError:
        """Note that nobody listened, and return the error that says when a call will dial again."""
        self._error = error
        self._pause = min(2 * self._pause, _PAUSE_MAX) or _PAUSE_FIRST
        self._next = self._clock() + self._pause
        return self._told(error)

    def end(self) -> None:
        """Note that somebody listens."""
        self._error, self._pause = None, 0.0

    def _told(self, error: AbsentError) -> AbsentError:
        left = max(self._next - self._clock(), 0.1)
        remedy = f"{error.remedy}; the next call after {left:.1f} s tries again"
        return AbsentError(error.message, field=error.field, remedy=remedy)
