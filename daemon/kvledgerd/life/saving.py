"""Before an orderly stop: what only memory has is written to disk, as far as time allows."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from kvledger.wire.replies import Offloaded, Reply
from kvledgerd.core.commands import Command, SaveDue

__all__ = ["save"]

_LOOK_SECONDS: Final = 0.02
_AT_ONCE: Final = 1024
"""Cells that one command names: each decision looks at no others, however many there are."""

_log = structlog.get_logger(__name__)


async def save(
    ask: Callable[[Command], Awaitable[Reply | None]], unsaved: Callable[[], list[int]], seconds: float
) -> None:
    """Have written what was used most recently, until all is on disk or the time is over.

    What is being written then comes to its end, so this takes longer than `seconds` by one write at most.

    Args:
        ask: Has a command decided and returns its reply.
        unsaved: Returns the cells of which something would be lost, most recently used first.
        seconds: How long to begin writes.
    """
    end, before, cells = time.monotonic() + seconds, list[int](), unsaved()
    while cells and cells != before:  # what could not be written, or not yet, is tried until nothing changes
        for first in range(0, len(cells), _AT_ONCE):
            if not await _save_some(ask, SaveDue(tuple(cells[first : first + _AT_ONCE])), end):
                return
        before, cells = cells, unsaved()
    await _save_some(ask, SaveDue(), end)  # for what was under way already


async def _save_some(ask: Callable[[Command], Awaitable[Reply | None]], due: SaveDue, end: float) -> bool:
    """Have some cells written; return whether there is time for others."""
    while True:
        reply = await ask(due)
        if not isinstance(reply, Offloaded) or not reply.objects:
            return True
        if time.monotonic() > end:
            _log.warning("the time to stop is over, not all is on disk")
            return False
        await asyncio.sleep(_LOOK_SECONDS)
