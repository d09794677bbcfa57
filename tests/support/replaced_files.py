"""What somebody may put in the place of a file; each of these takes its path and leaves the name to something else."""

from __future__ import annotations

import contextlib
import os
import socket as sockets
from pathlib import Path

import pytest

__all__ = ["REPLACEMENTS"]


def remove(path: Path) -> None:
    """Put nothing there."""
    path.unlink()


def link(path: Path) -> None:
    """Put a link to the very file there."""
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def fifo(path: Path) -> None:
    """Put a FIFO there."""
    path.unlink()
    os.mkfifo(path)


def directory(path: Path) -> None:
    """Put a directory there."""
    path.unlink()
    path.mkdir()


def socket(path: Path) -> None:
    """Put a socket there."""
    path.unlink()
    # The name of a socket has to be short, which that of a temporary directory need not be.
    with contextlib.chdir(path.parent), sockets.socket(sockets.AF_UNIX) as listener:
        listener.bind(path.name)


def device(path: Path) -> None:
    """Put a device there, one that reads as zeros for ever; who may make none skips the test."""
    path.unlink()
    try:
        os.mknod(path, 0o600 | 0o020000, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("making a device needs a right that this user has not")


REPLACEMENTS = (remove, link, fifo, directory, socket, device)
"""All of them; their names are those of the cases."""
