"""Snapshots of a real daemon: a start that begins with one knows what the log knows, a wrong one changes nothing."""

from __future__ import annotations

import errno
import json
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from kvledger import Cache
from kvledger.testing import Daemon
from kvledger_storage.log import EventLog, RealLogIO
from kvledger_storage.snapshot import SnapshotError, read_snapshots, snapshot_lock, snapshot_names, write_snapshot
from kvledgerd.core.config import CoreConfig
from kvledgerd.snapshots.choice import chosen
from kvledgerd.snapshots.make import make_snapshot
from support.daemon_log import logged
from support.tiny import check, prompt, store, tiny_layout

SETTINGS = {"arena_bytes": "4MiB", "log_segment_bytes": "64KiB", "snapshot_events": 200, "restart_seconds": 0}
STORED = 60


def replays(daemon):
    """Return how many events each start of the daemon replayed."""
    return [line["events"] for line in logged(daemon.output, "log replayed")]


def snapshots(daemon):
    """Return the names of the snapshots that there are, newest first."""
    return snapshot_names(RealLogIO(), daemon.data_dir / "snapshots")


def wait_for_snapshot(daemon, other_than=()):
    """Wait until a process has made a new snapshot."""
    end = time.monotonic() + 60
    while not set(snapshots(daemon)) - set(other_than):
        assert time.monotonic() < end, "no snapshot was made"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def told():
    """Give a stopped daemon's directory with stores, records on disk and snapshots, and its last digest."""
    with Daemon(memory="64MiB", settings=SETTINGS) as daemon:
        with Cache.open(daemon.socket) as cache:
            layout = cache.register(tiny_layout())
            for number in range(STORED):
                store(cache, layout, number)
            cache.offload(layout, prompt(3), boundary=50)
            wait_for_snapshot(daemon)
            for number in range(STORED, 2 * STORED):
                store(cache, layout, number)
            status = cache.status()
        daemon.kill()
        daemon.wait_ready()
        assert replays(daemon)[-1] < status.seq - 150
        with Cache.open(daemon.socket) as cache:
            layout = cache.register(tiny_layout())
            found = [check(cache, layout, number) for number in range(2 * STORED)]
        assert found == [50] * (2 * STORED)
        assert daemon.stop() == 0
        yield daemon.data_dir


def start_on(data: Path, directory: Path, spoil=lambda folder: None):
    """Start a daemon on a copy whose snapshots were spoilt; return its start's lines and the digest of the log."""
    shutil.copytree(data, directory / "data")
    spoil(directory / "data/snapshots")
    with Daemon(memory="64MiB", directory=directory, settings=SETTINGS, keeper=False) as daemon:
        with Cache.open(daemon.socket) as cache:
            assert check(cache, cache.register(tiny_layout()), 3) == 50
        assert daemon.stop() == 0
        return logged(daemon.output)


def test_a_start_from_a_snapshot_reaches_the_state_of_the_log(told, tmp_socket_dir):
    """With snapshots, without them, and by `log replay`, a start reaches one and the same digest."""
    with_them = start_on(told, tmp_socket_dir / "1")
    without = start_on(told, tmp_socket_dir / "2", shutil.rmtree)
    first, second = (next(line for line in found if line["event"] == "log replayed") for found in (with_them, without))

    assert first["digest"] == second["digest"]
    assert first["last_seq"] == second["last_seq"]
    assert first["events"] < second["events"] == second["last_seq"]
    assert not [line for line in with_them if "snapshot" in line["event"] and line["level"] != "info"]


def log_id_beside(folder):
    """Return the id of the log beside a folder of snapshots."""
    with EventLog.open(folder.parent / "log") as log:
        return log.log_id


def flip_body(folder):
    """Flip a bit in the middle of every snapshot."""
    for path in folder.glob("*.snapshot"):
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def cut(folder):
    """Cut every snapshot short."""
    for path in folder.glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-1])


def reseal(**changes):
    """Return what writes every snapshot anew, whole but with other fields."""

    def spoil(folder):
        log_id = log_id_beside(folder)
        for snapshot in list(read_snapshots(RealLogIO(), folder, log_id)):
            write_snapshot(RealLogIO(), folder, replace(snapshot, **changes))

    return spoil


