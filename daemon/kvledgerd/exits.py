"""Exit codes of the daemon, from sysexits.h where one fits; the keeper gives up after those that would repeat."""

import enum

from kvledger.errors import CapacityError, DamagedError, KVLedgerError, LimitError
from kvledger_storage.disk.errors import NewerVersionError
from kvledger_storage.events import EventError
from kvledger_storage.log import LogLockedError, LogRotError, LogStoppedError, LogVersionError
from kvledgerd.core.apply import DigestMismatchError
from kvledgerd.keeper.notify import NotifyError

__all__ = ["Exit", "exit_of"]


class Exit(enum.IntEnum):
    """Why the daemon ended."""

    DONE = 0
    """It was asked to."""
    USAGE = 64
    """The command line makes no sense."""
    DAMAGED = 65
    """The log is damaged or contradicts itself: see `kvledger log verify`. Nothing was changed."""
    FAULT = 70
    """A bug of the daemon; a restart begins from what the log holds."""
    IO = 74
    """The log or the file system failed; a restart begins from what was acknowledged."""
    UNAVAILABLE = 75
    """Something outside stands in the way for now, such as memory or the descriptor store; another start may do."""
    CONFIG = 78
    """Settings, data directory or its version do not fit; another start would end the same way."""


def exit_of(error: BaseException) -> Exit:
    """Return the exit code that tells best what happened."""
    if isinstance(error, LogRotError | DigestMismatchError | DamagedError):
        return Exit.DAMAGED
    if isinstance(error, LogLockedError | LogVersionError | EventError | NewerVersionError):
        return Exit.CONFIG
    if isinstance(error, LogStoppedError | OSError):
        return Exit.IO
    if isinstance(error, CapacityError | LimitError | NotifyError):
        return Exit.UNAVAILABLE
    return Exit.CONFIG if isinstance(error, KVLedgerError) else Exit.FAULT
