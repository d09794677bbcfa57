"""Catch calls that block the thread of a running event loop, for as long as a test runs.

The daemon promises that nothing blocks its loop. A slow-callback alarm would see that only when the disk happens to be
slow, so the calls themselves are watched: a handful of functions that wait for a disk, a lock, a clock or a process are
replaced by guards. A guard lets a call through unless a loop runs in this very thread *and* a frame of the watched
packages stands between the loop and the call; so threads, pytest, asyncio itself and the body of a test are left alone.

What it can not see: a name bound earlier by `from time import sleep`, and calls made inside C code.
"""

from __future__ import annotations

import asyncio
import fcntl
import functools
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

PACKAGES = frozenset({"kvledger", "kvledger_kernels", "kvledger_storage", "kvledgerd"})

# Functions that may block, as module:qualified name, each with its reason. Whatever they call is let through.
ALLOWED: frozenset[str] = frozenset(
    {
        "kvledgerd.server.processes:start_time",  # procfs waits for no disk
    }
)

BLOCKING = (
    "builtins.open",
    "fcntl.flock",
    "fcntl.lockf",
    "io.open",
    "os.fdatasync",
    "os.fsync",
    "os.open",
    "os.posix_fallocate",
    "os.pread",
    "os.preadv",
    "os.pwrite",
    "os.pwritev",
    "os.sync",
    "shutil.rmtree",
    "socket.create_connection",
    "subprocess.Popen.communicate",
    "subprocess.Popen.wait",
    "threading.Thread.join",
    "time.sleep",
)


class BlockingCallError(AssertionError):
    """Loop code made a call that blocks the loop; the message names the call and where it stands."""


@contextmanager
def watch(
    packages: Collection[str] = PACKAGES, allowed: Collection[str] = ALLOWED
) -> Iterator[list[BlockingCallError]]:
    """Guard the blocking functions inside the `with` block.

    Args:
        packages: Top-level names of the packages whose loop code is watched.
        allowed: Functions (`module:qualified.name`) below which blocking is accepted.

    Yields:
        The errors raised so far. Code under test may swallow the exception, so the list is what counts.
    """
    seen: list[BlockingCallError] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in BLOCKING:
            owner, _, attribute = name.rpartition(".")
            holder = pkgutil.resolve_name(owner)
            patch.setattr(holder, attribute, _guard(name, getattr(holder, attribute), packages, allowed, seen))
        yield seen


def _guard(
    name: str,
    call: Callable[..., Any],
    packages: Collection[str],
    allowed: Collection[str],
    seen: list[BlockingCallError],
) -> Callable[..., Any]:
    """Wrap one blocking function."""

    @functools.wraps(call)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        if asyncio._get_running_loop() is not None and not _returns_at_once(name, args):
            place = _place(packages, allowed)
            if place is not None:
                error = BlockingCallError(f"{place}: {name} blocks the event loop; move it to a worker thread")
                seen.append(error)
                raise error
        return call(*args, **kwargs)

    return guarded


def _returns_at_once(name: str, args: tuple[Any, ...]) -> bool:
    """Tell whether the arguments ask a lock not to wait."""
    return name in {"fcntl.flock", "fcntl.lockf"} and bool(args[1] & fcntl.LOCK_NB)


def _place(packages: Collection[str], allowed: Collection[str]) -> str | None:
    """Return file and line of the watched frame nearest to the call, or None where there is none or one is allowed.

    The walk ends at the loop: what stands above it started the loop and is not loop code.
    """
    found = None
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name != "_run_once":
        module = frame.f_globals.get("__name__", "")
        if f"{module}:{frame.f_code.co_qualname}" in allowed:
            return None
        if found is None and module.partition(".")[0] in packages:
            found = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return found
