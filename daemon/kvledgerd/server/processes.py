"""Processes as they are known for longer than their connections: by pid and start time.

A pid alone is given to another process some day; together with the time at which its process started it names one
process until the machine is booted. Both are read from procfs, which waits for no disk.
"""

import contextlib
import os
import select
from pathlib import Path
from typing import Final

from kvledger_storage.events import Process

__all__ = ["has_ended", "identified", "open_process", "start_time"]

# Fields of /proc/PID/stat behind the name, which is in parentheses and may hold anything.
_STATE: Final = 0
_START_TIME: Final = 19
_ENDED: Final = frozenset({"Z", "X", "x"})


def start_time(pid: int) -> int | None:
    """Return when a process started, clock ticks since boot; None if there is no such process, or it has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[_STATE] in _ENDED else int(fields[_START_TIME])


def identified(pid: int, pidfd: int | None) -> Process | None:
    """Return a process by pid and start time; None if it can not be told for sure.

    Args:
        pid: Its number in the daemon's pid namespace, 0 if it has none there.
        pidfd: Descriptor of the very process that is meant; the pid may be another's if that has ended.
    """
    started = start_time(pid) if pid and pidfd is not None else None
    if started is None or pidfd is None or has_ended(pidfd):
        return None
    return pid, started


def has_ended(pidfd: int) -> bool:
    """Tell whether the process behind a descriptor has ended."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def open_process(process: Process) -> int | None:
    """Return a descriptor of a process that lives, None if it has ended.

    Raises:
        OSError: No descriptor is left, or the kernel knows none of processes.
    """
    pid, started = process
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if identified(pid, pidfd) == (pid, started):
        return pidfd
    with contextlib.suppress(OSError):
        os.close(pidfd)
    return None
