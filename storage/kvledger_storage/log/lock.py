"""The lock of a log: whoever holds it is the only one who may change the log, or map an arena writable.

It belongs to the open descriptor, so it ends with the process that took it, however that ends.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from kvledger_storage.log.errors import LogLockedError
from kvledger_storage.log.io import LogIO, RealLogIO, read_all, write_all

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOCK_NAME: Final = "lock"
_PID_BYTES: Final = 20


def take_lock(io: LogIO, directory: Path) -> int:
    """Lock the directory and leave our pid for whoever comes second; returns the descriptor that holds the lock.

    Raises:
        LogLockedError: Another process holds it.
    """
    fd = io.open(directory / LOCK_NAME, create=True)
    try:
        if io.lock(fd):
            io.truncate(fd, 0)
            write_all(io, fd, b"%d\n" % os.getpid(), 0)
            return fd
        holder = read_all(io, fd, _PID_BYTES).strip()
    except BaseException:
        with suppress(OSError):
            io.close(fd)
        raise
    io.close(fd)
    raise LogLockedError(directory, int(holder) if holder.isdigit() else 0)


@contextmanager
def log_locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a log that is not opened, for a `with` block: nobody else starts on it meanwhile.

    Raises:
        LogLockedError: Another process holds it.
    """
    io = RealLogIO()
    fd = take_lock(io, directory)
    try:
        yield
    finally:
        io.close(fd)
