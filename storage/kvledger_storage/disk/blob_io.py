"""The seam between the disk tier and the operating system.

Every system call that the tier makes goes through `BlobIO`, so that tests can fail, shorten or forget any single one of
them. All calls block; they are made by the disk thread and by reader threads, never by the event loop.
"""

import errno
import os
import pathlib
import stat
from collections.abc import Sequence
from typing import NamedTuple, Protocol

__all__ = ["BlobIO", "FileStat", "OsBlobIO"]

# What a file system answers that can not reserve space ahead; files then grow as they are written.
_NO_PREALLOCATION = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class FileStat(NamedTuple):
    """Of an open file: whether it is a regular one, and its size in bytes."""

    regular: bool
    size: int


class BlobIO(Protocol):
    """System calls of the disk tier; each raises `OSError` when it fails."""

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        """Open `path` and return a descriptor."""

    def close(self, fd: int) -> None:
        """Close a descriptor."""

    def fstat(self, fd: int) -> FileStat:
        """Return what kind of file `fd` is and its size."""

    def pwrite(self, fd: int, buffers: Sequence[memoryview], offset: int) -> int:
        """Write `buffers` one after the other at `offset`; return the bytes written, which may be fewer."""

    def preadv(self, fd: int, buffers: Sequence[memoryview], offset: int) -> int:
        """Fill `buffers` one after the other from `offset`; return the bytes read, 0 at the end of the file."""

    def fdatasync(self, fd: int) -> None:
        """Return when the bytes of `fd`, and its size, are on stable storage."""

    def sync_directory(self, path: str) -> None:
        """Return when the names in directory `path` are on stable storage."""

    def preallocate(self, fd: int, offset: int, length: int) -> None:
        """Reserve space for `length` bytes at `offset`, so that a full disk shows before bytes are written."""

    def truncate(self, fd: int, length: int) -> None:
        """Set the size of `fd` to `length` bytes."""

    def unlink(self, path: str) -> None:
        """Remove the name `path`."""

    def mkdir(self, path: str) -> None:
        """Make directory `path`, mode 0700."""

    def listdir(self, path: str) -> list[str]:
        """Return the names in directory `path`."""


class OsBlobIO:
    """The real calls. Interrupted ones are taken up again by the interpreter itself."""

    def open(self, path: str, flags: int, mode: int = 0o600) -> int:
        """See `BlobIO`; descriptors are never inherited."""
        return os.open(path, flags | os.O_CLOEXEC, mode)

    def close(self, fd: int) -> None:
        """See `BlobIO`."""
        os.close(fd)

    def fstat(self, fd: int) -> FileStat:
        """See `BlobIO`."""
        status = os.fstat(fd)
        return FileStat(stat.S_ISREG(status.st_mode), status.st_size)

    def pwrite(self, fd: int, buffers: Sequence[memoryview], offset: int) -> int:
        """See `BlobIO`."""
        return os.pwritev(fd, buffers, offset)

    def preadv(self, fd: int, buffers: Sequence[memoryview], offset: int) -> int:
        """See `BlobIO`."""
        return os.preadv(fd, buffers, offset)

    def fdatasync(self, fd: int) -> None:
        """See `BlobIO`."""
        os.fdatasync(fd)

    def sync_directory(self, path: str) -> None:
        """See `BlobIO`."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def preallocate(self, fd: int, offset: int, length: int) -> None:
        """See `BlobIO`; does nothing where the file system has no such call."""
        try:
            os.posix_fallocate(fd, offset, length)
        except OSError as error:
            if error.errno not in _NO_PREALLOCATION:
                raise

    def truncate(self, fd: int, length: int) -> None:
        """See `BlobIO`."""
        os.ftruncate(fd, length)

    def unlink(self, path: str) -> None:
        """See `BlobIO`."""
        pathlib.Path(path).unlink()

    def mkdir(self, path: str) -> None:
        """See `BlobIO`; a directory that exists is fine."""
        pathlib.Path(path).mkdir(0o700, exist_ok=True)

    def listdir(self, path: str) -> list[str]:
        """See `BlobIO`."""
        return [entry.name for entry in pathlib.Path(path).iterdir()]
