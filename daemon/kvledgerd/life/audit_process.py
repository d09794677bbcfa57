"""The follower of the audit database, started beside the daemon where a setting asks for it.

It is a process like any other that reads the log: the daemon waits for nothing of it, and what it does not get to do it
does later. One that ends by itself over a damaged log would end the same way again; one that finds another process
writing the database is started again, since that may be a rebuild, which ends.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import structlog

from kvledgerd.exits import Exit

__all__ = ["AuditProcess"]

_PAUSE_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 3.0
"""How long it may take to end: rows and watermark are one transaction, so a kill costs what it has not told yet."""
_FINAL: Final = (Exit.DONE, Exit.USAGE, Exit.DAMAGED)

_log = structlog.get_logger(__name__)


class AuditProcess:
    """Keeps `kvledger audit follow` running.

    Args:
        data: The data directory, in which the database lies.
    """

    def __init__(self, data: Path) -> None:
        self._command: Final = [sys.executable, "-m", "kvledgerd.life.follower", str(os.getpid()), str(data)]
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    async def run(self) -> None:
        """Start it, and again if it fails, until `stop`."""
        while not self._stopped:
            code = await asyncio.to_thread(self._follow)
            if self._stopped:
                return
            _log.error("the audit follower ended", code=code)
            if code in _FINAL:
                return
            await asyncio.sleep(_PAUSE_SECONDS)

    def _follow(self) -> int:
        # It is to die with the thread that starts it, so that is the one which waits for it. What it has to say about
        # the log goes where the daemon's own lines go
        self._process = subprocess.Popen(  # noqa: S603  a list that is made here
            self._command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
        )
        if self._stopped:
            self._process.terminate()
        return self._process.wait()

    def stop(self) -> None:
        """End it in the orderly way, or by force if it hangs or is stopped; its database stays as it is."""
        self._stopped = True
        if self._process is not None:
            self._process.terminate()
            # The loop runs until the thread that waits for the process has ended, so this comes in time
            asyncio.get_running_loop().call_later(_STOP_SECONDS, self._process.kill)
