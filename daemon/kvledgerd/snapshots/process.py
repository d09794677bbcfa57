"""The daemon's side of snapshots: it starts a process now and then, and looks at how that ended.

A replay would hold the interpreter for seconds; in a process of its own it costs the daemon nothing.
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import structlog

__all__ = ["FloorProcess", "SnapshotProcess"]

_log = structlog.get_logger(__name__)


class _Process:
    """Runs `python -m kvledgerd.snapshots`, one at a time."""

    def __init__(self, data: Path) -> None:
        self._command: Final = [sys.executable, "-m", "kvledgerd.snapshots", str(data)]
        self._process: subprocess.Popen[str] | None = None

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Run it to its end; blocks. Returns its exit code and what it said, to stdout and to stderr."""
        self._process = subprocess.Popen(  # noqa: S603  a list that is made here
            [*self._command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        said, wrong = self._process.communicate()
        return self._process.returncode, said, wrong

    def stop(self) -> None:
        """End the one that is under way; what it has not published is not missed."""
        if self._process is not None:
            self._process.kill()  # one that hangs or is stopped would not hear of anything else


class FloorProcess(_Process):
    """Makes the snapshot from which history is replayed once what lies before it was retired."""

    def make(self, seq: int, *, overdue: bool) -> None:
        """Make one of the moment after event `seq`, standing back for nothing if it is overdue; blocks.

        Raises:
            OSError: It could not be made.
        """
        code, _, wrong = self.run("--floor", str(seq), *(["--overdue"] if overdue else []))
        if code:
            raise OSError(f"no snapshot of seq {seq}, code {code}: {wrong.strip()}")


class SnapshotProcess(_Process):
    """Starts a snapshot when the log has grown enough; one at a time.

    Args:
        data: The data directory.
        every: Events between two snapshots; 0 for none at all.
        last_seq: Last event that a snapshot holds already.
        on_made: Called when there is a new one.

    Attributes:
        every: As above; may be changed.
    """

    def __init__(self, data: Path, every: int, last_seq: int, on_made: Callable[[], None]) -> None:
        super().__init__(data)
        self.every = every
        self._on_made: Final = on_made
        self._begun_at = last_seq
        self._running: asyncio.Task[None] | None = None

    def look(self, last_seq: int) -> None:
        """Start one if it is time; on the loop, and never waits."""
        idle = self._running is None or self._running.done()
        if self.every and idle and last_seq - self._begun_at >= self.every:
            # Daemons before this one died before theirs was done. Were it late again, the next start would take longer,
            # and the snapshot after it: on a machine that has no time to spare neither might ever come to its end.
            overdue = ["--overdue"] if last_seq - self._begun_at >= 2 * self.every else []
            self._begun_at = last_seq
            self._running = asyncio.get_running_loop().create_task(self._run(*overdue), name="snapshot")

    async def _run(self, *arguments: str) -> None:
        code, said, wrong = await asyncio.to_thread(self.run, *arguments)
        if code:
            _log.error("snapshot failed", code=code, why=wrong.strip())
        else:
            _log.info("snapshot made", seq=int(said))
            self._on_made()
