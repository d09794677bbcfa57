"""One tensor process, seen from the daemon: started, asked, and ended for good.

Every call but `kill` blocks, and all of them belong to the thread that started it, with which it ends.
"""

import os
import socket
import subprocess
import sys
import time
from typing import Final

import msgspec

from kvledgerd.memory.arenas import ArenaTable
from kvledgerd.tensor_device import DeviceRefusedError
from kvledgerd.tensors.messages import Begin, Done, Failed, Give, Job, Link, Ready, Refused

__all__ = ["ProcessLostError", "TensorProcess"]

_START_SECONDS: Final = 120.0
"""How long the first message may take: torch from a cold disk, and a driver that wakes a GPU."""


class ProcessLostError(Exception):
    """The process has died, hangs, or said what makes no sense; it is to be ended."""


class TensorProcess:
    """A process; `greet` it before it is given anything.

    Args:
        lock: Descriptor of the data directory's lock, which it holds as long as it lives.

    Raises:
        OSError: No process is to be had.
    """

    def __init__(self, lock: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "kvledgerd.tensors", str(theirs.fileno()), str(os.getpid())]
            # What it says goes where the daemon's own lines go
            self._process: Final = subprocess.Popen(  # noqa: S603  a list that is made here
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=(theirs.fileno(), lock)
            )
        self._link: Final = Link(ours)
        self._given: Final[set[int]] = set()

    def __repr__(self) -> str:
        return f"<TensorProcess {self.pid}>"

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def greet(self, begin: Begin) -> str:
        """Wait until its device works, and return what that is.

        Raises:
            DeviceRefusedError: It can not use the device.
            ProcessLostError: It did not come up.
        """
        end = time.monotonic() + _START_SECONDS
        try:
            self._link.send(begin, end)
            answer = self._link.receive_answer(end)
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            raise ProcessLostError(self._why(error, _START_SECONDS)) from error
        if isinstance(answer, Refused):
            raise DeviceRefusedError(answer.why, field="tensor_device", remedy=answer.remedy)
        if not isinstance(answer, Ready):
            raise ProcessLostError("it did not greet")
        return answer.device

    def give(self, arenas: ArenaTable, wanted: set[int]) -> None:
        """Hand over what it lacks of some arenas.

        Raises:
            ProcessLostError: It takes nothing.
        """
        for number in sorted(wanted - self._given):
            try:
                self._link.send(Give(number), time.monotonic() + _START_SECONDS, arenas[number].fd)
            except OSError as error:
                raise ProcessLostError(self._why(error, _START_SECONDS)) from error
            self._given.add(number)

    def ask(self, job: Job, seconds: float) -> Done | Failed:
        """Have a job done.

        Raises:
            ProcessLostError: It was not done within that time, or the process has died over it.
        """
        end = time.monotonic() + seconds
        try:
            self._link.send(job, end)
            answer = self._link.receive_answer(end)
        except (OSError, EOFError, msgspec.MsgspecError) as error:
            raise ProcessLostError(self._why(error, seconds)) from error
        if not isinstance(answer, Done | Failed):
            raise ProcessLostError("its answer is none")
        return answer

    def kill(self) -> None:
        """Kill it, from any thread: whoever waits for its answer finds it lost."""
        self._process.kill()

    def end(self) -> int:
        """Kill it and return how it ended; when this returns it writes to no arena any more.

        A process that hangs in a driver may be beyond killing for now. Waiting for it holds the job, and with it every
        slot that it might still write to, which is what has to be.
        """
        self._link.close()
        self._process.kill()
        return self._process.wait()

    def _why(self, error: BaseException, seconds: float) -> str:
        if isinstance(error, TimeoutError):
            return f"it did not answer within {seconds:g} s"
        if isinstance(error, EOFError | OSError):
            return "it has died"
        return f"it said what makes no sense: {error}"
