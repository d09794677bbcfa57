"""Starting the daemon with descriptors at 3 and up, as sd_listen_fds(3) wants them.

`subprocess` can neither renumber descriptors nor put the child's own pid into its environment, and both are needed, so
this forks by hand. That is sound because a keeper has one thread; the threads that close what strangers sent hold no
lock that a child needs before its exec.
"""

import ctypes
import fcntl
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Final

__all__ = ["CANNOT_RUN", "die_with", "spawn"]

# What a shell says of a command that it can not run.
CANNOT_RUN: Final = 127

_LISTEN_FDS_START: Final = 3
_PR_SET_PDEATHSIG: Final = 1
_FOREIGN: Final = ("LISTEN_PIDFDID", "WATCHDOG_PID", "WATCHDOG_USEC")
_LIBC: Final = ctypes.CDLL(None, use_errno=True)


def spawn(command: Sequence[str], descriptors: Sequence[tuple[str, int]], environment: Mapping[str, str]) -> int:
    """Start ``command`` in a session of its own and return its process id.

    The child is killed when the keeper dies: its descriptor store is gone then, and a daemon that nobody holds must not
    keep a socket from the next one.

    Args:
        command: Program and arguments, looked up in PATH.
        descriptors: (name, descriptor) of what the child gets at 3, 4, 5...
        environment: The child's environment; the LISTEN variables are added.

    Raises:
        OSError: No process is to be had now.
    """
    keeper = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        _become(command, descriptors, environment, keeper)
    except OSError as error:
        sys.stderr.write(f"kvledger keeper: can not run {command[0]}: {error.strerror}\n")
        sys.stderr.flush()
    finally:
        # Whatever went wrong, no second copy of the keeper may come back from here.
        os._exit(CANNOT_RUN)


def die_with(parent: int) -> None:
    """Have this process killed when its parent ends, whatever it does then; at once if that has ended already.

    What counts as the parent's end is that of the thread which started this process.

    Raises:
        OSError: The kernel refuses.
    """
    if _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    # It may have died before the request was in place.
    if os.getppid() != parent:
        os._exit(CANNOT_RUN)


def _become(
    command: Sequence[str], descriptors: Sequence[tuple[str, int]], environment: Mapping[str, str], keeper: int
) -> None:
    os.setsid()
    die_with(keeper)
    _reset_signals()
    _place([fd for _, fd in descriptors])
    listen = {
        "LISTEN_PID": str(os.getpid()),
        "LISTEN_FDS": str(len(descriptors)),
        "LISTEN_FDNAMES": ":".join(name for name, _ in descriptors),
    }
    inherited = {key: value for key, value in environment.items() if key not in _FOREIGN}
    os.execvpe(command[0], list(command), inherited | listen)  # noqa: S606 - no shell is the point


def _reset_signals() -> None:
    # Python ignores SIGPIPE and SIGXFSZ, and ignored signals stay ignored over exec.
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)


def _place(sources: Sequence[int]) -> None:
    # First out of the way, since a source may lie where another one has to go.
    above = _LISTEN_FDS_START + len(sources)
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in sources]
    for target, fd in enumerate(moved, _LISTEN_FDS_START):
        os.dup2(fd, target, inheritable=True)
