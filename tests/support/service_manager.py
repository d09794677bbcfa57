"""A service manager for a real daemon whose descriptor store a test can tamper with between two of its lives."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

from kvledger.errors import DisconnectedError
from kvledger.testing import say_hello
from kvledgerd.keeper.listener import SOCKET_NAME, listen
from kvledgerd.keeper.messages import receive
from kvledgerd.keeper.store import DescriptorStore

# Puts the descriptors where sd_listen_fds(3) wants them, and becomes the daemon.
BECOME = """
import fcntl, os, sys
passed = [int(fd) for fd in sys.argv[1].split(",")]
moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 200) for fd in passed]
for fd in passed:
    os.set_inheritable(fd, False)
for number, fd in enumerate(moved):
    os.dup2(fd, 3 + number)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(moved))}
os.execv(sys.executable, [sys.executable, "-c", *sys.argv[2:]])
"""
SERVE = """
import os, sys, time
from pathlib import Path
from kvledger_storage.log import io
clock = os.open(sys.argv.pop(2), os.O_RDONLY)
true, true_ns = time.time, time.time_ns
time.time = lambda: true() + int(os.pread(clock, 20, 0))
time.time_ns = lambda: true_ns() + int(os.pread(clock, 20, 0)) * 10**9
from kvledgerd.cli import main
io._BOOT_ID = Path(sys.argv.pop(1))
sys.exit(main())
"""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Manager:
    """Holds the socket and the store; a context manager that ends the daemon.

    Args:
        directory: Where socket, data and the daemon's log go.
        limit: Descriptors that the store takes.
        boot: The file in which the daemon finds the machine's boot id.
    """

    def __init__(self, directory, limit=512, boot=BOOT_ID):
        self.boot = boot
        self.socket = directory / "s"
        self.data_dir = directory / "data"
        self.output = directory / "daemon.log"
        self._clock = directory / "clock"
        self.set_clock(0)
        self._words = ["--data", str(self.data_dir), "--socket", str(self.socket), "--memory", "64MiB"]
        self.store = DescriptorStore(limit)
        self._listener = listen(self.socket)
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        self._notify.bind("")
        self._over = threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._process = None

    def _read(self):
        while not self._over.is_set():
            if select.select([self._notify], [], [], 0.02)[0]:
                self.store.take(receive(self._notify, 4096))

    @property
    def pid(self):
        """Process id of the daemon."""
        return self._process.pid

    def start(self, stored=None):
        """Start the daemon with what the store holds, or with other (name, descriptor) pairs, and wait for it."""
        passed = [(SOCKET_NAME, self._listener.fileno()), *(self.store.items() if stored is None else stored)]
        numbers = [fd for _, fd in passed]
        environment = os.environ | {
            "NOTIFY_SOCKET": "@" + self._notify.getsockname()[1:].decode(),
            "FDSTORE": str(self.store.limit),
            "LISTEN_FDNAMES": ":".join(name for name, _ in passed),
            "KVLEDGER_ARENA_BYTES": "1MiB",
            "KVLEDGER_DISK_WRITE": "asked",
            "KVLEDGER_WARM_PERCENT": "0",
        }
        words = [SERVE, str(self.boot), str(self._clock), "serve", "--no-keeper", *self._words]
        command = [sys.executable, "-c", BECOME, ",".join(map(str, numbers)), *words]
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(command, env=environment, pass_fds=numbers, stdout=output, stderr=output)
        while True:
            with contextlib.suppress(DisconnectedError):
                return say_hello(self.socket, 30)
            assert self._process.poll() is None, self.output.read_text()[-3000:]

    def set_clock(self, seconds):
        """Let the daemon's wall clock, while it runs, differ from the true one."""
        self._clock.write_text(f"{seconds:20}")

    def kill(self):
        """End the daemon at once."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def __enter__(self):
        self._reader.start()
        return self

    def __exit__(self, *_):
        if self._process is not None:
            self.kill()
        self._over.set()
        self._reader.join()
        self.store.close()
        self._listener.close()
        self._notify.close()
