"""The daemon's side of snapshots: it starts a process now and then, and looks at how that ended."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Final

import structlog

__all__ = ["SnapshotProcess"]

_log = structlog.get_logger(__name__)


class SnapshotProcess:
    """Starts a snapshot when the log has grown enough; one at a time.

    Args:
        data: The data directory.
        every: Events between two snapshots; 0 for none at all.
        last_seq: Last event that a snapshot holds already.
    """

    def __init__(self, data: Path, every: int, last_seq: int) -> None:
        self._data: Final = data
        self._every: Final = every
        self._begun_at = last_seq
        self._running: asyncio.Task[None] | None = None
        self._process: subprocess.Popen[str] | None = None

    def look(self, last_seq: int) -> None:
        """Start one if it is time; on the loop, and never waits."""
        idle = self._running is None or self._running.done()
        if self._every and idle and last_seq - self._begun_at >= self._every:
            self._begun_at = last_seq
            self._running = asyncio.get_running_loop().create_task(self._run(), name="snapshot")

    def stop(self) -> None:
        """End the one that is under way; what it has not published is not missed."""
        if self._process is not None:
            self._process.terminate()

    async def _run(self) -> None:
        code, said, wrong = await asyncio.to_thread(self._make)
        if code:
            _log.error("snapshot failed", code=code, why=wrong.strip())
        else:
            _log.info("snapshot made", seq=int(said))

    def _make(self) -> tuple[int, str, str]:
        self._process = subprocess.Popen(  # noqa: S603  a list that is made here
            [sys.executable, "-m", "kvledgerd.snapshots", str(self._data)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        said, wrong = self._process.communicate()
        return self._process.returncode, said, wrong
