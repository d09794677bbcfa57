"""Writes that found no room under the disk quota: they wait until the cleaner has made some, or can not.

The core admits a write by what is alive; the quota counts every byte of the files, dead ones included. So a write may
find the files full although what is alive would fit, and then it is worth cleaning for it. Room is made for all that
wait together: together they were admitted, and one of them must not be refused for the others' sake.
"""

import threading
from collections.abc import Callable
from typing import Final

from kvledger_storage.disk.errors import QuotaExceededError
from kvledgerd.core.decision import DiskWrite

__all__ = ["WriteRoom"]

_TRIES: Final = 16
"""How often one write waits: others that came later may take the room that was made for it."""


class WriteRoom:
    """Keeps the writes that wait; `take` and `forget` are called in the disk thread, everything else on the loop.

    Args:
        wake: Called when a write begins to wait; safe in any thread.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake: Final = wake
        self._guard: Final = threading.Lock()
        self._waiting: list[tuple[DiskWrite, int]] = []
        self._tries: Final[dict[int, int]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def wanted(self) -> int:
        """Bytes that the waiting writes need together; 0 if none waits."""
        return sum(needed for _, needed in self._waiting)

    def take(self, effect: DiskWrite, error: BaseException) -> bool:
        """Keep a write that failed for want of room; return whether it waits now, and is not to be answered."""
        with self._guard:
            tries = self._tries.pop(effect.job, 0) + 1
            if not isinstance(error, QuotaExceededError) or tries > _TRIES:
                return False
            self._tries[effect.job] = tries
            self._waiting.append((effect, error.needed))
        self._wake()
        return True

    def leave(self, *, made: bool) -> list[DiskWrite]:
        """Let all that wait go and return them, to be tried again; without room `made` it is their last try."""
        with self._guard:
            waiting, self._waiting = self._waiting, []
            for effect, _ in waiting:
                if not made:
                    self._tries[effect.job] = _TRIES
        return [effect for effect, _ in waiting]

    def forget(self, job: int) -> None:
        """Take in that a write was made, however often it had waited."""
        with self._guard:
            self._tries.pop(job, None)
