"""Feeding the service manager's watchdog, for as long as the daemon really lives.

A daemon whose loop turns while its log does not is dead to everybody who waits for a commit. So the watchdog is fed
only if the log writer has caught up, syncs that somebody waits for included, or has moved since the last feeding; that
the loop turns shows by this code running at all.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from kvledgerd.loop.writer_statistics import WriterStatistics

__all__ = ["Watchdog"]

_log = structlog.get_logger(__name__)


class Watchdog:
    """Feeds a watchdog.

    Args:
        feed: Tells the service manager.
        statistics: Shows how far the log is.
    """

    def __init__(self, feed: Callable[[], object], statistics: Callable[[], WriterStatistics]) -> None:
        self._feed: Final = feed
        self._statistics: Final = statistics
        self._reached = (-1, -1)

    def check(self) -> bool:
        """Feed it if loop and log have made progress; return whether they have."""
        now = self._statistics()
        reached = now.written_seq, now.durable_seq
        level = now.written_seq == now.last_seq and now.durable_seq >= now.promised_seq
        alive = level or reached != self._reached
        self._reached = reached
        if alive:
            self._feed()
        else:
            _log.error("the log does not move", written=now.written_seq, durable=now.durable_seq, last=now.last_seq)
        return alive

    async def run(self, seconds: float) -> None:
        """Check every ``seconds``, until cancelled."""
        while True:
            self.check()
            await asyncio.sleep(seconds)
