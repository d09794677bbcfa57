"""The listening sockets: bound once by the keeper, so that clients wait in its backlog while the daemon restarts."""

import contextlib
import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kvledger.errors import ServiceError

__all__ = ["PATH_LIMIT", "SOCKET_NAME", "ListenError", "Listening", "bound", "listen", "unlink_own"]

SOCKET_NAME: Final = "kvledger.socket"
"""Name of the first listening socket among the passed descriptors; what systemd calls it when the unit has it."""

# sun_path has 108 bytes, of which the last is the NUL that other programs expect.
PATH_LIMIT: Final = 107
_BACKLOG: Final = 1024

# A keeper holds the lock for microseconds; who holds it longer locks the directory for a purpose of its own.
_LOCK_S: Final = 2.0


class ListenError(ServiceError):
    """The socket can not be bound where it should be."""


class Listening(NamedTuple):
    """One listening socket.

    Attributes:
        name: What it is called among the passed descriptors, and in rules of access.
        path: Where clients connect.
        mode: Permissions of the file.
    """

    name: str
    path: Path
    mode: int = 0o660


def listen(path: Path, *, mode: int = 0o660) -> socket.socket:
    """Return a listening stream socket at ``path``; a socket file that nobody listens at is replaced.

    The directory is locked meanwhile, so that of two keepers that start together one finds the other's socket alive.

    Args:
        path: Where clients will connect, at most 107 bytes.
        mode: Permissions of the socket file from its first instant.

    Raises:
        ListenError: The path is too long, taken by a live socket or by another file, or the directory is not writable.
    """
    length = len(os.fsencode(path))
    if length > PATH_LIMIT:
        raise ListenError(
            f"{path} has {length} bytes, a Unix socket's path has at most {PATH_LIMIT}",
            field="socket",
            remedy="choose a shorter directory, for example below /run",
        )
    try:
        directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise _failed(path, error) from error
    try:
        _lock(directory, path)
        _clear_stale(path)
        return _bind(path, mode)
    except OSError as error:
        raise _failed(path, error) from error
    finally:
        os.close(directory)


@contextlib.contextmanager
def bound(where: Listening) -> Iterator[socket.socket]:
    """Listen at a socket until the block ends, and take its file away; its directory is made, for owner and group.

    Raises:
        ListenError: As `listen`.
    """
    try:
        where.path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    except OSError as error:
        raise _failed(where.path, error) from error
    with listen(where.path, mode=where.mode) as listener:
        facts = where.path.lstat()
        try:
            yield listener
        finally:
            unlink_own(where.path, (facts.st_dev, facts.st_ino))


def unlink_own(path: Path, identity: tuple[int, int]) -> None:
    """Remove the socket file, unless somebody has put another one in its place.

    Args:
        path: The socket file.
        identity: Device and inode of the file that this process bound.
    """
    try:
        facts = path.lstat()
        if (facts.st_dev, facts.st_ino) == identity:
            path.unlink()
    except FileNotFoundError:
        pass


def _lock(directory: int, path: Path) -> None:
    end = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= end:
                raise ListenError(
                    f"another program keeps {path.parent} locked", field="socket", remedy="choose another directory"
                ) from None
            time.sleep(0.01)
        else:
            return


def _clear_stale(path: Path) -> None:
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(facts.st_mode):
        raise ListenError(f"{path} exists and is no socket", field="socket", remedy="move that file away")
    if _is_live(path):
        raise ListenError(
            f"somebody already listens at {path}", field="socket", remedy="stop that daemon, or choose another path"
        )
    path.unlink()


def _is_live(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        # EAGAIN is a full backlog, EPROTOTYPE a socket of another type: both have an owner. Only refusal has none.
        return probe.connect_ex(str(path)) != errno.ECONNREFUSED


def _bind(path: Path, mode: int) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    # A mode that is set after the bind would leave an instant in which anybody may connect.
    before = os.umask(0o777 & ~mode)
    try:
        sock.bind(str(path))
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    finally:
        os.umask(before)
    return sock


def _failed(path: Path, error: OSError) -> ListenError:
    return ListenError(
        f"can not listen at {path}: {error.strerror}", field="socket", remedy="check that its directory is writable"
    )
