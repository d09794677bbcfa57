"""Staying up over a damaged log: no authority, but nothing is given away either.

The arenas live as long as somebody holds them, and a manager that sees its daemon end with "damaged" lets go of them.
So the daemon stays, answers every hello with what is wrong, and leaves the log to the commands that read it from
outside. SIGHUP makes it try again, with the arenas, once the log was mended; SIGTERM ends it.
"""

import signal
import threading
from typing import Final

import structlog

from kvledger.errors import ServiceError
from kvledgerd.exits import Exit
from kvledgerd.keeper.notify import Notifier, watchdog_seconds
from kvledgerd.server.waiting_room import WaitingRoom

__all__ = ["hold"]

_FOR_EVER: Final = 3600.0

_log = structlog.get_logger(__name__)


def hold(error: BaseException, room: WaitingRoom, notifier: Notifier) -> Exit:
    """Refuse everybody until a signal comes; in the main thread. Returns how to end.

    Args:
        error: What is wrong with the log.
        room: Answers those who connect.
        notifier: Speaks to the service manager, to which this is a daemon that is up.
    """
    _log.critical("log is damaged, holding the memory and serving nothing", why=str(error))
    remedy = "see kvledger log verify; mend the log and send SIGHUP, or start with --on-corrupt=quarantine"
    room.refuse(ServiceError(f"the log is damaged: {error}", field="log", remedy=remedy))
    notifier.ready(f"refused: {error}")
    told, again = threading.Event(), threading.Event()

    def on_signal(number: int, _frame: object) -> None:
        if number == signal.SIGHUP:
            again.set()
        told.set()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    while not told.wait(watchdog_seconds() or _FOR_EVER):
        notifier.watchdog()
    # A manager starts again what ended by a fault, and lets go of what ended as damaged.
    return Exit.FAULT if again.is_set() else Exit.DAMAGED
