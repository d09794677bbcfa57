"""A `LogIO` that fails its n-th operation, and one that is real but for the waiting.

Syncing costs a real disk milliseconds, and the machine does not lose power while a test runs, so `FastLogIO` leaves the
two syncs out; what a sync protects from is tried in the crash simulation.
"""

import errno
import os

from kvledger_storage.log import RealLogIO

OPERATIONS = (
    "make_directory",
    "open",
    "close",
    "size",
    "pread",
    "pwrite",
    "truncate",
    "preallocate",
    "fdatasync",
    "sync_directory",
    "rename",
    "link",
    "unlink",
    "names",
    "lock",
)


class FastLogIO(RealLogIO):
    """The real file system, whose syncs return at once."""

    def __init__(self, boot_id=bytes(range(16))):
        self._boot_id = boot_id

    def fdatasync(self, fd):
        """Succeed without waiting for the device."""

    def sync_directory(self, path):
        """Succeed without waiting for the device."""

    def boot_id(self):
        """Return the boot this test plays."""
        return self._boot_id


class FaultyLogIO:
    """Passes every operation on, but fails the n-th with `fault` (an errno name, or "short"), once or from then on.

    Attributes:
        journal: Names of the operations that were asked for, in order.
    """

    def __init__(self, inner, fail_at=0, fault="EIO", *, sticky=False):
        self.journal = []
        self._inner = inner
        self._fail_at = fail_at
        self._fault = fault
        self._sticky = sticky

    def boot_id(self):
        """Return the boot of the file system underneath; it is asked once and never fails."""
        return self._inner.boot_id()

    def pread(self, fd, length, offset):
        """Read, or fail, or read half of it."""
        short = self._begin("pread")
        return self._inner.pread(fd, max(1, length // 2) if short else length, offset)

    def pwrite(self, fd, data, offset):
        """Write, or fail, or write half of it."""
        short = self._begin("pwrite")
        return self._inner.pwrite(fd, data[: max(1, len(data) // 2)] if short else data, offset)

    def close(self, fd):
        """Close and then fail, as the system call does: the descriptor is gone either way."""
        self._inner.close(fd)
        self._begin("close")

    def _begin(self, name):
        """Note an operation and fail it if it is due; return whether it is to fall short."""
        self.journal.append(name)
        count = len(self.journal)
        due = self._fail_at and (count == self._fail_at or (self._sticky and count > self._fail_at))
        if due and self._fault != "short":
            number = getattr(errno, self._fault)
            raise OSError(number, os.strerror(number))
        return due


def _passing(name):
    def operation(self, *arguments, **options):
        self._begin(name)
        return getattr(self._inner, name)(*arguments, **options)

    return operation


for _name in OPERATIONS:
    if _name not in vars(FaultyLogIO):
        setattr(FaultyLogIO, _name, _passing(_name))
