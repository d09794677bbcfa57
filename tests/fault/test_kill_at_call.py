"""SIGKILL just before a system call of a real daemon that stores and offloads: nothing acknowledged is lost.

Each case is one life of a daemon. Ten lives in a row share a data directory, so that most of them begin by recovering
what the one before left, and may be killed in the middle of that. After each kill the log is judged and replayed from
outside; after the last one a daemon that nobody kills reads back every prompt whose offload was acknowledged.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from support.traced_daemon import TracedDaemon, why_not
from support.traced_past import STORES, Past, kill_at, points

LIVES = 10
SHORT, FULL = 4, 330
ORPHAN = """
import sys, time
from pathlib import Path
from support.traced_daemon import TracedDaemon
with TracedDaemon(Path(sys.argv[1])) as daemon:
    print(daemon.wait_ready(), flush=True)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def census(tmp_path_factory):
    """Give how often each call is made by one thread in a life that nobody ends early."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    past = Past(tmp_path_factory.mktemp("census"))
    with TracedDaemon(past.directory) as daemon:
        assert daemon.wait_ready()
        past.work(daemon)
        daemon.stop(past.directory / "data")
        assert len(past.kept) == STORES
        return daemon.census()


@pytest.mark.parametrize("total", [SHORT, pytest.param(FULL, marks=pytest.mark.slow)])
@pytest.mark.timeout(1800)
def test_killed_before_a_call(census, tmp_socket_dir, total):
    """Whichever call the daemon was about to make, what it had acknowledged is there, and no hit has wrong bytes."""
    todo = points(census, total)
    random.Random(total).shuffle(todo)
    killed = 0
    for chain in range(0, len(todo), LIVES):
        directory = tmp_socket_dir / f"{chain}"
        directory.mkdir()
        past = Past(directory)
        for call, number in todo[chain : chain + LIVES]:
            killed += kill_at(past, call, number) is None
        past.judge_hits()
    assert killed > total * 0.8


@pytest.mark.slow
def test_a_killed_test_run_leaves_no_daemon(tmp_socket_dir):
    """Whoever is killed while it traces a daemon takes strace and the daemon along."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    environment = os.environ | {"PYTHONPATH": "tests"}
    command = [sys.executable, "-c", ORPHAN, str(tmp_socket_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as run:
        assert run.stdout.readline() == "True\n"
        daemon = os.pidfd_open(int((tmp_socket_dir / "data/log/lock").read_text(encoding="ascii")))
        run.send_signal(signal.SIGKILL)

    end = time.monotonic() + 60
    try:
        while True:
            assert time.monotonic() < end, "the traced daemon lives on"
            try:
                signal.pidfd_send_signal(daemon, 0)
            except ProcessLookupError:
                break
            time.sleep(0.01)
    finally:
        os.close(daemon)
