"""Sealed anonymous memory: how it is made, how a foreign descriptor is checked, and how it is mapped.

Arenas and staging rings are both memfds, and each side receives descriptors that the other made. A descriptor is only
worth trusting after the kernel has been asked what it is: a file that can still be shrunk kills its reader with SIGBUS,
a pipe or a device blocks it, and a sparse giant makes it read for hours. So there is one check, used by all.
"""

import contextlib
import errno
import fcntl
import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kvledger.errors import CapacityError, ProtocolError
from kvledger.forks import watch_map

__all__ = [
    "HUGE_BYTES",
    "PAGE_BYTES",
    "DescriptorError",
    "advise_huge",
    "check_sealed",
    "create_sealed",
    "fence",
    "has_shared_huge_pages",
    "map_shared",
    "populate",
]

# The unit of generations and of slot alignment; a property of the format, not of the machine that runs it.
PAGE_BYTES: Final = 4096

HUGE_BYTES: Final = 2 << 20
"""A huge page of x86-64, and of ARM with pages of 4 KiB."""

_SIZE_SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW

# Not in the os and mmap modules of Python 3.11; values of the Linux headers.
_MFD_NOEXEC_SEAL: Final = 0x0008
_MADV_POPULATE_WRITE: Final = 23

# mmap.madvise keeps the interpreter lock (measured: another thread runs at a ninth of its speed while 64 MiB are
# populated at once), so the work is cut into calls of about one millisecond.
_POPULATE_STEP: Final = 2 << 20

_SHMEM_HUGE: Final = Path("/sys/kernel/mm/transparent_hugepage/shmem_enabled")

_FENCE_LOCK: Final = threading.Lock()


class DescriptorError(ProtocolError):
    """A descriptor that came over a socket is not what it has to be."""


def create_sealed(name: str, size: int) -> int:
    """Return the descriptor of a new memfd of ``size`` bytes, mode 0600, whose size nobody can change any more.

    The mode is set because the default lets every uid that gets hold of a read-only descriptor reopen it for writing.

    Args:
        name: Shown by the kernel in /proc, for people only.
        size: Bytes, more than 0.

    Raises:
        CapacityError: The kernel gives no descriptor or no memory.
    """
    try:
        fd = _memfd(name)
    except OSError as error:
        raise CapacityError(
            f"no memfd to be had: {error.strerror}", field=name, remedy="raise LimitNOFILE or the memory limit"
        ) from error
    try:
        os.fchmod(fd, 0o600)
        os.ftruncate(fd, size)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SIZE_SEALS | fcntl.F_SEAL_SEAL)
    except OSError as error:
        os.close(fd)
        raise CapacityError(
            f"a memfd of {size} bytes is refused: {error.strerror}", field=name, remedy="ask for less"
        ) from error
    return fd


def _memfd(name: str) -> int:
    flags = os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING
    try:
        # Hardened hosts (vm.memfd_noexec=2) refuse a memfd that may be executed; kernels before 6.3 lack the flag.
        return os.memfd_create(name, flags | _MFD_NOEXEC_SEAL)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return os.memfd_create(name, flags)


def check_sealed(fd: int, *, field: str, size: int | None = None, cap: int | None = None) -> int:
    """Return the size in bytes of a foreign descriptor, once it is known to be a sealed memfd that can be read.

    Nothing of the descriptor is read, and nothing is asked of its file system before it is known to be memory, so that
    no kind of file can block or fault the caller.

    Args:
        fd: The descriptor; it stays the caller's, also when it is refused.
        field: What the descriptor is for, named in the error.
        size: The size that was declared, if one was.
        cap: The greatest size that is acceptable, if there is one.

    Raises:
        DescriptorError: Says which property is wrong and how to make a right one.
    """
    objection = _not_open(fd) or _wrong_seals(fd) or _wrong_size(fd, size, cap)
    if objection:
        raise DescriptorError(
            f"this descriptor {objection}",
            field=field,
            remedy="send a memfd sealed with F_SEAL_SHRINK and F_SEAL_GROW, opened for reading, of the declared size",
        )
    return os.fstat(fd).st_size


