"""A daemon on a damaged log: it refuses and changes nothing, or sets the log aside when it is told to."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kvledger import Cache
from kvledger.errors import ServiceError
from kvledger.testing import Daemon
from kvledger_storage.log import EventLog, verify
from support.commands import kvledger
from support.daemon_log import logged
from support.refusal import refusal
from support.tiny import check, prompt, store, tiny_layout

SETTINGS = {"arena_bytes": "4MiB", "log_segment_bytes": "64KiB", "snapshot_events": 100}


def serve(directory: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `kvledger serve` on a directory until it ends."""
    paths = ["--data", str(directory / "data"), "--socket", str(directory / "s"), "--memory", "64MiB"]
    command = [sys.executable, "-m", "kvledgerd.cli", "serve", *paths, *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)


def content(directory: Path) -> dict[str, bytes]:
    """Return every file of a log but its lock."""
    files = [file for file in (directory / "data/log").rglob("*") if file.is_file()]
    return {file.name: file.read_bytes() for file in files if file.name != "lock"}


@pytest.fixture
def damaged(tmp_socket_dir):
    """Give a directory whose log has one flipped byte among its synced frames."""
    with Daemon(memory="64MiB", directory=tmp_socket_dir, settings=SETTINGS) as daemon:
        with Cache.open(daemon.socket) as cache:
            layout = cache.register(tiny_layout())
            for number in range(20):
                store(cache, layout, number)
            cache.offload(layout, prompt(3), boundary=50)
            assert check(cache, layout, 5) == 50
            for number in range(20, 30):
                store(cache, layout, number)
        assert daemon.stop() == 0
    segment = min(daemon.log_dir.glob("*.seg"))
    data = bytearray(segment.read_bytes())
    data[2000] ^= 1
    segment.write_bytes(data)
    return tmp_socket_dir


def test_f08_a_damaged_log_is_refused_and_left_as_it_is(damaged):
    """F08: if so asked, daemon and keeper end with 65, name file and offset, say what is safe, and change no byte."""
    before = content(damaged)
    found = serve(damaged, "--on-corrupt=exit")

    assert found.returncode == 65
    for part in (".seg: damaged at offset", "safe: ", "--on-corrupt=quarantine"):
        assert part in found.stderr
    assert content(damaged) == before


def flip_near_the_end(directory: Path) -> None:
    """Make the log's damage good, and flip a byte some frames before its end instead."""
    segment = min((directory / "data/log").rglob("*.seg"))
    data = bytearray(segment.read_bytes())
    data[2000] ^= 1
    data[len(data.rstrip(b"\0")) - 2000] ^= 1
    segment.write_bytes(data)


QUESTIONS = [["audit", "objects"], ["audit", "why"], ["audit", "object", "1.0"], ["check"]]


def test_audit_tells_what_is_safe_of_a_damaged_log(damaged):
    """Audit answers from everything before the damage, then says what is wrong, and ends with 65; so does a check."""
    flip_near_the_end(damaged)
    for question in QUESTIONS:
        found = kvledger(*question, "--data", str(damaged / "data"), "--json")

        assert found.returncode == 65, question
        assert ".seg: damaged at offset" in found.stderr
        if question[0] == "audit":
            assert any(json.loads(found.stdout).values()), question


def test_a_damaged_log_is_set_aside_when_that_is_asked_for(damaged):
    """With --on-corrupt=quarantine the daemon begins anew, forgets what it had, and keeps the old log readable."""
    with Daemon(memory="64MiB", directory=damaged, settings=SETTINGS | {"quarantine_log": "true"}) as daemon:
        with Cache.open(daemon.socket) as cache:
            layout = cache.register(tiny_layout())
            assert [check(cache, layout, number) for number in (3, 4)] == [0, 0]
            store(cache, layout, 3)
            cache.offload(layout, prompt(3), boundary=50)
            assert check(cache, layout, 3) == 50
        assert daemon.stop() == 0
    (aside,) = (damaged / "data/log").glob("quarantine-*")
    report = verify(aside)
    (told,) = logged(daemon.output, "damaged log was set aside")

    assert not report.ok
    assert report.problem.offset <= 2000
    assert (told["folder"], told["because"]) == (str(aside), report.problem.because)
    assert f"offset {report.problem.offset}" in told["why"]
    assert verify(daemon.log_dir).ok
    with EventLog.open(daemon.log_dir, segment_bytes=1 << 16) as log:
        assert log.predecessor.last_seq == report.last_seq


def test_the_option_is_two_settings(tmp_path):
    """`--on-corrupt` turns on the one setting or the other, and `hold` neither."""
    for word, aside, ends in (("quarantine", "true", "false"), ("exit", "false", "true"), ("hold", "false", "false")):
        printed = serve(tmp_path, f"--on-corrupt={word}", "--print-config").stdout
        assert f"quarantine_log = {aside}" in printed
        assert f"exit_on_damage = {ends}" in printed


def wait_served(daemon: Daemon) -> None:
    """Wait until the daemon refuses nobody any more: a signal takes its time to be heard."""
    end = time.monotonic() + 60
    while True:
        try:
            daemon.wait_ready()
        except ServiceError:
            if time.monotonic() >= end:
                raise
            time.sleep(0.02)
        else:
            return


def test_memory_is_held_until_the_log_is_mended(tmp_socket_dir):
    """By default the daemon stays up, refuses everybody by name, and serves the same memory once the log is mended."""
    with Daemon(memory="64MiB", directory=tmp_socket_dir, settings=SETTINGS) as daemon:
        with Cache.open(daemon.socket) as cache:
            layout = cache.register(tiny_layout())
            for number in range(5):
                store(cache, layout, number)
        segment = min(daemon.log_dir.glob("*.seg"))
        os.kill(daemon.pid, signal.SIGSTOP)
        whole = segment.read_bytes()
        segment.write_bytes(whole[:2000] + bytes([whole[2000] ^ 1]) + whole[2001:])
        daemon.kill()

        assert "damaged at offset" in refusal(daemon).message
        assert not verify(daemon.log_dir).ok

        segment.write_bytes(whole)
        os.kill(daemon.pid, signal.SIGHUP)
        wait_served(daemon)
        with Cache.open(daemon.socket) as cache:
            layout = cache.register(tiny_layout())
            assert [check(cache, layout, number) for number in range(5)] == [50] * 5


def test_a_daemon_that_holds_can_be_stopped(damaged):
    """SIGTERM ends a daemon that refuses, and its keeper, with 65."""
    daemon = Daemon(memory="64MiB", directory=damaged, settings=SETTINGS)
    daemon.start()
    refusal(daemon)

    assert daemon.stop() == 65
