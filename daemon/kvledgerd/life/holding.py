"""Staying up over a damaged log: no authority, but nothing is given away either.

The arenas live as long as somebody holds them, and a manager that sees its daemon end with "damaged" lets go of them.
So the daemon stays and answers every hello with what is wrong and what to do. It keeps the lock of the log, so that
nobody starts beside it; whoever asks about the past reads the files, for which no lock is needed. SIGHUP makes it try
again, with the arenas, once the log was mended; SIGTERM ends it.
"""

import os
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import structlog

from kvledger.counts import counted
from kvledger.errors import DamagedError
from kvledger_storage.log import Problem, log_locked
from kvledgerd.exits import Exit
from kvledgerd.keeper.notify import Notifier, watchdog_seconds
from kvledgerd.server.waiting_room import WaitingRoom
from kvledgerd.sizes import short_bytes

__all__ = ["hold"]

_FOR_EVER: Final = 3600.0
_REMEDY: Final = "audit, explain, check and log read the files meanwhile; mend the log and send SIGHUP to this daemon"

_log = structlog.get_logger(__name__)


def hold(
    problem: Problem,
    directory: Path,
    descriptors: Mapping[str, Sequence[int]],
    room: WaitingRoom,
    notifier: Notifier,
) -> Exit:
    """Refuse everybody until a signal comes; in the main thread. Returns how to end.

    Args:
        problem: What is wrong with the log.
        directory: Where the log lies.
        descriptors: What the service manager had stored: the arenas, by name.
        room: Answers those who connect.
        notifier: Speaks to the service manager, to which this is a daemon that is up.

    Raises:
        LogLockedError: Somebody else has started on the log meanwhile.
    """
    held = f"{_held(descriptors)} are held, nothing is served"
    _log.critical("log is damaged, holding the memory and serving nothing", why=problem.headline, held=held)
    room.refuse(DamagedError("\n  ".join([f"{problem.headline}; {held}", *problem.details, _pid()]), remedy=_REMEDY))
    told, again = threading.Event(), threading.Event()

    def on_signal(number: int, _frame: object) -> None:
        if number == signal.SIGHUP:
            again.set()
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    with log_locked(directory):
        notifier.ready(f"refused: {problem.headline}; {held}")
        while not told.wait(watchdog_seconds() or _FOR_EVER):
            notifier.watchdog()
    # A manager starts again what ended by a fault, and lets go of what ended as damaged.
    return Exit.FAULT if again.is_set() else Exit.DAMAGED


def _held(descriptors: Mapping[str, Sequence[int]]) -> str:
    arenas = [fd for stored in descriptors.values() for fd in stored]
    return f"{counted(len(arenas), 'arena')} of {short_bytes(sum(os.fstat(fd).st_size for fd in arenas))}"


def _pid() -> str:
    return f"this daemon: process {os.getpid()}"
