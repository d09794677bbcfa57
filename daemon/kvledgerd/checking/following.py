"""A log that is replayed from outside, beside the daemon that writes it if there is one, and followed further on."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from kvledger.errors import NotFoundError, ServiceError
from kvledger_storage.log import LogRotError, RealLogIO, damage_at_end, read_events
from kvledger_storage.log.inspection import load_identity
from kvledgerd.replaying import PROGRESS_EVENTS, apply_logged
from kvledgerd.snapshots.choice import chosen
from kvledgerd.snapshots.origin import origin

__all__ = ["Followed"]

_NEWEST: Final = (1 << 64, b"")
_POLL_SECONDS: Final = 0.02


def _silent(_seq: int) -> None:
    """Tell nobody."""


class Followed:
    """The state after one event of the log, which can be moved on.

    Args:
        data: The data directory.
        newest: Begin with the newest snapshot instead of with the first event that is left.
        progress: Called with the seq that the replay has reached, now and then.

    Attributes:
        state: The state.
        seq: Last event that it holds.
        identity: Which log it is.

    Raises:
        NotFoundError: There is no log.
        LogError: The log is damaged where it begins, or of a newer version.
    """

    def __init__(self, data: Path, *, newest: bool, progress: Callable[[int], object] = _silent) -> None:
        self._progress: Final = progress
        self._io, self._data, self._directory = RealLogIO(), data, data / "log"
        identity = load_identity(self._io, self._directory) if self._directory.is_dir() else None
        if identity is None:
            remedy = "name the data directory of a daemon, the one that holds the folder log"
            raise NotFoundError(f"there is no log in {data}", field="data", remedy=remedy)
        self.identity: Final = identity
        found = chosen(self._io, data, identity.log_id, _NEWEST) if newest else None
        if found is not None:
            self.state, self.seq = found[1], found[0].seq
        else:
            self.state, self.seq, _ = origin(self._io, data)

    def to_end(self) -> None:
        """Apply everything that can be read.

        Raises:
            LogRotError: The log is damaged, or contradicts itself.
        """
        self._apply(None)
        problem = damage_at_end(self._directory, io=self._io)
        if problem is not None:
            raise LogRotError(problem)

    def to(self, seq: int, seconds: float) -> None:
        """Apply the events through `seq`, which the daemon may not have written yet.

        Raises:
            ServiceError: They did not come within so many seconds.
            LogRotError: The log is damaged.
        """
        end = time.monotonic() + seconds
        self._apply(seq)
        while self.seq < seq:
            if time.monotonic() > end:
                raise ServiceError(
                    f"the daemon is at seq {seq}, the log in {self._data} ends at {self.seq}",
                    field="data",
                    remedy="name the data directory of the daemon that answers at this socket",
                )
            time.sleep(_POLL_SECONDS)
            self._apply(seq)

    def _apply(self, through: int | None) -> None:
        for logged in read_events(self._io, self._directory, from_seq=self.seq + 1):
            if through is not None and logged.seq > through:
                return
            apply_logged(self._directory, self.state, logged)
            self.seq = logged.seq
            if self.seq % PROGRESS_EVENTS == 0:
                self._progress(self.seq)
