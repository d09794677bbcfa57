"""A daemon under strace that is killed at its N-th call of one kind, or whose call fails, and the proof that it was.

strace counts calls for each thread by itself, so "the N-th call" is the first one that any thread makes for the N-th
time. The signal comes when the call is entered, and a call that is entered with SIGKILL pending is not carried out: the
process dies just before it. Some machines allow no tracing, and some modes of injection deliver nothing, in silence
(strace 6.1 with --seccomp-bpf, seen at three of four calls); so `killed_at` believes only exit status and trace.

Processes that the daemon starts are let go of as soon as they become another program: only its own calls count.

Nothing is left behind when a test run is killed: strace dies with whoever started it, and the daemon with strace.
"""

from __future__ import annotations

import collections
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from kvledger.errors import KVLedgerError
from kvledger.testing import say_hello

# What changes files, names, memory that outlives a call, or what somebody else is told.
CALLS = (
    "pwrite64",
    "pwritev2",
    "fdatasync",
    "fsync",
    "rename",
    "link",
    "unlink",
    "ftruncate",
    "fallocate",
    "mkdir",
    "flock",
    "memfd_create",
    "sendmsg",
    "sendto",
)
# No drill: what a call belongs to, and how many layouts there are, is up to the test.
SETTINGS = {
    "arena_bytes": "4MiB",
    "log_segment_bytes": "64KiB",
    "disk_segment_bytes": "256KiB",
    "drill_seconds": "0",
}
READY_S = 60.0
_SYNC = re.compile(r"^\d+ +fdatasync\((\d+)\) += (.*)")
_CALL = re.compile(r"^(\d+) +(\w+)\(")
_PR_SET_PDEATHSIG = 1
_DIE_WITH_PARENT = f"""
import ctypes, os, sys
ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGKILL)})
"""
_STRACE = f"{_DIE_WITH_PARENT}os.execvp('strace', sys.argv[1:])"
_DAEMON = f"""{_DIE_WITH_PARENT}
from kvledgerd.commands.serve import main_daemon
sys.exit(main_daemon(sys.argv[1:]))
"""


def why_not():
    """Return why a daemon can not be traced on this machine, None if it can."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    tried = subprocess.run(["strace", "-qq", "-e", "trace=none", "true"], capture_output=True, text=True, check=False)
    return f"tracing is not allowed: {tried.stderr.strip()}" if tried.returncode else None


class TracedDaemon:
    """A daemon without a keeper, under strace.

    Args:
        directory: Where socket and data lie.
        call: System call at which it dies.
        number: At which call of a thread; 0 for never.
        fault: What happens there, as strace says it.
        settings: Settings beyond those that all have.
    """

    def __init__(self, directory, call="", number=0, fault="signal=SIGKILL", settings=None):
        self.socket = directory / "s"
        self.call, self.number = call, number
        self._trace = directory / "trace"
        inject = ["--inject", f"{call}:{fault}:when={number}"] if number else []
        daemon = ["-c", _DAEMON, "--data", str(directory / "data"), "--socket", str(self.socket)]
        strace = [sys.executable, "-S", "-E", "-c", _STRACE]
        traced = [
            *strace,
            "strace",
            "-f",
            "-b",
            "execve",
            "-qq",
            "-o",
            str(self._trace),
            "-e",
            f"trace={','.join(CALLS)}",
        ]
        told = SETTINGS | (settings or {})
        with (directory / "daemon.log").open("ab") as output:
            self._process = subprocess.Popen(
                [*traced, *inject, sys.executable, *daemon, "--memory", "32MiB"],
                stdout=output,
                stderr=output,
                env=os.environ | {f"KVLEDGER_{name.upper()}": value for name, value in told.items()},
                start_new_session=True,
            )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Leave no process behind, whatever happened."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    @property
    def pid(self):
        """Process id of strace."""
        return self._process.pid

    @property
    def ended(self):
        """Whether it is dead."""
        return self._process.poll() is not None

    def wait_ready(self):
        """Wait until it serves; return False if it died first."""
        end = time.monotonic() + READY_S
        while not self.ended:
            assert time.monotonic() < end, "the traced daemon neither serves nor ends"
            try:
                say_hello(self.socket, 10.0)
            except KVLedgerError:
                time.sleep(0.005)
            else:
                return True
        return False

    def stop(self, data):
        """Ask for an orderly end, if it is not dead yet, and wait for the end."""
        if not self.ended:
            # It may have died this very moment, and strace not have told us yet.
            with contextlib.suppress(ProcessLookupError):
                os.kill(int((data / "log/lock").read_text(encoding="ascii")), signal.SIGTERM)
        self._process.wait(READY_S)

    def census(self):
        """Return how often each call was made by the thread of the daemon that made it most often."""
        found = collections.Counter(match.groups() for match in map(_CALL.match, self._lines()) if match)
        most = {}
        for (_, call), count in found.items():
            most[call] = max(count, most.get(call, 0))
        return most

    def killed_at(self):
        """Tell whether it died by SIGKILL at the very call that was named; anything else is reported as it is."""
        if self._process.returncode == 0:
            return False
        assert self._process.returncode == -signal.SIGKILL, f"it ended with {self._process.returncode}"
        assert any("+++ killed by SIGKILL +++" in line for line in self._lines()), "strace saw no kill"
        assert self.census()[self.call] == self.number, f"{self.census()} at {self.call} number {self.number}"
        return True

    def failed_syncs(self):
        """Return the exit status, and for each sync that strace let fail how often its descriptor was synced after."""
        syncs = [match.groups() for match in map(_SYNC.match, self._lines()) if match]
        failed = [index for index, (_, result) in enumerate(syncs) if "INJECTED" in result]
        return self._process.returncode, [[fd for fd, _ in syncs[at + 1 :]].count(syncs[at][0]) for at in failed]

    def _lines(self):
        return self._trace.read_text(encoding="utf-8", errors="replace").splitlines()
