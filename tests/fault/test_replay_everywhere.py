"""A replay makes the same state whatever the hash seed and whichever Python runs it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kvledger import Cache
from kvledger.testing import Daemon
from support.promises import Skip, assert_judged
from support.pythons import environment, other_versions, serving
from support.tiny import check, prompt, store, tiny_layout

SEEDS = ("0", "1", "4242")
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
    data, status = told
    found = subprocess.run(
        [python, "-c", REPLAY, str(data)],
        env=environment(PYTHONHASHSEED=seed),
        capture_output=True,
        text=True,
        check=True,
    )
    last_seq, digest, recomputed = found.stdout.split()
    assert_judged(digest == recomputed, "the digest is not that of the state")
    assert int(last_seq) >= status.seq
    return digest


def judge(version, seed, told):
    """Replay once; on this Python if no other version is named, on another if it is here with what kvledger needs."""
    python, why = serving(version, "kvledgerd.audit.replay") if version else (sys.executable, "")
    return replay_under(python, seed, told) if python is not None else Skip(why)


def test_replays_agree(told):
    """Three hash seeds on this Python, and every other tested version that can run it, reach one digest."""
    cases = [("", seed) for seed in SEEDS] + list(zip(other_versions(), SEEDS[1:], strict=True))
    digests = [judge(version, seed, told) for version, seed in cases]

    made = [digest for digest in digests if isinstance(digest, str)]
    assert_judged(len(set(made)) == 1, f"replays differ: {digests}")
    assert len(made) >= len(SEEDS)
