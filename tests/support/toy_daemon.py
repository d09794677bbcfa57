"""A daemon that only stores memfds with its keeper; a test steers it through its listening socket, a line a connection.

Run as a program: ``python toy_daemon.py [deaf]``; a deaf one ignores SIGTERM.
"""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from kvledgerd.keeper.notify import Notifier, listen_fds

notifier = Notifier.from_environment()
passed = listen_fds()
listener = socket.socket(fileno=passed.pop("kvledger.socket")[0])


def store(name, count):
    """Make memfds that hold their name and number, and store them."""
    fds = [os.memfd_create(name) for _ in range(int(count))]
    for number, fd in enumerate(fds):
        os.write(fd, f"{name}:{number}".encode())
    notifier.store(name, fds)
    passed.setdefault(name, []).extend(fds)


def store_and_wait(name, count):
    """Store, and come back when the keeper has it."""
    store(name, count)
    notifier.barrier()


def store_and_die(name, count):
    """Store, and be gone before the keeper can have looked."""
    store(name, count)
    os.kill(os.getpid(), signal.SIGKILL)


def store_from_child(name):
    """Let a child process of this daemon store a memfd."""
    program = (
        "import os, sys\nfrom kvledgerd.keeper.notify import Notifier\n"
        "n = Notifier.from_environment()\nn.store(sys.argv[1], [os.memfd_create('x')])\nn.barrier()"
    )
    subprocess.run([sys.executable, "-c", program, name], check=True)


def store_again(name):
    """Store what is stored already."""
    notifier.store(name, passed[name])
    notifier.barrier()


def forget(name):
    """Remove a name from the store."""
    notifier.remove(name)
    notifier.barrier()


def churn():
    """Begin to store and forget without end, until somebody kills this daemon in the middle of it."""
    threading.Thread(target=_churn, daemon=True).start()


def _churn():
    while True:
        store("churn", 3)
        notifier.remove("churn")
        for fd in passed.pop("churn"):
            os.close(fd)


def contents():
    """Return what every memfd that came back holds, by name."""
    return {name: [os.pread(fd, 100, 0).decode() for fd in fds] for name, fds in passed.items()}


def state():
    """Return pid, number of open descriptors, notify address and the size of the store."""
    opened = sum(1 for _ in Path("/proc/self/fd").iterdir())
    return {
        "pid": os.getpid(),
        "fds": opened,
        "notify": os.environ["NOTIFY_SOCKET"],
        "limit": notifier.store_limit,
        "inherited": [key for key in os.environ if key.startswith(("LISTEN_", "WATCHDOG_"))],
    }


def start_sleeper():
    """Start a child that would outlive this daemon; its pid."""
    return subprocess.Popen(["sleep", "60"]).pid


COMMANDS = {
    command.__name__: command
    for command in (store_and_wait, store_and_die, store_from_child, store_again, forget, churn, contents, state)
} | {"exit": lambda code: os._exit(int(code)), "start_sleeper": start_sleeper}

signal.signal(signal.SIGINT, signal.SIG_DFL)  # KeyboardInterrupt in a destructor would be lost
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
notifier.ready()
while True:
    connection, _ = listener.accept()
    # Who hangs up before the answer, as a keeper that looks whether somebody listens, is not a reason to die.
    with contextlib.suppress(ConnectionError), connection, connection.makefile("rw") as lines:
        name, *arguments = lines.readline().split() or ["state"]
        lines.write(json.dumps(COMMANDS[name](*arguments)) + "\n")