WRONG = {
    "flipped": (flip_body, "not the one that was written"),
    "cut": (cut, "not the one that was written"),
    "of another chain": (reseal(chain=bytes(32)), "does not go on from it"),
    "of another state": (reseal(digest=7), "another state"),
    "of another log": (reseal(log_id=bytes(16)), "belongs to log"),
    "without meaning": (reseal(body=b"\x90"), "passed over"),
}


@pytest.mark.parametrize("way", WRONG)
def test_a_wrong_snapshot_is_passed_over(told, tmp_path, way):
    """Damaged, foreign or contradicting snapshots are named and passed over, each with its reason."""
    spoil, says = WRONG[way]
    shutil.copytree(told, tmp_path / "data")
    folder = tmp_path / "data/snapshots"
    count = len(snapshot_names(RealLogIO(), folder))
    spoil(folder)
    with capture_logs() as said, EventLog.open(tmp_path / "data/log", segment_bytes=1 << 16) as log:
        end = (log.last_seq, log.recovered_chain)

        assert chosen(RealLogIO(), tmp_path / "data", log.log_id, end, CoreConfig()) is None
    assert [says in f"{line['event']} {line['why']}" for line in said] == [True] * count


def test_a_snapshot_that_leads_elsewhere_costs_a_whole_replay(told, tmp_socket_dir):
    """A snapshot whose state is sound but not that of its seq is found out by the tail, and all is replayed."""
    shutil.copytree(told, tmp_socket_dir / "data")
    data = tmp_socket_dir / "data"
    (newest, *_) = read_snapshots(RealLogIO(), data / "snapshots", log_id_beside(data / "snapshots"))
    shutil.rmtree(data / "snapshots")
    other = tmp_socket_dir / "other"
    with Daemon(memory="64MiB", directory=other, settings=SETTINGS) as daemon, Cache.open(daemon.socket) as cache:
        store(cache, cache.register(tiny_layout()), 1)
    foreign = make_snapshot(daemon.data_dir)
    write_snapshot(RealLogIO(), data / "snapshots", replace(newest, body=foreign.body, digest=foreign.digest))

    with Daemon(memory="64MiB", directory=tmp_socket_dir, settings=SETTINGS, keeper=False) as again:
        assert any("does not lead to what was logged" in line["event"] for line in logged(again.output))
        with Cache.open(again.socket) as cache:
            assert check(cache, cache.register(tiny_layout()), 3) == 50


def test_rebuild_makes_the_same_snapshot_from_the_log_alone(told, tmp_path):
    """`log rebuild` makes from the log alone what was made from snapshot and tail, byte for byte."""
    shutil.copytree(told, tmp_path / "data")
    folder = tmp_path / "data/snapshots"
    make_snapshot(tmp_path / "data")
    (newest, *_) = snapshot_names(RealLogIO(), folder)
    before = (folder / newest).read_bytes()
    (folder / newest).unlink()
    command = [sys.executable, "-m", "kvledgerd.cli", "log", "rebuild", "--json", "--data", str(tmp_path / "data")]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert f"{found['seq']:020d}.snapshot" == newest
    assert (folder / newest).read_bytes() == before
    assert not any(isinstance(one, SnapshotError) for one in read_snapshots(RealLogIO(), folder, before[12:28]))


class FullIO(RealLogIO):
    """A disk that is full from the first sync on."""

    def fdatasync(self, fd):
        """Fail as a full disk does."""
        raise OSError(errno.ENOSPC, "No space left on device")


def test_half_a_snapshot_is_not_left_behind(told, tmp_path):
    """Neither a full disk nor a writer that was killed leaves more than whole snapshots, at most two of them."""
    (newest, *_) = read_snapshots(RealLogIO(), told / "snapshots", log_id_beside(told / "snapshots"))
    with pytest.raises(OSError, match="No space"):
        write_snapshot(FullIO(), tmp_path, newest)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / f"{7:020d}.snapshot.draft").write_bytes(b"half")
    for seq in range(1, 5):
        write_snapshot(RealLogIO(), tmp_path, replace(newest, seq=seq))
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"{seq:020d}.snapshot" for seq in (3, 4)]


def test_snapshots_are_made_one_at_a_time(told, tmp_path):
    """Who finds another process at it makes none, and nothing is wrong."""
    shutil.copytree(told, tmp_path / "data")
    with snapshot_lock(RealLogIO(), tmp_path / "data/snapshots"):
        assert make_snapshot(tmp_path / "data", from_log=True) is None
    assert make_snapshot(tmp_path / "data", from_log=True) is not None
