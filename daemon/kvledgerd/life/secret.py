"""The data directory's secret, from which the root of every tenant's chain hashes is derived.

Whoever has it can compute the hashes of any prompt, so the file is for the daemon's user alone. It is made once, whole
or not at all: a torn secret would turn everything that is stored into misses, silently and for good.
"""

import os
import secrets
from pathlib import Path
from typing import Final

from kvledger.errors import ServiceError

__all__ = ["SECRET_NAME", "SecretError", "load_secret"]

SECRET_NAME: Final = "secret"  # noqa: S105  a file name
_BYTES: Final = 32


class SecretError(ServiceError):
    """The secret is unreadable, of the wrong size or open to others."""

    code = "secret"


def load_secret(directory: Path) -> bytes:
    """Return the 32 bytes of the secret; they are made if there are none. To be called under the log's lock.

    Raises:
        SecretError: The file is not what it has to be; it is left as it is.
    """
    path = directory / SECRET_NAME
    try:
        return _read(path)
    except FileNotFoundError:
        _create(path)
        return _read(path)
    except OSError as error:
        raise _refused(path, f"can not be read: {error.strerror}", "give it to the daemon's user") from error


def _read(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        mode = os.fstat(fd).st_mode & 0o777
        found = os.read(fd, _BYTES + 1)
    finally:
        os.close(fd)
    if mode & 0o077:
        raise _refused(path, f"has mode {mode:03o}, so others may read it", f"run: chmod 600 {path}")
    if len(found) != _BYTES:
        raise _refused(path, f"does not hold {_BYTES} bytes", "restore it from a backup, or remove it to start empty")
    return found


def _create(path: Path) -> None:
    draft = path.with_name(f"{path.name}.draft")
    draft.unlink(missing_ok=True)
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.write(fd, secrets.token_bytes(_BYTES))
        os.fsync(fd)
    finally:
        os.close(fd)
    draft.rename(path)
    directory = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _refused(path: Path, why: str, remedy: str) -> SecretError:
    return SecretError(f"{path} {why}", field=SECRET_NAME, remedy=remedy)
