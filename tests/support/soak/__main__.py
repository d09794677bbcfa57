"""Run a soak: `make soak ARGS="--seconds 3600 --engines 8"`, or `python -m support.soak`.

Progress goes to stderr, a line a minute; the last line of stdout is one JSON object. The exit code is 0 only if no byte
was wrong, no cap was passed, nothing leaked, and every `kvledger check` said ok.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import sys
import time

from kvledger import Cache
from kvledger.testing import Daemon
from support.soak.fleet import Fleet
from support.soak.watch import Caps, Watch, check, settled

MIB = 1 << 20
_RING_BYTES = 4 * MIB
_LOOK_SECONDS = 0.25
_READY_SECONDS = 120
_ENGINE_SECONDS = (0.5, 4.0)
_DAEMON_SECONDS = (8.0, 40.0)
_SETTINGS = {
    "arena_bytes": "4MiB",
    "disk_segment_bytes": "8MiB",
    "log_segment_bytes": "1MiB",
    "snapshot_events": 20_000,
    "archive_bytes": "16MiB",
    "restart_seconds": 0,
}
_RSS_GROWTH = 1.25
_RSS_SLACK = 16 * MIB
_FDS_SLACK = 4  # files of records that are open for reading
_LOG_BYTES = 128 * MIB  # the archive, and what no two snapshots have behind them yet


class Soak:
    """One run.

    Args:
        options: The command line.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._chance = random.Random(options.seed)
        self._caps = Caps(memory=options.memory * MIB, disk=options.disk * MIB, staging=options.engines * _RING_BYTES)
        self._unlike: list[str] = []
        self._daemon_kills = self._checks = 0

    def run(self) -> dict:
        """Run it and return the report."""
        settings = _SETTINGS | {"disk_bytes": self._caps["disk"]}
        memory = f"{self._options.memory}MiB"
        with (
            Daemon(memory=memory, settings=settings) as daemon,
            Cache.open(daemon.socket, timeout=60) as cache,
        ):
            watch = Watch(daemon, self._caps)
            before = watch.now().descriptors
            begin = time.monotonic()
            with Fleet(daemon.socket, daemon.directory, self._options.engines, self._chance) as fleet:
                self._disturb(daemon, cache, fleet, watch)
            seconds = time.monotonic() - begin
            if not settled(cache):
                self._unlike.append(f"engines that ended left something: {cache.status().counters}")
            watch.look(cache)
            watch.measure()
            self._check(daemon, deep=True)
            arenas = cache.status().counters["arenas"]
            if watch.minutes[-1].memfds != arenas:
                self._unlike.append(f"{watch.minutes[-1].memfds} memfds are held for {arenas} arenas")
            report = self._report(seconds, fleet, watch) | {"fds_before": before}
            cache.close()
            if daemon.stop() != 0:
                self._unlike.append("the daemon did not stop in the orderly way")
            self._check(daemon, live=False)
            if self._unlike:
                sys.stderr.write(fleet.complaints() + daemon.output.read_text(errors="replace")[-4000:])
        return {"ok": self._is_fine(report), **report, "unlike": self._unlike}

    def _disturb(self, daemon: Daemon, cache: Cache, fleet: Fleet, watch: Watch) -> None:
        """Let the engines run, kill them and the daemon, and look at it all."""
        begin, minute = time.monotonic(), min(60.0, self._options.seconds / 4)
        engine_at, daemon_at = self._after(_ENGINE_SECONDS), self._after(self._pause())
        measure_at = begin + minute
        while (now := time.monotonic()) < begin + self._options.seconds:
            fleet.revive()
            watch.look(cache)
            if now >= engine_at:
                fleet.kill_one()
                engine_at = self._after(_ENGINE_SECONDS)
            if now >= daemon_at:
                daemon.kill()
                daemon.wait_ready(_READY_SECONDS)
                self._daemon_kills += 1
                daemon_at = self._after(self._pause())
            if now >= measure_at:
                self._check(daemon)
                sys.stderr.write(f"{now - begin:6.0f} s  {watch.measure()}  {fleet.counts()}\n")
                measure_at = now + minute
            time.sleep(_LOOK_SECONDS)

    def _pause(self) -> tuple[float, float]:
        least, most = _DAEMON_SECONDS
        return min(least, self._options.seconds / 4), min(most, self._options.seconds / 2)

    def _after(self, between: tuple[float, float]) -> float:
        return time.monotonic() + self._chance.uniform(*between)

    def _check(self, daemon: Daemon, *, deep: bool = False, live: bool = True) -> None:
        fine, why = check(daemon, deep=deep, live=live)
        self._checks += 1
        if not fine:
            self._unlike.append(f"check: {why}")

    def _report(self, seconds: float, fleet: Fleet, watch: Watch) -> dict:
        counts, minutes = fleet.counts(), watch.minutes
        first, last = minutes[min(1, len(minutes) - 1)], minutes[-1]
        return {
            "seconds": round(seconds, 1),
            **counts,
            "refusals": fleet.refusals(),
            "kills": fleet.kills + self._daemon_kills,
            "engine_kills": fleet.kills,
            "daemon_kills": self._daemon_kills,
            "engines_ended": fleet.deaths,
            "checks": self._checks,
            "rss_bytes": [held.rss_bytes for held in minutes],
            "rss_growth": round(max(held.rss_bytes for held in minutes[1:] or minutes) / first.rss_bytes, 3),
            "fds": [held.descriptors for held in minutes],
            "fds_left": last.descriptors,
            "shm": [held.shm_bytes for held in minutes],
            "log_bytes": watch.log_bytes,
            "log_bytes_max": max(watch.log_bytes),
            "caps_passed": len(watch.passed),
            "passed": watch.passed[:4],
        }

    def _is_fine(self, report: dict) -> bool:
        rss = report["rss_bytes"]
        flat = max(rss) <= _RSS_GROWTH * rss[min(1, len(rss) - 1)] + _RSS_SLACK
        flat = flat and report["log_bytes_max"] <= _LOG_BYTES
        closed = report["fds_left"] <= report["fds_before"] + _FDS_SLACK
        clean = not (report["wrong_bytes"] or report["caps_passed"] or report["engines_ended"] or self._unlike)
        return clean and flat and closed and report["verified"] > 0


def main() -> int:
    """Run a soak and return the exit code."""
    parser = argparse.ArgumentParser(prog="make soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=3600.0, help="how long (default: an hour)")
    parser.add_argument("--engines", type=int, default=8, help="engines at the same time (default: 8)")
    parser.add_argument("--memory", type=int, default=128, help="memory of the cache, MiB (default: 128)")
    parser.add_argument("--disk", type=int, default=192, help="disk space of the cache, MiB (default: 192)")
    parser.add_argument("--seed", type=int, default=0, help="decides who is killed when")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing that was started stays behind
    report = Soak(options).run()
    sys.stdout.write(json.dumps(report) + "\n")
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
