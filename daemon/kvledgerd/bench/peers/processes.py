"""Servers of peers as processes: started for a measurement, ended with SIGKILL, heard if they end by themselves."""

import socket
import subprocess
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from time import monotonic, sleep
from typing import Final

from kvledgerd.bench.peers.system import UnusablePeerError

__all__ = ["Server", "free_port"]

_SECONDS: Final = 60
_PAUSE: Final = 0.002


class Server:
    """A process that lives until its stack is closed.

    Args:
        life: The stack; closing it kills the process.
        command: Program and arguments.
        output: File for what it says.
    """

    def __init__(self, life: ExitStack, command: Sequence[str], output: Path) -> None:
        self._output: Final = output
        self._name: Final = Path(command[0]).name
        with output.open("wb") as file:
            self._process: Final = subprocess.Popen(  # noqa: S603  a list that is made here
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file
            )
        life.callback(self._process.wait)
        life.callback(self._process.kill)
        self._end: Final = monotonic() + _SECONDS

    def pause(self) -> None:
        """Wait a moment for it to answer.

        Raises:
            UnusablePeerError: It has ended, or has not answered for a minute.
        """
        if self._process.poll() is None and monotonic() < self._end:
            sleep(_PAUSE)
            return
        said = self._output.read_text(errors="replace").strip().splitlines()
        raise UnusablePeerError(said[-1] if said else f"{self._name} does not answer")


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
