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

_log = structlog.get_logger(__name__)


async def save(ask: Callable[[Command], Awaitable[Reply | None]], seconds: float) -> None:
    """Have written what was used most recently, until all is on disk or the time is over.

    What is being written then comes to its end, so this takes longer than `seconds` by one write at most.

    Args:
        ask: Has a command decided and returns its reply.
        seconds: How long to begin writes.
    """
    began = time.monotonic()
    while True:
        reply = await ask(SaveDue())
        if not isinstance(reply, Offloaded) or not reply.objects:
            return
        if time.monotonic() - began > seconds:
            _log.warning("the time to stop is over, not all is on disk", seconds=seconds)
            return
        await asyncio.sleep(_LOOK_SECONDS)
