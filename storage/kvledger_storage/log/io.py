"""The seam between the log and the operating system.

Every byte that the log reads or writes passes through a `LogIO`, so that a test can make the n-th operation fail, lose
what was not synced, or stop the world between any two of them. The set of operations is kept as small as the log's
promises: each one is either harmless until synced, or is itself the act of syncing. Nothing here retries; who may retry
what is decided in `write_all` and `read_all`, in one place.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from uuid import UUID

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
BOOT_ID_BYTES = 16


class LogIO(Protocol):
    """What the log asks of an operating system. Every method may raise `OSError`."""

    def make_directory(self, path: Path) -> None:
        """Make a directory with mode 0700 and sync the one above it; nothing happens if it is there."""

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> int:
        """Open a file and return its descriptor; `create` makes it (mode 0600) if it is absent, and never truncates."""

    def close(self, fd: int) -> None:
        """Close a descriptor; a held lock ends with it."""

    def size(self, fd: int) -> int:
        """Return the length of the file in bytes."""

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """Read at most `length` bytes at `offset`; fewer than asked is legal, none means end of file."""

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """Write at `offset` and return how many bytes were taken, which may be fewer than given."""

    def truncate(self, fd: int, length: int) -> None:
        """Set the length of the file."""

    def preallocate(self, fd: int, length: int) -> None:
        """Give the file `length` bytes on the device, zero where nothing was written; ENOSPC comes here, not later."""

    def fdatasync(self, fd: int) -> None:
        """Return when the file's bytes and length would survive a power cut."""

    def sync_directory(self, path: Path) -> None:
        """Return when the names in this directory would survive a power cut."""

    def rename(self, source: Path, target: Path) -> None:
        """Give a file another name, replacing what had it; the change is durable after `sync_directory`."""

    def link(self, source: Path, target: Path) -> None:
        """Give a file a second name; `FileExistsError` if something has it. Durable after `sync_directory`."""

    def unlink(self, path: Path) -> None:
        """Remove a name."""

    def names(self, path: Path) -> list[str]:
        """Return the names in a directory, sorted; none if the directory is absent."""

    def lock(self, fd: int) -> bool:
        """Take the exclusive lock of this file without waiting; false if another descriptor holds it."""

    def boot_id(self) -> bytes:
        """Return the 16 bytes that name this boot of the machine."""


class RealLogIO:
    """`LogIO` on the file system of this machine."""

    def make_directory(self, path: Path) -> None:
        """See `LogIO`."""
        if not path.is_dir():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.sync_directory(path.parent)

    def open(self, path: Path, *, create: bool = False, read_only: bool = False) -> int:
        """See `LogIO`."""
        access = os.O_RDONLY if read_only else os.O_RDWR
        # Whoever opens a FIFO that was put in a file's place would wait for its other end for ever
        flags = access | (os.O_CREAT if create else 0) | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        if stat.S_ISREG(os.fstat(fd).st_mode):
            return fd
        os.close(fd)
        raise OSError(errno.EINVAL, "this is no regular file", str(path))

    def close(self, fd: int) -> None:
        """See `LogIO`."""
        os.close(fd)

    def size(self, fd: int) -> int:
        """See `LogIO`."""
        return os.fstat(fd).st_size

    def pread(self, fd: int, length: int, offset: int) -> bytes:
        """See `LogIO`."""
        return os.pread(fd, length, offset)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """See `LogIO`."""
        return os.pwrite(fd, data, offset)

    def truncate(self, fd: int, length: int) -> None:
        """See `LogIO`."""
        os.ftruncate(fd, length)

    def preallocate(self, fd: int, length: int) -> None:
        """See `LogIO`."""
        os.posix_fallocate(fd, 0, length)

    def fdatasync(self, fd: int) -> None:
        """See `LogIO`."""
        os.fdatasync(fd)

    def sync_directory(self, path: Path) -> None:
        """See `LogIO`."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def rename(self, source: Path, target: Path) -> None:
        """See `LogIO`."""
        source.replace(target)

    def link(self, source: Path, target: Path) -> None:
        """See `LogIO`."""
        os.link(source, target)

    def unlink(self, path: Path) -> None:
        """See `LogIO`."""
        path.unlink()

    def names(self, path: Path) -> list[str]:
        """See `LogIO`."""
        return sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []

    def lock(self, fd: int) -> bool:
        """See `LogIO`."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def boot_id(self) -> bytes:
        """See `LogIO`."""
        return UUID(_BOOT_ID.read_text(encoding="ascii").strip()).bytes


def write_all(io: LogIO, fd: int, data: bytes, offset: int) -> None:
    """Write all of `data` at `offset`.

    Short writes are continued and interrupted ones repeated, because both leave the file in a state that we know. Every
    other error is passed on: after it nobody knows what the page cache holds. A sync is never repeated, here or
    elsewhere: the kernel reports a lost page once and then calls it clean.

    Raises:
        OSError: The write failed, or the file took no byte at all.
    """
    view = memoryview(data)
    while view:
        try:
            taken = io.pwrite(fd, view, offset)
        except InterruptedError:
            continue
        if taken == 0:
            raise OSError(f"write at offset {offset} took none of {len(view)} bytes")
        view, offset = view[taken:], offset + taken


def read_all(io: LogIO, fd: int, length: int) -> bytes:
    """Read the first `length` bytes of a file, or as many as there are."""
    parts, offset = list[bytes](), 0
    while length:
        try:
            part = io.pread(fd, length, offset)
        except InterruptedError:
            continue
        if not part:
            break
        parts.append(part)
        length, offset = length - len(part), offset + len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def read_file(io: LogIO, path: Path) -> bytes:
    """Return the whole content of a file; `FileNotFoundError` if it is absent."""
    fd = io.open(path, read_only=True)
    try:
        return read_all(io, fd, io.size(fd))
    finally:
        io.close(fd)


def publish_file(io: LogIO, path: Path, data: bytes) -> None:
    """Make `path` hold `data`, durably and at once: after a crash it is as before or whole, never torn."""
    draft = path.with_name(path.name + ".draft")
    fd = io.open(draft, create=True)
    try:
        io.truncate(fd, 0)
        write_all(io, fd, data, 0)
        io.fdatasync(fd)
    finally:
        io.close(fd)
    io.rename(draft, path)
    io.sync_directory(path.parent)


def move_files(io: LogIO, names: list[str], source: Path, target: Path) -> None:
    """Move files to another directory, durably; whatever cuts it short, each has one of its names or both.

    A rename would not do: it changes two directories, and after a power cut the device may know of the old name's end
    and not of the new one.
    """
    if not names:
        return
    io.make_directory(target)
    for name in names:
        with suppress(FileExistsError):
            io.link(source / name, target / name)
    io.sync_directory(target)
    for name in names:
        io.unlink(source / name)
    io.sync_directory(source)
