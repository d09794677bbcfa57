"""SIGKILL just before a system call of a real daemon that stores and offloads: nothing acknowledged is lost.

Each case is one life of a daemon. Ten lives in a row share a data directory, so that most of them begin by recovering
what the one before left, and may be killed in the middle of that. After each kill the log is judged and replayed from
outside; after the last one a daemon that nobody kills reads back every prompt whose offload was acknowledged.
"""

from __future__ import annotations

import contextlib
import itertools
import random

import pytest

from kvledger import Cache
from kvledger.errors import KVLedgerError
from kvledger.testing import Daemon
from kvledger_storage.events import Offloaded, UnitCommitted, decode
from kvledger_storage.log import RealLogIO, read_events, verify
from kvledgerd.core.apply import apply
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.invariants import violations
from kvledgerd.core.state import State
from support.promises import AcknowledgedLostError, Skip, WrongHitError, assert_judged, assert_kept
from support.tiny import check, content, prompt, tiny_layout
from support.traced_daemon import SETTINGS, TracedDaemon, why_not

STORES = 20
LIVES = 10
TOKENS = 50
SHORT, FULL = 6, 300


class Past:
    """What clients of one data directory have been told, over all lives of its daemon."""

    def __init__(self, directory):
        self.directory = directory
        self.numbers = itertools.count()
        self.commits = []
        self.offloads = 0
        self.kept = []

    def work(self, daemon):
        """Store and offload prompts until the daemon dies or there were enough, and note what was acknowledged."""
        with contextlib.suppress(KVLedgerError), Cache.open(daemon.socket, timeout=0.5) as cache:
            layout = cache.register(tiny_layout())
            for _ in range(STORES):
                if daemon.ended:
                    return
                with contextlib.suppress(KVLedgerError):
                    self._store(cache, layout, next(self.numbers))

    def _store(self, cache, layout, number):
        with cache.reserve(layout, prompt(number), boundary=TOKENS) as unit:
            for slot in unit.objects:
                unit.put(slot, content(number, slot.group, slot.first_token, slot.length))
            self.commits.append(unit.commit().commit_id)
        cache.offload(layout, prompt(number), boundary=TOKENS)
        self.offloads += 1
        self.kept.append(number)

    def judge_log(self):
        """The log is whole, every acknowledged commit and offload stands in it, and it replays to a sound state."""
        log = self.directory / "data/log"
        if not (log / "id").exists():
            assert_kept(self.commits, [])
            return
        report = verify(log)
        assert_judged(report.ok, f"{report.problem}")
        state, commits, offloads = State(CoreConfig()), [], 0
        for logged in read_events(RealLogIO(), log):
            event = decode(logged.event).event
            apply(state, event)
            commits += [event.commit_id] if isinstance(event, UnitCommitted) else []
            offloads += isinstance(event, Offloaded)
        assert violations(state) == []
        assert_kept(self.commits, commits)
        assert_kept(range(self.offloads), range(offloads))

    def judge_hits(self):
        """A daemon that is left alone finds every offloaded prompt, with the bytes that were stored."""
        with (
            Daemon(memory="32MiB", directory=self.directory, settings=SETTINGS, keeper=False) as daemon,
            Cache.open(daemon.socket) as cache,
        ):
            layout = cache.register(tiny_layout())
            for number in self.kept:
                try:
                    tokens = check(cache, layout, number)
                except AssertionError as error:
                    raise WrongHitError(str(error)) from error
                if tokens != TOKENS:
                    raise AcknowledgedLostError(f"prompt {number}: {tokens} of {TOKENS} tokens after all kills")


def kill_at(past, call, number):
    """Kill one life of the daemon at its `number`-th `call`, and judge what it left."""
    with TracedDaemon(past.directory, call, number) as daemon:
        if daemon.wait_ready():
            past.work(daemon)
        daemon.stop(past.directory / "data")
        killed = daemon.killed_at()
    past.judge_log()
    return None if killed else Skip(f"the daemon had ended before its call {number} of {call}")


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


def points(census, total):
    """Return `total` pairs of call and number: rare calls all, the frequent ones evenly spread over the life."""
    share = dict.fromkeys(census, 0)
    while sum(share.values()) < min(total, sum(census.values())):
        for call in sorted(census, key=census.__getitem__):
            share[call] += share[call] < census[call] and sum(share.values()) < total
    return [
        (call, 1 + place * census[call] // count) for call, count in sorted(share.items()) for place in range(count)
    ]


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
