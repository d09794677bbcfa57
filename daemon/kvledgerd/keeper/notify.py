"""The daemon's side of the service manager's notify protocol (sd_notify(3), sd_listen_fds(3)).

Written out here because it is three datagrams and a pipe, and a C library for that would be one more thing to install.
The same code talks to systemd and to kvledger's own keeper. What the manual pages ask for, and is easy to get wrong:

- FDSTORE descriptors get FDPOLL=0, else the manager drops one as soon as it reports an error or a hang-up.
- BARRIER=1 stands alone in its datagram with exactly one descriptor, and says that all before it was *processed*, not
  that it was kept: a full store drops descriptors silently. So the store's size is checked here, where it is known.
- LISTEN_* and WATCHDOG_* are for the process whose id they name, not for its children.
"""

import fcntl
import os
import select
import socket
import time
from collections import Counter
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Final, Self

from kvledger.errors import CapacityError, ServiceError
from kvledgerd.keeper.messages import MAX_DESCRIPTORS, send

__all__ = ["Notifier", "NotifyError", "listen_fds", "watchdog_seconds"]

LISTEN_FDS_START: Final = 3
_NAME_LIMIT: Final = 255


class NotifyError(ServiceError):
    """The service manager can not be reached, does not answer, or passed something that makes no sense."""


class Notifier:
    """Speaks to whoever started this process; without such a one every call is a quiet no.

    `ready`, `status`, `stopping` and `watchdog` never block and may be called on the loop. `store`, `remove` and
    `barrier` wait for the manager and belong into a worker thread.

    Args:
        address: NOTIFY_SOCKET; a leading ``@`` means an abstract name. None: nobody listens.
        store_limit: Descriptors that the manager keeps, if it said so (FDSTORE, systemd 254 and later).

    Raises:
        NotifyError: The address is of no kind that can be spoken to.
    """

    def __init__(self, address: str | None, store_limit: int | None = None) -> None:
        self.store_limit: Final = store_limit
        self._socket: Final = None if address is None else _connected(address)
        # Name to descriptors; what earlier incarnations stored may be counted under no name.
        self._stored: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<Notifier {'connected' if self.present else 'without a manager'}, {self._stored.total()} stored>"

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Self:
        """Return a notifier for the manager that NOTIFY_SOCKET names, if it names one."""
        limit = environment.get("FDSTORE", "")
        return cls(environment.get("NOTIFY_SOCKET") or None, int(limit) if limit.isdecimal() else None)

    @property
    def present(self) -> bool:
        """Whether there is a manager; without one, memory does not outlive this process."""
        return self._socket is not None

    def ready(self, status: str = "") -> bool:
        """Say that start-up is over. False if nobody listens or its queue is full."""
        return self._tell("READY=1", f"STATUS={_one_line(status)}")

    def status(self, text: str) -> bool:
        """Show ``text`` as the daemon's state, for people. False as in `ready`."""
        return self._tell(f"STATUS={_one_line(text)}")

    def stopping(self) -> bool:
        """Say that shutdown has begun. False as in `ready`."""
        return self._tell("STOPPING=1")

    def watchdog(self) -> bool:
        """Say that the daemon is alive. False as in `ready`."""
        return self._tell("WATCHDOG=1")

    def store(self, name: str, descriptors: Sequence[int], *, deadline_s: float = 5.0) -> None:
        """Give descriptors to the manager to hold under ``name``; they stay open here.

        Several descriptors may share a name. They are safely held once a `barrier` has returned.

        Args:
            name: 1 to 255 printable ASCII characters without ``:``.
            descriptors: At most 253 travel together, more go in several datagrams.
            deadline_s: Seconds to wait for room in the manager's queue, for each datagram.

        Raises:
            CapacityError: The store would be full, and would drop them without a word.
            NotifyError: No manager, or it does not take them.
        """
        _check_name(name)
        held = self._stored.total()
        if self.store_limit is not None and held + len(descriptors) > self.store_limit:
            raise CapacityError(
                f"{held} stored, {len(descriptors)} more, the descriptor store takes {self.store_limit}",
                field="FileDescriptorStoreMax",
                remedy="raise FileDescriptorStoreMax, or make arenas larger and fewer",
            )
        for start in range(0, len(descriptors), MAX_DESCRIPTORS):
            batch = descriptors[start : start + MAX_DESCRIPTORS]
            self._insist(f"FDSTORE=1\nFDPOLL=0\nFDNAME={name}", batch, deadline_s)
            self._stored[name] += len(batch)

    def assume_stored(self, count: int, name: str = "") -> None:
        """Count descriptors that the store has held since an earlier incarnation; `remove` needs their name."""
        self._stored[name] += count

    def remove(self, name: str, *, deadline_s: float = 5.0) -> None:
        """Let go of all descriptors that are stored under ``name``.

        Raises:
            NotifyError: No manager, or it does not take the message.
        """
        _check_name(name)
        self._insist(f"FDSTOREREMOVE=1\nFDNAME={name}", (), deadline_s)
        del self._stored[name]

    def barrier(self, *, deadline_s: float = 5.0) -> None:
        """Wait until the manager has processed everything that was sent before.

        Raises:
            NotifyError: It has not done so within ``deadline_s`` seconds.
        """
        end = time.monotonic() + deadline_s
        ours, theirs = os.pipe2(os.O_CLOEXEC)
        try:
            try:
                self._insist("BARRIER=1", (theirs,), deadline_s)
            finally:
                os.close(theirs)
            # Closing the last copy of the other end is the answer; POLLHUP is reported without being asked for.
            if not _wait(ours, 0, end):
                raise _silent(deadline_s)
        finally:
            os.close(ours)

    def close(self) -> None:
        """Close the socket to the manager."""
        if self._socket is not None:
            self._socket.close()

    def _tell(self, *lines: str) -> bool:
        try:
            return self._try_send("\n".join(lines).encode(), ())
        except OSError as error:
            raise _unreachable(error) from error

    def _insist(self, text: str, descriptors: Sequence[int], deadline_s: float) -> None:
        if self._socket is None:
            raise NotifyError(
                "no service manager holds descriptors for this process",
                field="NOTIFY_SOCKET",
                remedy="start the daemon with `kvledger serve` or as a systemd service",
            )
        end = time.monotonic() + deadline_s
        try:
            while not self._try_send(text.encode(), descriptors):
                if not _wait(self._socket.fileno(), select.POLLOUT, end):
                    raise _silent(deadline_s)
        except OSError as error:
            raise _unreachable(error) from error

    def _try_send(self, data: bytes, descriptors: Sequence[int]) -> bool:
        if self._socket is None:
            return False
        try:
            send(self._socket, data, descriptors)
        except BlockingIOError:
            return False
        return True


