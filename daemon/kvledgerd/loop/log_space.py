"""What is refused while the disk under the log is full.

The log keeps two spare segments, so that a full disk is known while there is still room to write. From the first one
that can not be made, whatever would make the cache grow is refused, and look-ups go on in the room that is left. With
the last one gone look-ups are refused as well, since each is an event; what gives something back never is, because it
is what ends the shortage. A refusal changes nothing: an open reservation stays, and the same request succeeds later.
"""

from typing import Final

from kvledger.errors import CapacityError
from kvledger.wire.requests import Acquire, Commit, Evict, Offload, Put, Register, Renew, Request, Reserve, Restore
from kvledgerd.core.commands import Ask, Command
from kvledgerd.core.decision import Decision
from kvledgerd.loop.ports import Recorder

__all__ = ["LOG_FULL", "LogSpace"]

LOG_FULL: Final = "LOG_FULL"
"""How the refusal begins, and what alerts look for."""

_SPARES: Final = 2
_GROWING: Final[tuple[type[Request], ...]] = (Register, Reserve, Put, Commit, Offload, Restore)
_LOOKING: Final[tuple[type[Request], ...]] = (Acquire, Renew, Evict)


class LogSpace:
    """Decides by the number of spare segments what is let through.

    Args:
        recorder: The log's writer. A spare is also missing for a moment when a segment was begun, so it is asked
            whether the disk was full and not only how many there are.
    """

    def __init__(self, recorder: Recorder) -> None:
        self._recorder: Final = recorder

    @property
    def is_short(self) -> bool:
        """Whether the disk had no room for a spare segment."""
        return self._recorder.is_full

    def admit(self, command: Command, decision: Decision) -> None:
        """Let a command pass, once it is known what it would log; a layout that is known already logs nothing.

        Raises:
            CapacityError: Its events might find no room.
        """
        if not self.is_short or not decision.events:
            return
        if not isinstance(command, Ask) or command.parked or command.waited:
            return
        spares = self._recorder.spares
        refused = _GROWING if spares else (*_GROWING, *_LOOKING)
        if isinstance(command.body, refused):
            raise CapacityError(
                f"{LOG_FULL}: the disk under the log is full, {spares} of {_SPARES} spare segments are left",
                field="log",
                remedy="make room on the file system of the data directory; it is noticed within a second",
            )
