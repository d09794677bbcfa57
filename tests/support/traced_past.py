"""What clients of a traced daemon were told over all of its lives, and how each life's end is judged."""

from __future__ import annotations

import contextlib
import itertools

from kvledger import Cache
from kvledger.errors import KVLedgerError
from kvledger.testing import Daemon
from kvledger_storage.events import Offloaded, UnitCommitted, decode
from kvledger_storage.log import RealLogIO, read_events, verify
from kvledgerd.core.apply import apply
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.invariants import violations
from kvledgerd.snapshots.origin import origin
from support.promises import AcknowledgedLostError, Skip, WrongHitError, assert_judged, assert_kept
from support.tiny import check, content, prompt, tiny_layout
from support.traced_daemon import SETTINGS, TracedDaemon

STORES = 20
TOKENS = 50


class Past:
    """What clients of one data directory have been told, over all lives of its daemon.

    Args:
        directory: Where data and socket lie.
        first: Number of the first prompt that is stored.
        kept: Numbers of prompts that were offloaded before.
    """

    def __init__(self, directory, first=0, kept=()):
        self.directory = directory
        self.numbers = itertools.count(first)
        self.commits = []
        self.offloads = 0
        self.kept = list(kept)
        self._seen = {}

    def work(self, daemon):
        """Store and offload prompts until the daemon dies or there were enough, and note what was acknowledged."""
        with contextlib.suppress(KVLedgerError), Cache.open(daemon.socket, timeout=60) as cache:
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
        state, seq, _ = origin(RealLogIO(), self.directory / "data", CoreConfig())
        for logged in read_events(RealLogIO(), log, from_seq=seq + 1):
            event = decode(logged.event).event
            apply(state, event)
            # What is retired later was seen here before: a life is too short to log it, archive it and retire it.
            self._seen[logged.seq] = event
        assert violations(state) == []
        seen = self._seen.values()
        assert_kept(self.commits, [event.commit_id for event in seen if isinstance(event, UnitCommitted)])
        assert_kept(range(self.offloads), range(sum(isinstance(event, Offloaded) for event in seen)))

    def judge_hits(self, settings=None):
        """A daemon that is left alone finds every offloaded prompt, with the bytes that were stored."""
        with (
            Daemon(
                memory="32MiB", directory=self.directory, settings=SETTINGS | (settings or {}), keeper=False
            ) as daemon,
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


def kill_at(past, call, number, settings=None, until=lambda daemon: None):
    """Kill one life of the daemon at its `number`-th `call`, and judge what it left; it may work on `until` it ends."""
    with TracedDaemon(past.directory, call, number, settings=settings) as daemon:
        if daemon.wait_ready():
            past.work(daemon)
            until(daemon)
        daemon.stop(past.directory / "data")
        killed = daemon.killed_at()
    past.judge_log()
    return None if killed else Skip(f"the daemon had ended before its call {number} of {call}")


def points(census, total):
    """Return `total` pairs of call and number: rare calls all, the frequent ones evenly spread over the life."""
    share = dict.fromkeys(census, 0)
    while sum(share.values()) < min(total, sum(census.values())):
        for call in sorted(census, key=census.__getitem__):
            share[call] += share[call] < census[call] and sum(share.values()) < total
    return [
        (call, 1 + place * census[call] // count) for call, count in sorted(share.items()) for place in range(count)
    ]
