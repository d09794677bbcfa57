"""A small process that holds the socket and the arenas, and starts the daemon again when it dies.

Outside of systemd, `kvledger serve` runs the daemon under this. It speaks the same notify protocol, so the daemon does
not know the difference, and it does nothing else: no log, no request, no byte of an arena is touched here, because
whatever can fail here would take the memory of the cache with it. One thread, one poll loop, no dependency.

Who may talk to it: only processes of the session that the daemon leads, as the kernel names the sender of each
datagram. Nobody can join that session from outside.
"""

import contextlib
import os
import resource
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from kvledgerd.foreign import close_elsewhere
from kvledgerd.keeper.child import spawn
from kvledgerd.keeper.listener import Listening, bound
from kvledgerd.keeper.messages import Message, receive
from kvledgerd.keeper.policy import RestartPolicy
from kvledgerd.keeper.store import DescriptorStore

__all__ = ["STORE_LIMIT", "run"]

STORE_LIMIT: Final = 512
"""Descriptors that are held at most; a daemon has at most 256 arenas."""

# Longer notifications are cut, as the service manager does.
_MESSAGE_LIMIT: Final = 4096
# Far more than the socket's queue can hold, so all that a dead daemon sent is read before it is reaped; and an end, so
# that a stranger who sends without pause can not keep the loop from its other duties.
_DRAIN_LIMIT: Final = 10_000
_STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass(frozen=True, slots=True)
class _Sockets:
    listeners: list[tuple[str, socket.socket]]
    notify: socket.socket
    signals: socket.socket


@dataclass(frozen=True, slots=True)
class _Child:
    pid: int
    pidfd: int
    started: float


