"""Opening segment files so that nothing put in their place can harm or hang us.

A name in our directory may have been removed, replaced by a link, a FIFO, a device or a directory, or made unreadable.
Each file is therefore opened anew for each read (microseconds beside the transfer), without following links and without
waiting, and looked at before a byte is asked of it. No descriptor is kept, so none can outlive its file or run out.
"""

import contextlib
import errno
import os
from collections.abc import Iterator
from typing import NamedTuple

from kvledger_storage.disk.blob_io import BlobIO
from kvledger_storage.disk.errors import MissingError, RecordMissError, UnreadableError
from kvledger_storage.disk.probes import DIRECT_FLAG, SAFE_FLAGS

__all__ = ["OpenFile", "open_segment"]

# What `open` answers when the name is gone or stands for something that is no file of ours.
_NOT_OURS = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENXIO, errno.ENODEV, errno.EISDIR)


class OpenFile(NamedTuple):
    """An open regular segment file: its descriptor and its size in bytes."""

    fd: int
    size: int


@contextlib.contextmanager
def open_segment(io: BlobIO, path: str, offset: int, *, direct: bool) -> Iterator[OpenFile]:
    """Open the segment file `path` for reading; `offset` only serves the text of errors.

    Raises:
        MissingError: No regular file stands there.
        UnreadableError: The system refused to open or to look at it.
    """
    flags = os.O_RDONLY | SAFE_FLAGS | (DIRECT_FLAG if direct else 0)
    try:
        fd = io.open(path, flags)
    except OSError as error:
        raise _open_error(path, offset, error) from error
    try:
        yield OpenFile(fd, _regular_size(io, fd, path, offset))
    finally:
        # The bytes are read by now; a close that fails on a read-only descriptor takes nothing away.
        with contextlib.suppress(OSError):
            io.close(fd)


def _open_error(path: str, offset: int, error: OSError) -> RecordMissError:
    if error.errno in _NOT_OURS:
        return MissingError(path, offset, "file", f"no segment file stands there ({error.strerror})")
    return UnreadableError(path, offset, error)


def _regular_size(io: BlobIO, fd: int, path: str, offset: int) -> int:
    try:
        status = io.fstat(fd)
    except OSError as error:
        raise UnreadableError(path, offset, error) from error
    if not status.regular:
        raise MissingError(path, offset, "file", "what stands there is no regular file")
    return status.size
