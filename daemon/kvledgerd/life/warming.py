"""Warm-up: bringing back what was hot, bit by bit, and out of the way of real work.

One run at a time. It begins the next restore when its last one has ended and its rate allows, and pauses while somebody
waits for a restore of his own.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from kvledger.wire.replies import Reply, Warming
from kvledgerd.core.commands import Command, WarmDue
from kvledgerd.core.decision import WarmUp

__all__ = ["Warmer"]

_LOOK_SECONDS: Final = 0.02

_log = structlog.get_logger(__name__)


class Warmer:
    """Runs warm-ups; used on the loop.

    Args:
        ask: Has a command decided and returns its reply.
        runs: Tells whether a job has not ended.
        is_busy: Tells whether somebody waits for a restore.
        rate: Bytes a second.

    Attributes:
        rate: As above; may be changed.
    """

    def __init__(
        self,
        ask: Callable[[Command], Awaitable[Reply | None]],
        runs: Callable[[int], bool],
        is_busy: Callable[[], bool],
        rate: int,
    ) -> None:
        self._ask: Final = ask
        self._runs: Final = runs
        self._is_busy: Final = is_busy
        self.rate = rate
        self._waiting: Final[deque[WarmUp]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._seen = self._total = 0

    def begin(self, run: WarmUp) -> None:
        """Begin a run, after those that were asked for before."""
        self._waiting.append(run)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._work(), name="warm-up")

    def stop(self) -> None:
        """Begin no further restore."""
        self._waiting.clear()
        if self._task is not None:
            self._task.cancel()

    def counters(self) -> dict[str, int]:
        """Return how far the latest run is."""
        return {
            "warm_running": int(self._task is not None),
            "warm_seen": self._seen,
            "warm_total": self._total,
        }

    async def _work(self) -> None:
        try:
            while self._waiting:
                await self._run(self._waiting.popleft())
        finally:
            self._task = None

    async def _run(self, run: WarmUp) -> None:
        self._seen, left = 0, run.bytes
        while True:
            while self._is_busy():  # noqa: ASYNC110  it stands back for as long as there is real work
                await asyncio.sleep(_LOOK_SECONDS)
            reply = await self._ask(WarmDue(run.tenant, run.layout, run.block, self._seen, left))
            if not isinstance(reply, Warming):
                _log.warning("warm-up given up", why=str(reply))
                return
            self._seen, self._total = reply.seen, reply.total
            if reply.job:
                left -= reply.bytes
                await self._bring(reply)
            elif reply.seen >= reply.total:
                _log.info("warm-up ended", bytes=run.bytes - left, seen=reply.seen)
                return

    async def _bring(self, reply: Warming) -> None:
        pause = asyncio.get_running_loop().time() + reply.bytes / self.rate
        while self._runs(reply.job):  # noqa: ASYNC110  nobody is in a hurry here
            await asyncio.sleep(_LOOK_SECONDS / 4)
        await asyncio.sleep(max(0.0, pause - asyncio.get_running_loop().time()))
