"""What a directory takes, direct I/O or writes at all, found out by trying it.

File systems differ (overlayfs, tmpfs and network ones refuse the flag or the first transfer), and so do their answers,
so a page is written and read back. Whatever fails, the tier goes on with buffered I/O; nothing is asserted.
"""

import contextlib
import errno
import os

from kvledger_storage.disk.blob_io import BlobIO
from kvledger_storage.disk.pages import PAGE, new_pages

__all__ = ["DIRECT_FLAG", "SAFE_FLAGS", "probe_direct", "probe_writes"]

DIRECT_FLAG = os.O_DIRECT
# Never follow a link planted under our name, and never wait for the other end of a FIFO.
SAFE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK

_PROBE_NAME = "direct.probe"
_ROOM = 1 << 20  # what a write of the daemon needs at least, roughly: a boundary of a small model


def probe_direct(io: BlobIO, directory: str) -> bool:
    """Return whether a page written to `directory` with direct I/O could be read back with it.

    Raises:
        OSError: Not even an empty file could be made: the directory is read-only or the disk is full.
    """
    path = f"{directory}/{_PROBE_NAME}"
    with contextlib.suppress(FileNotFoundError):
        io.unlink(path)
    io.close(io.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | SAFE_FLAGS))
    try:
        return _round_trip(io, path)
    except OSError:
        return False
    finally:
        io.unlink(path)


def _round_trip(io: BlobIO, path: str) -> bool:
    fd = io.open(path, os.O_RDWR | SAFE_FLAGS | DIRECT_FLAG)
    try:
        page = new_pages(1)
        page[:] = os.urandom(PAGE)
        back = new_pages(1)
        return io.pwrite(fd, [page], 0) == PAGE and io.preadv(fd, [back], 0) == PAGE and back == page
    finally:
        io.close(fd)


def probe_writes(io: BlobIO, directory: str) -> None:
    """Write a page to `directory`, with room for a megabyte behind it, sync it and remove it again.

    Raises:
        OSError: A step failed: the directory is read-only, the disk is full or broken.
    """
    path = f"{directory}/{_PROBE_NAME}"
    with contextlib.suppress(FileNotFoundError):
        io.unlink(path)
    fd = io.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | SAFE_FLAGS)
    try:
        io.preallocate(fd, 0, _ROOM)
        if io.pwrite(fd, [new_pages(1)], 0) != PAGE:
            raise OSError(errno.EIO, "a write was cut short")
        io.fdatasync(fd)
    finally:
        io.close(fd)
        io.unlink(path)
