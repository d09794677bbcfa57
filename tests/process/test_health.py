"""`kvledger health`: a real daemon's drill, what it costs nobody, and what a probe is told when it fails."""

import json
import signal
import subprocess
import sys
import time

import pytest

from kvledger import Cache
from kvledger.testing import Daemon
from support import commands

OFTEN = {"drill_seconds": 1}


def health(socket, code):
    """Ask as a container probe does; return the object on the last line."""
    found = commands.kvledger("health", "--socket", str(socket), "--json")
    assert found.returncode == code, found.stdout + found.stderr
    return json.loads(found.stdout.splitlines()[-1])


def passes(cache, count):
    """Wait for so many passes, and until none is under way, and return the report."""
    end = time.monotonic() + 60
    while (report := cache.status()).counters["drill_passes"] < count or report.counters["objects"]:
        assert time.monotonic() < end, report
        time.sleep(0.02)
    return report


def test_a_drill_is_well_and_nobody_sees_it():
    """It passes, is measured, and shows in no hits, in no verdicts, and after a pass in no memory."""
    with Daemon(memory="64MiB", settings=OFTEN) as daemon, Cache.open(daemon.socket) as cache:
        report = passes(cache, 2)
        told = health(daemon.socket, 0)
        assert told["ok"]
        assert 0 < told["latency_micros"] < 5_000_000
        assert 0 <= told["age_ms"] < 20_000
        counters = report.counters
        assert (counters["drill_failing"], counters["drill_failures"], report.notes) == (0, 0, {})
        assert (counters["hash_hit_tokens"], counters["ready_hit_tokens"]) == (0, 0)
        assert (counters["objects"], counters["arena_bytes"]) == (0, 64 << 10)
        audit = commands.kvledger("audit", "why", "--data", str(daemon.data_dir), "--json").stdout
        assert json.loads(audit.splitlines()[-1])["verdicts"] == []


@pytest.mark.slow
def test_a_hangup_turns_it_on(tmp_path, tmp_socket_dir):
    """A daemon without a drill has one as soon as its settings say so and it is told to read them."""
    file, socket, output = tmp_path / "kvledger.toml", tmp_socket_dir / "s", tmp_path / "output"
    file.write_text("drill_seconds = 0\nscrub_seconds = 5\n")
    paths = ["--data", str(tmp_path / "data"), "--socket", str(socket), "--config", str(file)]
    command = [sys.executable, "-m", "kvledgerd.cli", "serve", "--no-keeper", "--memory", "64MiB", *paths]
    with output.open("wb") as errors:
        served = subprocess.Popen(command, stderr=errors)
    try:
        end = time.monotonic() + 30
        while not socket.exists() or b'"ready"' not in output.read_bytes():
            assert time.monotonic() < end
            time.sleep(0.02)
        assert "turned off" in health(socket, 0)["why"]
        file.write_text("drill_seconds = 1\nscrub_seconds = 7\nmax_objects = 9\n")
        served.send_signal(signal.SIGHUP)
        with Cache.open(socket) as cache:
            passes(cache, 2)
        told = next(json.loads(line) for line in output.read_text().splitlines() if "read again" in line)
        assert (told["changed"], told["need_restart"]) == (["scrub_seconds", "drill_seconds"], ["max_objects"])
        assert "last good pass" in health(socket, 0)["why"]
    finally:
        served.terminate()
        assert served.wait(30) == 0


HANGS_UP = """
import os, signal, sys
from kvledgerd.commands import serve
from kvledgerd.life import daemon
recover = daemon.recover
def recovering(*args):
    os.kill(os.getpid(), signal.SIGHUP)
    return recover(*args)
daemon.recover = recovering
sys.exit(serve.main_daemon(sys.argv[1:]))
"""


def test_a_hangup_during_the_start_is_heeded_after_it(tmp_path, tmp_socket_dir):
    """Who asks a daemon that is still recovering to read its settings again does not end it, and is heard."""
    file = tmp_path / "kvledger.toml"
    file.write_text("scrub_seconds = 5\n")
    paths = ["--data", str(tmp_path / "data"), "--socket", str(tmp_socket_dir / "s"), "--config", str(file)]
    with subprocess.Popen([sys.executable, "-c", HANGS_UP, *paths], stderr=subprocess.PIPE, text=True) as served:
        heard = any("settings were read again" in line for line in served.stderr)
        served.terminate()
    assert heard
    assert served.returncode == 0


def test_without_a_daemon_the_probe_fails(tmp_path):
    """Nobody who answers is not well."""
    assert not health(tmp_path / "none", 1)["ok"]
