"""Judging a soak: caps at every look, growth from one minute to the next, and `kvledger check` beside the daemon."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

from kvledger import Cache
from kvledger.errors import KVLedgerError
from kvledger.testing import Daemon
from support.soak.measures import Held, held_by, parent_of, size_of

__all__ = ["Caps", "Watch", "check", "settled"]

_SETTLE_SECONDS = 30.0
_OVERHEAD = 1.01  # header and generation table of an arena: 1/512 of it and two pages


class Caps(dict):
    """Bytes that the daemon was given: `memory`, `disk`, and `staging` of all engines."""


class Watch:
    """Looks at a daemon.

    Args:
        daemon: The daemon; it may be killed and come back.
        caps: What it was given.

    Attributes:
        passed: Each time that a cap was found passed: which one, and by how much.
        minutes: What the processes held at each measurement.
        log_bytes: Bytes of the log at each measurement, archive included.
    """

    def __init__(self, daemon: Daemon, caps: Caps) -> None:
        self._daemon = daemon
        self._caps = caps
        self.passed: list[str] = []
        self.minutes: list[Held] = []
        self.log_bytes: list[int] = []

    def look(self, cache: Cache) -> None:
        """Compare the daemon's numbers with its caps; a daemon that is away now has none."""
        try:
            counters = cache.status().counters
        except KVLedgerError:
            return
        self.passed += [f"{name}: {now} of {cap}" for name, now, cap in self._uses(counters) if now > cap]

    def _uses(self, counters: dict[str, int]) -> Iterator[tuple[str, int, int]]:
        live = sum(size for name, size in counters.items() if name.startswith("live_bytes."))
        yield "arenas", counters["arena_bytes"], self._caps["memory"]
        yield "live", live, counters["arena_bytes"]
        yield "disk", counters["disk_bytes"], self._caps["disk"]
        yield "staging", counters["staging_bytes"], self._caps["staging"]
        yield "decision faults", counters["decision_faults"], 0

    def now(self) -> Held:
        """Return what daemon and keeper hold."""
        pid = self._daemon.pid
        return held_by([pid, parent_of(pid)])

    def measure(self) -> Held:
        """Measure daemon and keeper, and hold what the kernel says against the caps."""
        held = self.now()
        self.minutes.append(held)
        self.log_bytes.append(size_of(self._daemon.data_dir / "log"))
        most = int(self._caps["memory"] * _OVERHEAD) + self._caps["staging"]
        if held.shm_bytes > most:
            self.passed.append(f"shared memory: {held.shm_bytes} of {most}")
        return held


def settled(cache: Cache) -> bool:
    """Wait until what the engines held is given back; return whether it was in time."""
    end = time.monotonic() + _SETTLE_SECONDS
    while time.monotonic() < end:
        counters = cache.status().counters
        if not any(counters[name] for name in ("leases", "units", "jobs", "staging_bytes")):
            return True
        time.sleep(0.05)
    return False


def check(daemon: Daemon, *, deep: bool = False, live: bool = True) -> tuple[bool, str]:
    """Run `kvledger check`; return whether everything holds, and what does not."""
    command = [sys.executable, "-m", "kvledgerd.cli", "check", "--data", str(daemon.data_dir), "--json"]
    command += ["--socket", str(daemon.socket)] if live else []
    command += ["--deep"] if deep else []
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found = json.loads(done.stdout.strip().rpartition("\n")[2])
    except ValueError:
        return False, done.stderr[-2000:] + done.stdout[-2000:]
    return found["ok"], "" if found["ok"] else json.dumps(found["violations"])[:2000]