class _Keeper:
    """The poll loop. Each round drains the notifications first, so that a death never overtakes a stored descriptor."""

    def __init__(
        self, command: Sequence[str], sockets: _Sockets, store: DescriptorStore, policy: RestartPolicy
    ) -> None:
        self._command = command
        self._sockets = sockets
        self._store = store
        self._policy = policy
        self._child: _Child | None = None
        self._failures = 0
        self._restart_at = 0.0
        self._stopped_by: int | None = None
        self._kill_at = float("inf")

    def keep(self) -> int:
        """Run until the daemon has ended for good; the exit code."""
        try:
            while True:
                if self._child is None and time.monotonic() >= self._restart_at:
                    self._start()
                self._wait()
                self._drain()
                self._forward_signals()
                code = self._reap()
                if code is not None:
                    return code
        finally:
            self._kill()

    def _start(self) -> None:
        environment = dict(os.environ)
        environment["NOTIFY_SOCKET"] = "@" + self._sockets.notify.getsockname()[1:].decode()
        environment["FDSTORE"] = str(self._store.limit)
        listeners = [(name, listener.fileno()) for name, listener in self._sockets.listeners]
        try:
            pid = spawn(self._command, [*listeners, *self._store.items()], environment)
        except OSError as error:
            self._plan_restart(0.0, f"could not be started: {error.strerror}")
        else:
            self._child = _Child(pid, os.pidfd_open(pid), time.monotonic())

    def _plan_restart(self, lived: float, how: str) -> None:
        self._failures = 1 if lived >= self._policy.steady_s else self._failures + 1
        delay = self._policy.delay(self._failures)
        self._restart_at = time.monotonic() + delay
        sys.stderr.write(f"kvledger keeper: the daemon {how}; next start in {delay:.1f} s\n")

    def _wait(self) -> None:
        poller = select.poll()
        poller.register(self._sockets.notify, select.POLLIN)
        poller.register(self._sockets.signals, select.POLLIN)
        if self._child is not None:
            poller.register(self._child.pidfd, select.POLLIN)
        until = self._restart_at if self._child is None else self._kill_at
        poller.poll(None if until == float("inf") else max(0.0, until - time.monotonic()) * 1000)

    def _drain(self) -> None:
        for _ in range(_DRAIN_LIMIT):
            try:
                message = receive(self._sockets.notify, _MESSAGE_LIMIT)
            except BlockingIOError:
                return
            if self._is_ours(message):
                self._store.take(message)
            else:
                # A stranger's descriptor can keep whoever closes it for hours, and a keeper may not stand still.
                close_elsewhere(message.descriptors)

    def _is_ours(self, message: Message) -> bool:
        # A child that has died stays a zombie until it is reaped below, so its last messages still count as its own.
        if self._child is None or message.sender is None or message.sender.pid <= 0:
            return False
        try:
            return os.getsid(message.sender.pid) == self._child.pid
        except ProcessLookupError:
            return False

    def _forward_signals(self) -> None:
        try:
            numbers = self._sockets.signals.recv(64)
        except BlockingIOError:
            return
        for number in numbers:
            self._stopped_by = signal.SIGTERM if number == signal.SIGHUP else number
            if self._child is not None:
                signal.pidfd_send_signal(self._child.pidfd, self._stopped_by)
                self._kill_at = min(self._kill_at, time.monotonic() + self._policy.stop_s)

    def _reap(self) -> int | None:
        if self._child is None:
            return None if self._stopped_by is None else 0
        if time.monotonic() >= self._kill_at:
            signal.pidfd_send_signal(self._child.pidfd, signal.SIGKILL)
            self._kill_at = float("inf")
        ended = os.waitid(os.P_PIDFD, self._child.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return None
        self._drain()
        lived = time.monotonic() - self._child.started
        self._kill()
        killed = ended.si_code != os.CLD_EXITED
        return self._after(ended.si_status, killed=killed, lived=lived)

    def _after(self, status: int, *, killed: bool, lived: float) -> int | None:
        if self._stopped_by is not None:
            return 0 if killed and status == self._stopped_by else status + 128 * killed
        if not killed and self._policy.gives_up(status, holds_memory=bool(self._store.items())):
            return status
        how = f"was ended by {signal.Signals(status).name}" if killed else f"ended with code {status}"
        self._plan_restart(lived, how)
        return None

    def _kill(self) -> None:
        """End what is left of the child's process group, and only then let its pid go."""
        if self._child is None:
            return
        # The child itself may be so young that it leads no group yet.
        signal.pidfd_send_signal(self._child.pidfd, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        os.waitid(os.P_PIDFD, self._child.pidfd, os.WEXITED)
        os.close(self._child.pidfd)
        self._child = None
        # As the first process of a container, the keeper inherits orphans: those that earlier children left.
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def run(command: Sequence[str], sockets: Sequence[Listening], *, policy: RestartPolicy | None = None) -> int:
    """Keep the daemon ``command`` running until it ends for good, and return the exit code to end with.

    To be called in the main thread of a process that has no other. Raises its own limit of open descriptors to the hard
    one, which the daemon inherits.

    Args:
        command: Program and arguments of the daemon.
        sockets: Where the daemon's clients connect.
        policy: When to restart; the default one if None.

    Returns:
        The daemon's exit code, 128 + signal if a signal ended it; 0 if that was the stop signal that it was sent.

    Raises:
        ListenError: A socket can not be bound.
    """
    store = DescriptorStore(min(STORE_LIMIT, _raise_descriptor_limit()))
    with contextlib.ExitStack() as stack:
        listeners = [(one.name, stack.enter_context(bound(one))) for one in sockets]
        stack.callback(store.close)
        with _notify_socket() as notify, _stop_signals() as signals:
            return _Keeper(command, _Sockets(listeners, notify, signals), store, policy or RestartPolicy()).keep()


def _raise_descriptor_limit() -> int:
    """Lift the soft limit of open descriptors to the hard one, and return how many of them a store may hold."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    # Starting a child needs every stored descriptor twice, and some more are in use.
    return (hard - 64) // 2


def _notify_socket() -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    # An empty address asks the kernel for a free abstract name: no file, so nothing is left behind by a SIGKILL.
    sock.bind("")
    return sock


@contextlib.contextmanager
def _stop_signals() -> Iterator[socket.socket]:
    """Yield a socket from which the numbers of the stop signals that came can be read, one byte each."""
    ours, kernels = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    with ours, kernels:
        before = signal.set_wakeup_fd(kernels.fileno(), warn_on_full_buffer=False)
        handlers = {number: signal.signal(number, lambda *_: None) for number in _STOP_SIGNALS}
        try:
            yield ours
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(before)
