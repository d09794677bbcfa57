"""Somebody else who uses the same daemon: what every hostile input must leave as it was.

A neighbour has stored prompts before anything hostile happens. Afterwards it must be served as ever, find its bytes as
they were, and find nothing that the hostile client left behind: no lease, no reservation, no ring, no connection, no
descriptor, and no word in the daemon's log about something that was not foreseen.
"""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from contextlib import contextmanager

from kvledger import Cache
from support.daemon_log import whole_lines
from support.descriptors import open_files
from support.tiny import check, store, tiny_layout

TOKENS = 50
LEFT_BEHIND = (
    "connections",
    "engines",
    "leases",
    "units",
    "jobs",
    "topologies",
    "device_pools",
    "staging_bytes",
    "queue_parked",
    "requests_in_flight",
    "decision_faults",
)
"""Counters that are again what they were when whoever asked for too much has gone."""


class Neighbour:
    """A client of a daemon with prompts of its own.

    Args:
        daemon: The daemon, running.
    """

    def __init__(self, daemon):
        self.daemon = daemon
        self.cache = Cache.open(daemon.socket, staging_bytes=1 << 17, name="neighbour")
        self.layout = self.cache.register(tiny_layout("neighbour"))
        self._seeds = itertools.count(1)
        self._stored = [self._store() for _ in range(2)]

    def _store(self):
        seed = next(self._seeds)
        store(self.cache, self.layout, seed)
        return seed

    def is_served(self):
        """Store a prompt and find it; an exception says what went wrong."""
        seed = self._store()
        assert check(self.cache, self.layout, seed) == TOKENS

    def holdings(self):
        """Return what is held in the daemon on behalf of anybody, in numbers, descriptors included."""
        counters = self.cache.status().counters
        return {name: counters[name] for name in LEFT_BEHIND} | {"descriptors": descriptors(self.daemon)}

    def _settled(self):
        """Return the holdings when they stand still: the daemon's own drill holds a lease now and then."""
        before = None
        while before != (before := self.holdings()):
            time.sleep(0.005)
        return before

    @contextmanager
    def unharmed(self, seconds=30.0):
        """Look before and after: whoever was hostile in between has gone, and nothing of it is left."""
        before, complaints = self._settled(), len(complaints_of(self.daemon))
        yield self
        for seed in self._stored:
            assert check(self.cache, self.layout, seed) == TOKENS, f"prompt {seed} is gone"
        self.is_served()
        end = time.monotonic() + seconds
        while (now := self.holdings()) != before:
            left = {name: (before[name], now[name]) for name in before if before[name] != now[name]}
            assert time.monotonic() < end, f"left behind (before, after): {left}"
            time.sleep(0.01)
        assert complaints_of(self.daemon)[complaints:] == []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cache.close()


def descriptors(daemon):
    """Return how many descriptors of each kind the daemon has open; arenas and files come and go by themselves."""
    found = Counter()
    for _, target in open_files(daemon.pid):
        if not target.startswith((str(daemon.data_dir), "/memfd:kvledger-arena")):
            found[target.partition("[")[0]] += 1
    return dict(found)


def complaints_of(daemon):
    """Return the lines that tell of an error, or that are no lines of a log; its keeper may tell that it was killed."""
    lines = whole_lines(daemon.output)
    lines = [line for line in lines if not line.startswith("kvledger keeper: the daemon was ended by SIGKILL")]
    return [line for line in lines if not line.startswith("{") or json.loads(line)["level"] in {"error", "critical"}]
