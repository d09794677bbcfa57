"""Processes that run beside the daemon where a setting asks for them: the follower of the audit database, the page.

Each is a process like any other that reads the log or connects to the socket: the daemon waits for nothing of it, and
what it does not get to do it does later. One that ends by itself over a damaged log or a wrong setting would end the
same way again; one that finds its place taken, such as a database that is being rebuilt, is started again.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

import structlog

from kvledgerd.exits import Exit

__all__ = ["Companion"]

_PAUSE_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 3.0
"""How long it may take to end: rows and watermark are one transaction, so a kill costs what it has not told yet."""
_FINAL: Final = (Exit.DONE, Exit.USAGE, Exit.DAMAGED)

_log = structlog.get_logger(__name__)


class Companion:
    """Keeps one command of `kvledger` running.

    Args:
        name: What it is called in log lines.
        words: The command and its options.
    """

    def __init__(self, name: str, words: Sequence[str]) -> None:
        self._name: Final = name
        self._command: Final = [sys.executable, "-m", "kvledgerd.life.beside", str(os.getpid()), *words]
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    async def run(self) -> None:
        """Start it, and again if it fails, until `stop`."""
        while not self._stopped:
            code = await asyncio.to_thread(self._watch)
            if self._stopped:
                return
            _log.error(f"{self._name} ended", code=code)
            if code in _FINAL:
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    def _watch(self) -> int:
        # It is to die with the thread that starts it, so that is the one which waits for it. What it has to say goes
        # where the daemon's own lines go
        self._process = subprocess.Popen(  # noqa: S603  a list that is made here
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        if self._stopped:
            self._process.terminate()
        return self._process.wait()

    def stop(self) -> None:
        """End it in the orderly way, or by force if it hangs or is stopped; what it has written stays as it is."""
        self._stopped = True
        if self._process is not None:
            self._process.terminate()
            # The loop runs until the thread that waits for the process has ended, so this comes in time
            asyncio.get_running_loop().call_later(_STOP_SECONDS, self._process.kill)
