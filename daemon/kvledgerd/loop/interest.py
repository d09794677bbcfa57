"""Who waits for which job, so that what nobody waits for any more is not done for nobody.

Waiting is meant in the wide sense: who was told that a job is pending will ask again, so its connection counts as long
as it lives, whether it has a request parked at the moment or not. A job whose last connection ended before the job is
abandoned; what became of it by then is the business of whoever does it.
"""

from collections.abc import Callable, Iterable
from typing import Final

__all__ = ["Interest"]


class Interest:
    """Jobs and the connections that wait for them; used on the loop.

    Attributes:
        on_joined: Called with a job for which somebody waits from now on.
        on_abandoned: Called with a job for which nobody waits any more.
        on_ended: Called with a job that was answered.
    """

    def __init__(self) -> None:
        self.on_joined: Callable[[int], None] = _nobody
        self.on_abandoned: Callable[[int], None] = _nobody
        self.on_ended: Callable[[int], object] = _nobody
        self._waiting: Final[dict[int, set[int]]] = {}
        self._jobs: Final[dict[int, set[int]]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, connection: int, jobs: Iterable[int]) -> None:
        """Note that a connection waits for jobs."""
        for job in jobs:
            fresh = job not in self._waiting
            self._waiting.setdefault(job, set()).add(connection)
            self._jobs.setdefault(connection, set()).add(job)
            if fresh:
                self.on_joined(job)

    def is_awaited(self, job: int) -> bool:
        """Tell whether somebody waits for a job."""
        return job in self._waiting

    def ended(self, job: int) -> None:
        """Forget a job that was answered."""
        self.on_ended(job)
        for connection in self._waiting.pop(job, ()):
            jobs = self._jobs[connection]
            jobs.discard(job)
            if not jobs:
                del self._jobs[connection]

    def leave(self, connection: int) -> None:
        """Forget a connection that ended, and tell of the jobs for which nobody waits now."""
        for job in sorted(self._jobs.pop(connection, ())):
            waiting = self._waiting[job]
            waiting.discard(connection)
            if not waiting:
                del self._waiting[job]
                self.on_abandoned(job)


def _nobody(job: int) -> None:
    """Stand in for a callback until there is one."""
