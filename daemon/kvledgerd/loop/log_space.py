"""What is refused while the disk under the log is full.

The log keeps two spare segments, so that a full disk is known while there is still room to write. From the first one
that can not be made, room is made by giving up what is kept on disk (`kvledgerd.life.retention`). Only when nothing is
left to give up, or the last spare is gone, whatever would make the cache grow is refused, and look-ups go on in the
room that is left. Without a spare look-ups are refused as well, since each is an event; what gives something back never
is, because it is what ends the shortage. A refusal changes nothing: an open reservation stays, and the same request
succeeds later.
"""

from collections.abc import Callable
from typing import Final

from kvledger.errors import CapacityError
from kvledger.wire.requests import (
    Acquire,
    ChangeTopology,
    Commit,
    Evict,
    EvictMany,
    Offload,
    Put,
    Register,
    RegisterTopology,
    Renew,
    Request,
    Reserve,
    Restore,
)
from kvledgerd.core.commands import Ask, Command
from kvledgerd.core.decision import Decision
from kvledgerd.loop.ports import Recorder

__all__ = ["LOG_FULL", "LogSpace"]

LOG_FULL: Final = "LOG_FULL"
"""How the refusal begins, and what alerts look for."""

_SPARES: Final = 2
_GROWING: Final[tuple[type[Request], ...]] = (
    *(Register, Reserve, Put, Commit, Offload, Restore),
    *(RegisterTopology, ChangeTopology),
)
_LOOKING: Final[tuple[type[Request], ...]] = (Acquire, Renew, Evict, EvictMany)


class LogSpace:
    """Decides by the number of spare segments what is let through.

    Args:
        recorder: The log's writer. A spare is also missing for a moment when a segment was begun, so it is asked
            whether the disk was full and not only how many there are.
        on_short: Called at each decision that meets a full disk, so that somebody makes room.

    Attributes:
        exhausted: Nothing is left on disk that could be given up; said by who makes room, and forgotten with the
            shortage.
    """

    def __init__(self, recorder: Recorder, on_short: Callable[[], None]) -> None:
        self._recorder: Final = recorder
        self._on_short: Final = on_short
        self.exhausted = False

    @property
    def is_short(self) -> bool:
        """Whether the disk had no room for a spare segment."""
        return self._recorder.is_full

    def admit(self, command: Command, decision: Decision) -> None:
        """Let a command pass, once it is known what it would log; a layout that is known already logs nothing.

        Raises:
            CapacityError: Its events might find no room.
        """
        if not self.is_short:
            self.exhausted = False
            return
        self._on_short()
        if not decision.events or not isinstance(command, Ask) or command.parked or command.waited:
            return
        spares = self._recorder.spares
        refused = (*_GROWING, *_LOOKING) if not spares else _GROWING if self.exhausted else ()
        if isinstance(command.body, refused):
            raise CapacityError(
                f"{LOG_FULL}: the disk under the log is full, {spares} of {_SPARES} spare segments are left",
                field="log",
                remedy="make room on the file system of the data directory; it is noticed within a second",
            )