def _not_open(fd: int) -> str:
    try:
        flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    except OSError as error:
        return f"is not open: {error.strerror}"
    if flags & os.O_PATH:
        return "is O_PATH and can not be read"
    return "is write-only" if flags & os.O_ACCMODE == os.O_WRONLY else ""


def _wrong_seals(fd: int) -> str:
    # The one question that no file system is asked: a hostile one could leave the others unanswered for ever.
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        return "is not a memfd"
    return "" if seals & _SIZE_SEALS == _SIZE_SEALS else f"may still change its size (seals {seals:#x})"


def _wrong_size(fd: int, size: int | None, cap: int | None) -> str:
    found = os.fstat(fd).st_size
    if size is not None and found != size:
        return f"has {found} bytes where {size} were declared"
    return f"has {found} bytes, the cap is {cap}" if cap is not None and found > cap else ""


def map_shared(fd: int, size: int, *, writable: bool) -> mmap.mmap:
    """Return a shared map of the first ``size`` bytes that no child process inherits.

    The map holds a duplicate of ``fd``, so the caller may close its own.

    Raises:
        CapacityError: The kernel refuses the map.
    """
    prot = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
    try:
        area = mmap.mmap(fd, size, flags=mmap.MAP_SHARED, prot=prot)
        area.madvise(mmap.MADV_DONTFORK)
        watch_map(area)
    except (OSError, ValueError) as error:
        raise CapacityError(
            f"{size} bytes can not be mapped: {error}", field="map", remedy="raise the address space limit"
        ) from error
    return area


def advise_huge(area: mmap.mmap) -> None:
    """Ask for huge pages, before a page is there: where the kernel has none to give nothing changes."""
    with contextlib.suppress(OSError):
        area.madvise(mmap.MADV_HUGEPAGE)


def has_shared_huge_pages() -> bool:
    """Tell whether the kernel gives huge pages to shared memory that asks for them."""
    try:
        choices = _SHMEM_HUGE.read_text(encoding="ascii")
    except OSError:
        return False
    return any(f"[{choice}]" in choices for choice in ("always", "within_size", "advise", "force"))


def populate(area: mmap.mmap, fd: int, start: int, length: int) -> None:
    """Give the pages of [start, start + length) memory now; blocks for about 0.5 s a GiB, so never on a loop.

    Asking the kernel instead of touching pages turns a missing page into an error; a touch would be a SIGBUS.

    Raises:
        CapacityError: There is not that much memory.
    """
    try:
        for step, count in _steps(start, length):
            _populate_step(area, fd, step, count)
    except OSError as error:
        raise CapacityError(
            f"{length} bytes of shared memory are not to be had: {error.strerror}",
            field="memory",
            remedy="lower the capacity or raise the memory limit of the unit or pod",
        ) from error


def _steps(start: int, length: int) -> Iterator[tuple[int, int]]:
    for step in range(start, start + length, _POPULATE_STEP):
        yield step, min(_POPULATE_STEP, start + length - step)


def _populate_step(area: mmap.mmap, fd: int, start: int, length: int) -> None:
    try:
        area.madvise(_MADV_POPULATE_WRITE, start, length)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        # Kernels before 5.14: the allocation reports what is missing, after which a touch is safe.
        os.posix_fallocate(fd, start, length)
        for page in range(start, start + length, PAGE_BYTES):
            area[page] = 0


def fence() -> None:
    """Order every earlier load and store of this thread before every later one.

    Python has no fence of its own. Releasing a lock orders what came before it, taking one orders what comes after it,
    and a release is never overtaken by a later take of the same lock; so two rounds on one lock are a full fence, on
    processors that reorder loads (ARM) as well as on those that do not (x86).
    """
    for _ in range(2):
        with _FENCE_LOCK:
            pass
