"""Everything that waits, twice: once for an event loop, once for threads.

The asynchronous client is the source of the synchronous one (scripts/unasync.py), so each pair here has one shape and
the generated text differs in names only. Every wait takes a deadline; there is no way to wait without one.

`Turn` is lock and baton in one. A connection carries many requests at once, and somebody has to read the replies:
instead of a thread or task of its own, which would have to be started, stopped and survive a fork, one of those who
wait reads for all of them and passes the turn on. Only where a caller left before its reply came there may be nobody
who waits; then one is started in the background, which ends with that reply or by a deadline.
"""

import select
import socket
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final

import anyio

from kvledger.errors import CallerError, DeadlineError

if TYPE_CHECKING:
    import asyncio

__all__ = [
    "AsyncTurn",
    "Deadline",
    "DeadlineError",
    "Turn",
    "async_background",
    "async_readable",
    "async_shielded",
    "async_sleep",
    "async_writable",
    "background",
    "readable",
    "seconds",
    "shielded",
    "sleep",
    "writable",
]


_LONGEST_SECONDS: Final = 1e6


def seconds(value: float, field: str) -> float:
    """Return how long to wait, at most eleven days, since poll counts milliseconds in 31 bits.

    Raises:
        CallerError: It is negative, or not a number.
    """
    if not isinstance(value, int | float) or not value >= 0:
        remedy = "pass a number of seconds, 0 or more"
        raise CallerError(f"{value!r} is no time to wait", field=field, remedy=remedy)
    return min(float(value), _LONGEST_SECONDS)


class Deadline:
    """A point in time that is handed down through everything one call does.

    Args:
        seconds: How far away it is.
    """

    __slots__ = ("_end", "_seconds")

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def __repr__(self) -> str:
        return f"<Deadline of {self._seconds} s, {self._end - time.monotonic():.3f} s left>"

    def again(self) -> "Deadline":
        """Return one that is as far away as this one was at first."""
        return Deadline(self._seconds)

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return time.monotonic() >= self._end

    @property
    def rest(self) -> float:
        """Seconds that are left, 0 if it is over."""
        return max(self._end - time.monotonic(), 0.0)

    def left(self) -> float:
        """Return the seconds that are left, more than 0.

        Raises:
            DeadlineError: None is left.
        """
        left = self._end - time.monotonic()
        if left > 0:
            return left
        remedy = "ask again, raise the timeout, or see with `kvledger status` what the daemon does"
        raise DeadlineError(f"no answer within {self._seconds:g} seconds", field="timeout", remedy=remedy)


def _never() -> bool:
    return False


class Turn:
    """A right that one thread holds at a time."""

    __slots__ = ("_held", "_moved")

    def __init__(self) -> None:
        self._held = False
        self._moved = threading.Condition()

    @property
    def held(self) -> bool:
        """Whether somebody holds it."""
        return self._held

    def take(self, deadline: Deadline, done: Callable[[], bool] = _never) -> bool:
        """Wait until the turn is free and take it, or until it is no longer needed.

        Args:
            deadline: End of the wait.
            done: Tells whether what the turn was wanted for has happened; looked at whenever a turn ends.

        Returns:
            True if the turn is held now, False if `done`.

        Raises:
            DeadlineError: Neither came in time.
        """
        with self._moved:
            while not done():
                if not self._held:
                    self._held = True
                    return True
                self._moved.wait(deadline.left())
            return False

    def give(self) -> None:
        """Pass the turn on and wake all who wait for it."""
        with self._moved:
            self._held = False
            self._moved.notify_all()


class AsyncTurn:
    """A right that one task holds at a time; giving it never waits, so a cancelled task can always give."""

    __slots__ = ("_held", "_moved")

    def __init__(self) -> None:
        self._held = False
        self._moved: anyio.Event | None = None

    @property
    def held(self) -> bool:
        """Whether somebody holds it."""
        return self._held

    async def take(self, deadline: Deadline, done: Callable[[], bool] = _never) -> bool:
        """Wait until the turn is free and take it, or until it is no longer needed; see `Turn.take`."""
        while not done():
            if not self._held:
                self._held = True
                return True
            if self._moved is None:
                self._moved = anyio.Event()
            with anyio.move_on_after(deadline.left()):
                await self._moved.wait()
        return False

    def give(self) -> None:
        """Pass the turn on and wake all who wait for it."""
        self._held = False
        if self._moved is not None:
            self._moved.set()
            self._moved = None


def readable(end: socket.socket, deadline: Deadline) -> None:
    """Wait until a socket has something to read or is at its end."""
    _poll(end, select.POLLIN, deadline)


def writable(end: socket.socket, deadline: Deadline) -> None:
    """Wait until a socket takes more bytes or is broken."""
    _poll(end, select.POLLOUT, deadline)


def sleep(seconds: float) -> None:
    """Let time pass."""
    time.sleep(seconds)


def shielded() -> AbstractContextManager[object]:
    """Return a context in which nothing is cancelled: threads never are."""
    return nullcontext()


def background(work: Callable[[], None]) -> None:
    """Have something done that nobody waits for; it has its own deadline and raises nothing."""
    threading.Thread(target=work, name="kvledger-late-reply", daemon=True).start()


# poll takes whole milliseconds; rounding down would turn the last one into a busy loop.
_MILLISECONDS: Final = 1000


def _poll(end: socket.socket, mask: int, deadline: Deadline) -> None:
    poll = select.poll()
    poll.register(end, mask)
    while not poll.poll(int(deadline.left() * _MILLISECONDS) + 1):
        continue


async def async_readable(end: socket.socket, deadline: Deadline) -> None:
    """Wait until a socket has something to read or is at its end."""
    with anyio.move_on_after(deadline.left()):
        await anyio.wait_readable(end)
        return
    deadline.left()


async def async_writable(end: socket.socket, deadline: Deadline) -> None:
    """Wait until a socket takes more bytes or is broken."""
    with anyio.move_on_after(deadline.left()):
        await anyio.wait_writable(end)
        return
    deadline.left()


async def async_sleep(seconds: float) -> None:
    """Let time pass."""
    await anyio.sleep(seconds)


def async_shielded() -> AbstractContextManager[object]:
    """Return a scope in which clean-up finishes though the task was cancelled; what is inside has its own deadline."""
    return anyio.CancelScope(shield=True)


# A loop knows its tasks weakly, so one that nobody waits for could be collected before it ends.
_tasks: Final[set["asyncio.Task[None]"]] = set()


def async_background(work: Callable[[], Coroutine[None, None, None]]) -> None:
    """Have something done that nobody waits for; it has its own deadline and raises nothing.

    Only asyncio lets a task outlive the one that began it. Elsewhere this is left undone.
    """
    import asyncio  # noqa: PLC0415 - the synchronous client does not pay for it

    try:
        task = asyncio.get_running_loop().create_task(work())
    except RuntimeError:
        return
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
