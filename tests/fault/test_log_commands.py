"""`kvledger log` on whole, running and damaged logs: what is safe is printed first, then what to do."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kvledger import Cache
from kvledger.testing import Daemon
from kvledger_storage.log import verify
from support.commands import Ended, kvledger
from support.tiny import prompt, store, tiny_layout

SETTINGS = {"arena_bytes": "4MiB", "log_segment_bytes": "64KiB"}


def log(data: Path, *arguments: str, code: int = 0) -> Ended:
    """Run `kvledger log`; it has to end with `code`."""
    found = kvledger("log", *arguments, "--data", str(data))
    assert found.returncode == code, found.stderr
    return found


def events(found: Ended) -> list[int]:
    """Return the seqs that were printed in the machine form."""
    return [json.loads(line)["seq"] for line in found.stdout.splitlines()]


@pytest.fixture(scope="module")
def told():
    """Give a data directory whose log has several segments, the digest its daemon had at a seq, and that seq."""
    with Daemon(memory="64MiB", settings=SETTINGS) as daemon:
        with Cache.open(daemon.socket) as cache:
            layout = cache.register(tiny_layout())
            for number in range(120):
                store(cache, layout, number)
            cache.offload(layout, prompt(7), boundary=50)
            middle = cache.status()
            for number in range(200, 320):
                store(cache, layout, number)
        assert daemon.stop() == 0
        assert len(list(daemon.log_dir.glob("*.seg"))) > 1
        yield daemon.data_dir, middle


def test_replay_tells_what_the_cache_was(told):
    """`replay --at SEQ` reaches the digest that the daemon had at that seq, and counts objects by kind and state."""
    data, middle = told

    past = json.loads(log(data, "replay", "--at", str(middle.seq), "--json").stdout)

    assert (past["seq"], past["digest"]) == (middle.seq, middle.digest)
    assert past["objects"]["COMPRESSED_KV"]["COMMITTED"] > 100
    assert past["objects"]["UNCOMPRESSED_TAIL"]["MIRRORED"] == 1
    assert past["held"]["layouts"] == 1
    assert past["disk_bytes"] > 0


def test_replay_without_a_seq_is_the_end(told):
    """Without a seq the last event is meant; one that is not there yet is refused with the last one's number."""
    data, middle = told
    last = json.loads(log(data, "replay", "--json").stdout)["seq"]

    assert last > middle.seq
    assert f"ends at {last}" in log(data, "replay", "--at", str(last + 1), code=64).stderr
    assert f"seq {last}" in log(data, "replay").stdout


def test_tail_begins_with_the_last_events_and_follows(tmp_socket_dir):
    """`tail` prints the last events, then those of a running daemon as they come, each once."""
    with Daemon(memory="64MiB", directory=tmp_socket_dir, settings=SETTINGS) as daemon, Cache.open(daemon.socket) as c:
        layout = c.register(tiny_layout())
        store(c, layout, 1)
        command = [sys.executable, "-m", "kvledgerd.cli", "log", "tail", "--lines", "3", "--json"]
        with subprocess.Popen(
            [*command, "--data", str(daemon.data_dir)], stdout=subprocess.PIPE, text=True
        ) as following:
            seen = [json.loads(following.stdout.readline()) for _ in range(3)]
            store(c, layout, 2)
            while seen[-1]["event"] != "UnitCommitted" or len(seen) <= 3:
                seen.append(json.loads(following.stdout.readline()))
            following.terminate()

    first = seen[0]["seq"]
    assert [event["seq"] for event in seen] == list(range(first, first + len(seen)))


def test_tail_ends_where_it_is_told(told):
    """`tail --lines N --to SEQ` prints the N events that end with that one, wherever the log ends."""
    data, middle = told
    tail = log(data, "tail", "--lines", "3", "--to", str(middle.seq), "--json")

    assert events(tail) == [middle.seq - 2, middle.seq - 1, middle.seq]


def damaged_copy(data: Path, target: Path, which: int) -> tuple[Path, int]:
    """Copy a data directory and flip a byte in the middle of its first or last segment; return it and the last seq."""
    shutil.copytree(data / "log", target / "log")
    path = sorted((target / "log").glob("*.seg"))[which]
    content = bytearray(path.read_bytes())
    content[len(bytes(content).rstrip(b"\0")) // 2] ^= 1
    path.write_bytes(content)
    return target, verify(target / "log").last_seq


@pytest.mark.parametrize("which", [0, -1])
def test_f08_damage_ends_with_65_behind_all_that_is_safe(told, tmp_path, which):
    """F08: every part prints all events before the damage, then file, offset and what to run next, and ends with 65."""
    data, last = damaged_copy(told[0], tmp_path, which)
    cat = log(data, "cat", "--json", code=65)
    tail = log(data, "tail", "--json", code=65)
    replay = log(data, "replay", "--json", code=65)

    assert events(cat) == list(range(1, last + 1))
    assert events(tail)[-1] == last
    assert json.loads(replay.stdout)["seq"] == last
    for found in (cat, tail, replay):
        assert ".seg: damaged at offset" in found.stderr
        assert "next: " in found.stderr


def test_f08_a_torn_tail_is_no_damage(told, tmp_path):
    """F08: an end that a crash explains is told from rot: everything before it is printed, and nothing is wrong."""
    shutil.copytree(told[0] / "log", tmp_path / "log")
    (tmp_path / "log/mark").unlink()
    path = max((tmp_path / "log").glob("*.seg"))
    content = bytearray(path.read_bytes())
    content[len(bytes(content).rstrip(b"\0")) - 1] ^= 1
    path.write_bytes(content)

    report = json.loads(log(tmp_path, "verify", "--json").stdout)
    assert report["decision"] == "repair_tail"
    assert events(log(tmp_path, "cat", "--json"))[-1] == report["last_seq"]
