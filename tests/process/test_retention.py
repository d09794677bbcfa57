"""The log's past in a real daemon: archived behind two snapshots, retired beyond its cap, still told by audit."""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

from kvledger import Cache
from kvledger.testing import Daemon
from kvledger_storage.log import verify
from support.daemon_log import logged
from support.tiny import check, store, tiny_layout

SETTINGS = {"arena_bytes": "4MiB", "log_segment_bytes": "64KiB", "snapshot_events": 150, "restart_seconds": 0}
PROMPTS = 60


def store_until(daemon, cache, layout, name, count=1):
    """Store prompts, again and again, until the daemon has said something so often."""
    end, number = time.monotonic() + 60, 0
    while len(logged(daemon.output, name)) < count:
        assert time.monotonic() < end, f"never said: {name}"
        store(cache, layout, number % PROMPTS)
        number += 1


def command(*arguments):
    """Run the command line tool; return its exit code and the JSON of its last line."""
    done = subprocess.run(
        [sys.executable, "-m", "kvledgerd.cli", *arguments], capture_output=True, text=True, check=False
    )
    lines = done.stdout.splitlines()
    return done.returncode, json.loads(lines[-1]) if lines else done.stderr


def archived(daemon):
    """Return the names in the archive."""
    return sorted(path.name for path in (daemon.log_dir / "archive").glob("*"))


@pytest.mark.parametrize("archive_bytes", [pytest.param("1GiB", marks=pytest.mark.slow), "128KiB"])
@pytest.mark.slow
def test_a_long_life_is_archived_and_retired_and_still_told(archive_bytes, tmp_socket_dir):
    """However short the log that a start reads: everything is hit after a kill, and audit tells the rest."""
    settings = SETTINGS | {"archive_bytes": archive_bytes}
    wanted = "archive retired" if archive_bytes == "128KiB" else "log archived"
    with Daemon(memory="64MiB", directory=tmp_socket_dir, settings=settings) as daemon:
        with Cache.open(daemon.socket) as cache:
            layout = cache.register(tiny_layout())
            store_until(daemon, cache, layout, wanted)
        daemon.kill()
        daemon.wait_ready()
        with Cache.open(daemon.socket) as cache:
            layout = cache.register(tiny_layout())
            assert [check(cache, layout, number) for number in range(PROMPTS)] == [50] * PROMPTS
        assert daemon.stop() == 0
        assert archived(daemon)
        report = verify(daemon.log_dir)
        assert report.ok
        assert (report.first_seq > 1) == (archive_bytes == "128KiB")
        replay = logged(daemon.output, "log replayed")[-1]
        assert replay["events"] < report.last_seq / 2
        code, found = command("check", "--data", str(daemon.data_dir), "--json")
        assert (code, found["ok"], found["seq"]) == (0, True, report.last_seq)
        code, past = command("log", "replay", "--data", str(daemon.data_dir), "--json")
        assert (code, past["seq"], past["digest"]) == (0, report.last_seq, found["digest"])


@pytest.mark.slow
def test_a_cut_between_event_and_files_is_made_good(tmp_socket_dir):
    """A daemon that died before segments moved finds the event at its next start, and moves them."""
    with Daemon(memory="64MiB", directory=tmp_socket_dir, settings=SETTINGS, keeper=False) as daemon:
        with Cache.open(daemon.socket) as cache:
            store_until(daemon, cache, cache.register(tiny_layout()), "log archived")
        assert daemon.stop() == 0
        before = archived(daemon)
        # As if the event were all that a crash had left of it
        for name in before:
            (daemon.log_dir / "archive" / name).rename(daemon.log_dir / name)
        (daemon.log_dir / "begin").unlink()
    with Daemon(memory="64MiB", directory=tmp_socket_dir, settings=SETTINGS, keeper=False) as daemon:
        assert daemon.stop() == 0
        assert archived(daemon) == before
        assert verify(daemon.log_dir).ok


def test_without_an_archive_there_is_nothing_to_retire(tmp_socket_dir):
    """A young daemon whose archive is empty looks after it in silence, however small the cap is."""
    settings = SETTINGS | {"archive_bytes": "0"}
    with Daemon(memory="64MiB", directory=tmp_socket_dir, settings=settings, keeper=False) as daemon:
        with Cache.open(daemon.socket) as cache:
            store_until(daemon, cache, cache.register(tiny_layout()), "snapshot made")
        assert daemon.stop() == 0
        assert logged(daemon.output, "event loop") == []
