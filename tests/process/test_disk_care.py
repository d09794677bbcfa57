"""The disk tier of a real daemon: files that others touch, dead space that comes back, and a scrubber that goes on."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from kvledger import Cache, Kind
from kvledger.errors import NotFoundError
from kvledger.testing import Daemon
from kvledgerd.commands.table import run
from support.tiny import check, prompt, store, tiny_layout

TOKENS = 50
PROMPTS = 24
SETTINGS = {"arena_bytes": "4MiB", "disk_segment_bytes": "64KiB", "restart_seconds": 0, "scrub_seconds": 0}
KINDS = (Kind.COMPRESSED_KV, Kind.UNCOMPRESSED_TAIL)


def to_disk(cache, layout, number):
    """Store a prompt and leave it on disk alone."""
    store(cache, layout, number)
    cache.offload(layout, prompt(number), boundary=TOKENS)
    for kind in KINDS:
        cache.evict(layout, prompt(number), boundary=TOKENS, kind=kind)


def from_disk(cache, layout, number):
    """Give a prompt up on disk."""
    for kind in (Kind.DISK_PREFIX, *KINDS):
        with contextlib.suppress(NotFoundError):  # the first of them took the last copy with it
            cache.evict(layout, prompt(number), boundary=TOKENS, kind=kind, disk=True)


def segments(daemon):
    """Return the files of disk records in order."""
    return sorted((daemon.data_dir / "data").glob("*.seg"))


def file_bytes(daemon):
    """Return what they take; the cleaner may remove one while they are looked at."""
    size = 0
    for path in segments(daemon):
        with contextlib.suppress(FileNotFoundError):
            size += path.stat().st_size
    return size


def until(cache, holds, seconds=60.0):
    """Wait until a status holds what is expected, and return its counters."""
    end = time.monotonic() + seconds
    while True:
        counters = cache.status().counters
        if holds(counters):
            return counters
        assert time.monotonic() < end, counters
        time.sleep(0.05)


def scrubbed(cache):
    """Have a pass made and return the counters after it."""
    passes = cache.status().counters["scrub_passes"]
    cache.set_scrub(paused=False, now=True)
    return until(cache, lambda counters: counters["scrub_passes"] > passes)


def cut(path):
    """Cut a file short."""
    os.truncate(path, 4096)


def remove(path):
    """Remove a file."""
    path.unlink()


def overwrite(path):
    """Write over the middle of every page, and keep the size."""
    data = bytearray(path.read_bytes())
    for at in range(4096 + 30, len(data), 4096):
        data[at : at + 8] = b"scribble"
    path.write_bytes(data)


def directory(path):
    """Put a directory in the place of a file."""
    path.unlink()
    path.mkdir()
    (path / "foreign").touch()


def link(path):
    """Put a link to a copy in the place of a file."""
    copy = path.with_suffix(".copy")
    path.rename(copy)
    path.symlink_to(copy)


HARMS = (cut, remove, overwrite, directory, link)


def test_v38_f07_what_others_did_to_files_is_found_once_by_the_scrubber():
    """V38, F07: nobody has to look it up: it is dropped by event, counted once, a miss, and can be stored again."""
    with Daemon(memory="64MiB", settings=SETTINGS) as daemon, Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        for number in range(6):
            to_disk(cache, layout, number)
        assert scrubbed(cache)["disk_records_damaged"] == 0
        (daemon.data_dir / "data" / "foreign.file").touch()
        harmed = segments(daemon)[: len(HARMS)]
        for harm, path in zip(HARMS, harmed, strict=True):
            harm(path)
        found = scrubbed(cache)["disk_records_damaged"]
        assert found >= len(HARMS)
        assert scrubbed(cache)["disk_records_damaged"] == found

        usable = [check(cache, layout, number) for number in range(6)]
        assert set(usable) <= {0, TOKENS}
        assert usable.count(0) >= 2
        for number in range(6):
            store(cache, layout, number)
            cache.offload(layout, prompt(number), boundary=TOKENS)
        daemon.kill()
        daemon.wait_ready()
        assert [check(cache, layout, number) for number in range(6)] == [TOKENS] * 6
        assert cache.status().counters["disk_records_damaged"] == found
        assert (daemon.data_dir / "data" / "foreign.file").exists()


@pytest.mark.slow
def test_l36_dead_space_comes_back_and_the_files_never_pass_the_quota():
    """L36: where half of the prompts are given up the rest is moved together, through kills, within the quota."""
    cap = 2 << 20
    with Daemon(memory="64MiB", settings=SETTINGS | {"disk_bytes": cap}) as daemon, Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        for number in range(PROMPTS):
            to_disk(cache, layout, number)
        before = len(segments(daemon))
        kept = [number for number in range(PROMPTS) if number % 4 == 3]
        for number in range(PROMPTS):
            if number not in kept:
                from_disk(cache, layout, number)
            assert file_bytes(daemon) <= cap
        cleaned = until(cache, lambda now: now["cleaned_records"] and now["disk_dead_bytes"] < now["disk_bytes"])
        assert cleaned["disk_removed_segments"] > 0
        assert len(segments(daemon)) < before
        daemon.kill()
        daemon.wait_ready()
        assert [check(cache, layout, number) for number in kept] == [TOKENS] * len(kept)
        assert cache.status().counters["disk_records_damaged"] == 0
        assert file_bytes(daemon) <= cap


@pytest.mark.slow
def test_a_full_quota_is_cleaned_for_a_write_that_waits():
    """Prompts come and go at the cap: every offload finds room, since what is dead is cleaned for it."""
    cap = 1 << 20
    with Daemon(memory="64MiB", settings=SETTINGS | {"disk_bytes": cap}) as daemon, Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        alive = []
        for number in range(120):
            to_disk(cache, layout, number)
            alive.append(number)
            if len(alive) > 8:
                from_disk(cache, layout, alive.pop(number * 7 % len(alive)))
            assert file_bytes(daemon) <= cap
        assert [check(cache, layout, number) for number in alive] == [TOKENS] * len(alive)


@pytest.mark.slow
def test_the_scrubber_is_paused_over_a_restart_and_goes_on_where_it_was():
    """Paused it reads nothing, also after a kill; let go on it ends the pass that it had begun."""
    slow = SETTINGS | {"scrub_bytes_per_second": "64KiB"}
    with Daemon(memory="64MiB", settings=slow) as daemon, Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        for number in range(12):
            to_disk(cache, layout, number)
        cache.set_scrub(paused=False, now=True)
        begun = until(cache, lambda counters: counters["scrub_records"])
        cache.set_scrub(paused=True)
        daemon.kill()
        daemon.wait_ready()
        again = cache.status().counters
        assert (again["scrub_paused"], again["scrub_passes"]) == (1, 0)
        assert again["scrub_segment"] >= begun["scrub_segment"] > 0
        cache.set_scrub(paused=False)
        ended = until(cache, lambda counters: counters["scrub_passes"] == 1)
        assert ended["scrub_records"] >= 12 * 3
        assert ended["disk_direct"] in {0, 1}


@pytest.fixture
def short():
    """Give a directory with a path short enough for a socket."""
    with tempfile.TemporaryDirectory(prefix="kvl-") as name:
        yield Path(name)


@pytest.mark.slow
def test_a_lost_log_is_rebuilt_from_the_data_files(capsys, short):
    """The log is gone: a scan tells what is there, a rebuild makes a log, and everything on disk hits again."""
    data = short / "data"
    with Daemon(memory="64MiB", settings=SETTINGS) as daemon, Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        for number in range(6):
            to_disk(cache, layout, number)
        shutil.copytree(daemon.data_dir, data, ignore=shutil.ignore_patterns("log", "snapshots"))

    assert run(["disk", "scan", "--data", str(data), "--verify", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["ok"], told["records"]["DISK_PREFIX"], told["layouts"][0][2:]) == (True, 6, ["tiny", "w1"])
    for words, says in (([], "only headers were read"), (["--verify"], "all bytes were compared")):
        assert run(["disk", "scan", "--data", str(data), *words]) == 0
        assert says in capsys.readouterr().out
    assert run(["disk", "rebuild", "--data", str(data)]) == 0
    assert "nothing was written" in capsys.readouterr().out
    assert run(["disk", "rebuild", "--data", str(data), "--json", "--write", "--weights", "w1"]) == 0
    assert json.loads(capsys.readouterr().out)["prefixes"] == 6
    with Daemon(memory="64MiB", settings=SETTINGS, directory=short) as daemon, Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        assert [check(cache, layout, number) for number in range(6)] == [TOKENS] * 6
        store(cache, layout, 7)
        assert check(cache, layout, 7) == TOKENS
    assert run(["check", "--data", str(data), "--deep", "--json"]) == 0


def test_a_daemon_that_stops_makes_room_for_what_it_writes():
    """What an orderly stop writes to a disk that is too small ends when the room has, and not when the time has."""
    told = {**SETTINGS, "disk_write": "on_evict", "disk_bytes": "1MiB", "stop_write_seconds": 60}
    with Daemon(memory="64MiB", settings=told) as daemon:
        with Cache.open(daemon.socket) as cache:
            layout = cache.register(tiny_layout())
            for number in range(4 * PROMPTS):
                store(cache, layout, number)
        assert daemon.stop(50) == 0
        assert file_bytes(daemon) > 1 << 19
