"""SIGKILL just before a system call of a real daemon that archives and retires its log: the next start makes it good.

Each case begins with the same log, of which a part is due for the archive and, with a cap of nothing, for retirement.
So the calls at which it dies are those that move segments, publish where the log begins, and remove what was retired.
"""

from __future__ import annotations

import contextlib
import shutil
import time

import pytest

from kvledger import Cache
from kvledger.testing import Daemon
from kvledger_storage.log import verify
from kvledgerd.snapshots.make import make_snapshot
from support.promises import assert_judged
from support.tiny import prompt, store, tiny_layout
from support.traced_daemon import SETTINGS, TracedDaemon, why_not
from support.traced_past import TOKENS, Past, kill_at, points

WITHOUT = SETTINGS | {"snapshot_events": "0"}
DUE = {"snapshot_events": "0", "archive_bytes": "0"}
CALLS = ("link", "unlink", "rename", "fsync", "fdatasync", "mkdir", "pwrite64", "ftruncate", "flock")
STORED, OFFLOADED, MORE = 400, 5, 20
CASES = 50
WAIT_S = 60.0
RETIRED = "archive retired"


@pytest.fixture(scope="module")
def due(tmp_path_factory):
    """Give a data directory with segments that lie before two snapshots, and nothing archived yet."""
    reason = why_not()
    if reason:
        pytest.skip(reason)
    with Daemon(memory="32MiB", settings=WITHOUT, keeper=False) as daemon:
        for count in (STORED, MORE):
            with Cache.open(daemon.socket) as cache:
                layout = cache.register(tiny_layout())
                for number in range(count):
                    store(cache, layout, number)
                for number in range(OFFLOADED):
                    with contextlib.suppress(Exception):
                        cache.offload(layout, prompt(number), boundary=TOKENS)
            make_snapshot(daemon.data_dir)
        assert daemon.stop() == 0
        assert len(list(daemon.log_dir.glob("*.seg"))) > 3
        data = tmp_path_factory.mktemp("due") / "data"
        shutil.copytree(daemon.data_dir, data)
    return data


def begin(due, directory):
    """Copy the log that is due, and return the past of its clients."""
    directory.mkdir()
    shutil.copytree(due, directory / "data")
    return Past(directory, first=10_000, kept=range(OFFLOADED))


def retired(daemon):
    """Wait until the daemon has retired its archive, or died."""
    end = time.monotonic() + WAIT_S
    while not daemon.ended and RETIRED not in (daemon.socket.parent / "daemon.log").read_text():
        assert time.monotonic() < end, "nothing was retired"
        time.sleep(0.02)


@pytest.fixture(scope="module")
def census(due, tmp_path_factory):
    """Give how often each call is made by one thread in a life that archives and retires."""
    past = begin(due, tmp_path_factory.mktemp("census") / "life")
    with TracedDaemon(past.directory, settings=DUE) as daemon:
        assert daemon.wait_ready()
        past.work(daemon)
        retired(daemon)
        daemon.stop(past.directory / "data")
        return {call: count for call, count in daemon.census().items() if call in CALLS}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_while_archiving(due, census, tmp_socket_dir):
    """Whichever step was next, the log verifies, a start ends what was begun, and all that was offloaded is hit."""
    assert census["link"] >= 2
    killed = 0
    for case, (call, number) in enumerate(points(census, CASES)):
        past = begin(due, tmp_socket_dir / f"{case}")
        killed += kill_at(past, call, number, DUE, retired) is None
        past.judge_hits(DUE)
        assert_judged(verify(past.directory / "data/log").ok, "what a start made good does not verify")
        shutil.rmtree(past.directory)
    assert killed > CASES * 0.7
