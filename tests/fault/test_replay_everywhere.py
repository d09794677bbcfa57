"""A replay makes the same state whatever the hash seed and whichever Python runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest

from kvledger import Cache
from kvledger.testing import Daemon
from support.promises import Skip, assert_judged
from support.tiny import check, prompt, store, tiny_layout

PYTHONS = ("python3.11", "python3.12", "python3.13")
REPLAY = """
import sys
from pathlib import Path
from kvledgerd.audit.replay import replay_all
state, seq = replay_all(Path(sys.argv[1]))
print(seq, f"{state.digest():016x}", f"{state.recomputed_digest():016x}")
"""


@pytest.fixture(scope="module")
def told():
    """Give a data directory with some history, the seq of its last event and the digest that its daemon had there."""
    with Daemon(memory="64MiB", settings={"arena_bytes": "4MiB", "restart_seconds": 0}) as daemon:
        for _ in range(2):
            with Cache.open(daemon.socket) as cache:
                layout = cache.register(tiny_layout())
                for number in range(40):
                    store(cache, layout, number)
                    check(cache, layout, number // 2)
                cache.offload(layout, prompt(3), boundary=50)
            daemon.kill()
            daemon.wait_ready()
        with Cache.open(daemon.socket) as cache:
            status = cache.status()
        assert daemon.stop() == 0
        yield daemon.data_dir, status


def replay_under(python, seed, told):
    """Replay in a process of its own and compare with what the daemon said."""
    if shutil.which(python) is None:
        return Skip(f"{python} is not installed")
    if subprocess.run([python, "-c", "import kvledgerd.audit.replay"], capture_output=True, check=False).returncode:
        return Skip(f"{python} has no kvledger installed")
    data, status = told
    environment = os.environ | {"PYTHONHASHSEED": seed}
    found = subprocess.run(
        [python, "-c", REPLAY, str(data)], env=environment, capture_output=True, text=True, check=True
    )
    last_seq, digest, recomputed = found.stdout.split()
    assert_judged(digest == recomputed, "the digest is not that of the state")
    assert int(last_seq) >= status.seq
    return digest


def test_replays_agree(told):
    """Three hash seeds on this Python, and every other tested one that is there, reach one digest."""
    cases = [(sys.executable, seed) for seed in ("0", "1", "4242")] + [(python, "0") for python in PYTHONS]
    digests = [replay_under(python, seed, told) for python, seed in cases]

    assert_judged(len({digest for digest in digests if isinstance(digest, str)}) == 1, f"replays differ: {digests}")
    assert sum(isinstance(digest, str) for digest in digests) >= 3
