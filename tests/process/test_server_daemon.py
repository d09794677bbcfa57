"""The real daemon under its keeper, used through the client library: what users see when things go right and wrong."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvledger import Cache, Kind
from kvledger.testing import Daemon
from kvledger_storage.log import verify
from kvledger_storage.log.identity import ID_NAME, decode_identity, encode_identity
from support.daemon_log import logged
from support.tiny import check, prompt, store, tiny_layout

SETTINGS = {"arena_bytes": "4MiB", "log_segment_bytes": "256KiB", "disk_segment_bytes": "1MiB"}


@pytest.fixture(scope="module")
def daemon():
    """Give one daemon to all tests of this module."""
    with Daemon(memory="64MiB", settings=SETTINGS) as running:
        yield running


def counters(cache: Cache) -> dict[str, int]:
    """Return the daemon's numbers."""
    return cache.status().counters


def serve(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `kvledger serve` in the foreground until it ends."""
    command = [sys.executable, "-m", "kvledgerd.cli", "serve", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environment or None)


def test_memory_outlives_the_daemon(daemon):
    """After a SIGKILL the next incarnation hands out the same bytes from the memory that the keeper held."""
    with Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        store(cache, layout, 1)
        before = cache.status()
    daemon.kill()
    welcome = daemon.wait_ready()

    assert welcome.incarnation == before.incarnation + 1
    with Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        assert check(cache, layout, 1) == 50
        assert counters(cache)["arenas"] == before.counters["arenas"]


def test_open_caches_survive_a_restart(daemon):
    """A client that stays open while the daemon dies goes on with the next incarnation by itself."""
    with Cache.open(daemon.socket, timeout=60) as cache:
        layout = cache.register(tiny_layout())
        store(cache, layout, 2)
        daemon.kill()

        assert check(cache, layout, 2) == 50


def test_prefixes_come_back_from_disk(daemon):
    """A boundary that was written to disk and lost its memory is restored, verified, and handed out."""
    with Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        store(cache, layout, 3)
        cache.offload(layout, prompt(3), boundary=50)
        for kind in (Kind.COMPRESSED_KV, Kind.UNCOMPRESSED_TAIL):
            cache.evict(layout, prompt(3), boundary=50, kind=kind)

        assert check(cache, layout, 3) == 50


def test_v45_l22_leases_end_with_their_process(daemon):
    """A client that is killed while it holds a lease and a reservation leaves neither behind."""
    with Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        store(cache, layout, 4)
        holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(daemon.socket)], stdout=subprocess.PIPE, text=True)
        try:
            assert holder.stdout.readline() == "holding\n"
            held = counters(cache)
            assert (held["leases"], held["units"]) == (1, 1)
        finally:
            holder.kill()
            holder.communicate()
        wait_until(lambda: not counters(cache)["leases"] and not counters(cache)["units"])

        assert check(cache, layout, 4) == 50


HOLDER = """
import sys, time
sys.path.insert(0, "tests")
from kvledger import Cache
from support.tiny import prompt, tiny_layout
cache = Cache.open(sys.argv[1])
layout = cache.register(tiny_layout())
hit = cache.acquire(layout, [*prompt(4), 7])
unit = cache.reserve(layout, prompt(40), boundary=50)
print("holding", flush=True)
time.sleep(60)
"""


def test_log_lines_are_objects_with_the_incarnation(daemon):
    """To a pipe every line of the daemon is JSON and names its incarnation."""
    ready = logged(daemon.output, "ready")

    assert [line["incarnation"] for line in ready] == list(range(1, len(ready) + 1))


@pytest.mark.hostile("DI08")
def test_second_daemons_are_turned_away(daemon, tmp_socket_dir):
    """A second daemon on the same directory ends with the holder's process id, and the first one goes on."""
    found = serve("--data", str(daemon.data_dir), "--socket", str(tmp_socket_dir / "s"), "--memory", "64MiB")

    assert found.returncode == 78
    assert str(daemon.pid) in found.stderr
    daemon.wait_ready()


def test_stopping_is_clean_and_starting_again_finds_the_same(tmp_socket_dir):
    """After an orderly stop the log verifies, and the next start replays it to the digest that was reported."""
    daemon = Daemon(memory="64MiB", directory=tmp_socket_dir, settings=SETTINGS, keeper=False)
    with daemon, Cache.open(daemon.socket) as cache:
        layout = cache.register(tiny_layout())
        store(cache, layout, 5)
        cache.offload(layout, prompt(5), boundary=50)
        cache.close()
        assert daemon.stop() == 0
        assert not daemon.socket.exists()
        assert verify(daemon.log_dir).ok
        last = logged(daemon.output)[-1]
        assert last["event"] == "stopped"

        daemon.start()
        daemon.wait_ready()
        replayed = logged(daemon.output, "log replayed")[-1]
        assert replayed["last_seq"] == last["last_seq"]
        with Cache.open(daemon.socket) as again:
            # Nobody held the arenas, so what is left is what was made durable.
            assert check(again, again.register(tiny_layout()), 5) == 50


@pytest.mark.hostile("DI09")
def test_newer_data_is_refused_unchanged(tmp_socket_dir):
    """A directory of a newer version is refused by name, and not one byte of it is changed."""
    with Daemon(memory="64MiB", directory=tmp_socket_dir, settings=SETTINGS) as daemon:
        daemon.stop()
    path = daemon.log_dir / ID_NAME
    path.write_bytes(_newer(path.read_bytes()))
    before = {file.name: file.read_bytes() for file in daemon.log_dir.iterdir() if file.name != "lock"}
    found = serve("--data", str(daemon.data_dir), "--socket", str(daemon.socket))

    assert found.returncode == 78
    assert "newer" in found.stderr
    assert {file.name: file.read_bytes() for file in daemon.log_dir.iterdir() if file.name != "lock"} == before


def _newer(data: bytes) -> bytes:
    from crc32c import crc32c

    assert encode_identity(decode_identity(data)) == data
    unsigned = data[:8] + (int.from_bytes(data[8:12], "little") + 1).to_bytes(4, "little") + data[12:-4]
    return unsigned + crc32c(unsigned).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["--socket", "/tmp/" + "s" * 120], {}, "at most 107"),
        (["--memory", "lots"], {}, "memory_bytes"),
        (["--config", "/nowhere/kvledger.toml"], {}, "name a file that exists"),
        ([], {"KVLEDGER_MEMROY_BYTES": "1GiB"}, "did you mean memory_bytes?"),
    ],
    ids=["socket path too long", "no number", "no such file", "misspelled"],
)
def test_wrong_settings_end_with_a_remedy(arguments, environment, says, tmp_path):
    """A setting that makes no sense ends the start with exit code 78 and one line that says what to do."""
    found = serve("--data", str(tmp_path / "data"), *arguments, **environment)

    assert found.returncode == 78
    assert says in found.stderr
    assert found.stderr.count("\n") == 1
    assert not Path(tmp_path / "data").exists()


def test_all_settings_can_be_printed():
    """`--print-config` prints a file that is read back to the same settings."""
    found = serve("--print-config", "--memory", "3GiB")

    assert found.returncode == 0
    assert "memory_bytes = 3221225472" in found.stdout


def wait_until(condition, seconds: float = 60.0) -> None:
    """Wait until something is true."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.01)
