"""The guard that fails a test whose loop code blocks."""

from __future__ import annotations

import asyncio
import fcntl
import tempfile
import time
import types
from pathlib import Path

import pytest

from support.blocking import BLOCKING, BlockingCallError, watch


def _as_package(function: types.FunctionType, module: str = "kvledger.pretend") -> types.FunctionType:
    """Return the same function as if the named module had defined it."""
    return types.FunctionType(function.__code__, function.__globals__ | {"__name__": module}, function.__name__)


def _sleep() -> None:
    time.sleep(0)


def _read() -> bytes:
    return Path(__file__).read_bytes()


def _lock(descriptor: int, flags: int) -> None:
    fcntl.flock(descriptor, flags)


@pytest.mark.asyncio
@pytest.mark.parametrize("blocks", [_sleep, _read])
async def test_a_blocking_call_on_the_loop_raises(blocks, blocking_calls):
    """Package code that blocks on the loop gets an error which names the call."""
    with pytest.raises(BlockingCallError, match=r"time\.sleep|open"):
        _as_package(blocks)()

    assert len(blocking_calls) == 1
    blocking_calls.clear()


@pytest.mark.asyncio
async def test_a_swallowed_error_is_still_counted(blocking_calls):
    """An error that loop code swallows stays in the list, so that the test fails all the same."""
    try:
        _as_package(_sleep)()
    except AssertionError:
        caught = True

    assert caught
    assert "test_blocking_guard.py" in str(blocking_calls.pop())


@pytest.mark.asyncio
async def test_other_code_on_the_loop_is_left_alone():
    """Only code of the four packages is watched, not the body of a test and not foreign libraries."""
    _sleep()

    _as_package(_sleep, "somebody.else")()


@pytest.mark.asyncio
async def test_threads_are_left_alone():
    """A worker thread may block, since the loop runs in another one."""
    await asyncio.to_thread(_as_package(_read))


def test_code_without_a_loop_is_left_alone():
    """Package code may block where no loop runs."""
    _as_package(_sleep)()


@pytest.mark.asyncio
async def test_a_lock_that_does_not_wait_is_let_through(blocking_calls):
    """Asking for a file lock without waiting is no blocking call, waiting for it is one."""
    with tempfile.TemporaryFile() as file:
        _as_package(_lock)(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)

        with pytest.raises(BlockingCallError, match="flock"):
            _as_package(_lock)(file.fileno(), fcntl.LOCK_EX)
    blocking_calls.clear()


@pytest.mark.asyncio
async def test_a_named_exception_may_block():
    """A function on the list of exceptions may block, and nothing is recorded."""
    with watch(packages={"pretend"}, allowed={"pretend:_sleep"}) as seen:
        _as_package(_sleep, "pretend")()

    assert seen == []


def test_the_originals_come_back():
    """When the guard ends, every function is what it was before."""
    before = time.sleep
    with watch():
        assert time.sleep is not before

    assert time.sleep is before
    assert "time.sleep" in BLOCKING


def test_socket_dir_leaves_room_for_names(tmp_socket_dir):
    """A socket path in the short folder stays under the limit of the kernel."""
    assert tmp_socket_dir.is_dir()
    assert len(str(tmp_socket_dir / "a-name-of-forty-bytes-for-a-unix-socket.")) < 108