def listen_fds(environment: MutableMapping[str, str] = os.environ) -> dict[str, list[int]]:
    """Take the descriptors that the manager passed, by name, and forget them for all child processes.

    Returns:
        Name to descriptors, in the order they came; all close-on-exec. Empty if none were passed to this process.

    Raises:
        NotifyError: LISTEN_FDS or LISTEN_FDNAMES make no sense, or a descriptor is not open.
    """
    passed = {
        key: environment.pop(key, None) for key in ("LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "LISTEN_PIDFDID")
    }
    if passed["LISTEN_PID"] != str(os.getpid()) or passed["LISTEN_FDS"] is None:
        return {}
    if not passed["LISTEN_FDS"].isdecimal():
        raise _nonsense("LISTEN_FDS", f"{passed['LISTEN_FDS']!r} is no count")
    count = int(passed["LISTEN_FDS"])
    names = passed["LISTEN_FDNAMES"].split(":") if passed["LISTEN_FDNAMES"] else ["unknown"] * count
    if len(names) != count:
        raise _nonsense("LISTEN_FDNAMES", f"{len(names)} names for {count} descriptors")
    found: dict[str, list[int]] = {}
    for fd, name in enumerate(names, LISTEN_FDS_START):
        try:
            fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
        except OSError as error:
            raise _nonsense("LISTEN_FDS", f"descriptor {fd} ({name}) is not open") from error
        found.setdefault(name, []).append(fd)
    return found


def watchdog_seconds(environment: Mapping[str, str] = os.environ) -> float | None:
    """Return how often `Notifier.watchdog` must be called, at half the manager's deadline; None if it has none."""
    deadline = environment.get("WATCHDOG_USEC", "")
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()) or not deadline.isdecimal():
        return None
    return int(deadline) / 2e6 or None


def _connected(address: str) -> socket.socket:
    if address[0] not in "@/":
        raise NotifyError(f"{address!r} is no Unix socket", field="NOTIFY_SOCKET", remedy="unset it")
    # Non-blocking once and for all: a timeout of the socket would also hold up what the loop sends.
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    try:
        sock.connect("\0" + address[1:] if address[0] == "@" else address)
    except OSError as error:
        sock.close()
        raise _unreachable(error) from error
    return sock


def _wait(fd: int, events: int, end: float) -> bool:
    poller = select.poll()
    poller.register(fd, events)
    return bool(poller.poll(max(0.0, end - time.monotonic()) * 1000))


def _check_name(name: str) -> None:
    printable = all(" " <= char <= "~" and char != ":" for char in name)
    if not printable or not 0 < len(name) <= _NAME_LIMIT:
        raise NotifyError(
            f"{name!r} is no name for a stored descriptor",
            field="FDNAME",
            remedy=f"use 1 to {_NAME_LIMIT} printable ASCII characters without a colon",
        )


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _silent(deadline_s: float) -> NotifyError:
    return NotifyError(
        f"the service manager did not answer within {deadline_s} s", field="NOTIFY_SOCKET", remedy="is it stopped?"
    )


def _unreachable(error: OSError) -> NotifyError:
    return NotifyError(
        f"the service manager can not be told: {error}", field="NOTIFY_SOCKET", remedy="restart the daemon under it"
    )


def _nonsense(field: str, why: str) -> NotifyError:
    return NotifyError(why, field=field, remedy="start the daemon through its service manager, or unset LISTEN_PID")
