"""Field cases with hybrid layouts through the real daemon: clients that do everything at once with every kind and form.

Each layout stores each prompt with bytes of its own, so a hit with anything foreign in it is seen, whichever group,
shard, page or boundary it came from; and what a hit's rows cover is counted.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from kvledger import Cache, Kind
from kvledger.errors import CapacityError, CommitRefusedError, NotFoundError
from kvledger.kinds import Form
from kvledger.testing import Daemon
from support.layouts import compressed, indexer, recurrent, tail, window
from support.promises import WrongHitError
from support.tiny import content
from support.world import layout as layout_of

BLOCK = 64
REFUSED = (CapacityError, CommitRefusedError, NotFoundError)
SETTINGS = {"arena_bytes": "1MiB", "disk_segment_bytes": "256KiB", "disk_bytes": "64MiB"}
ROWS = (compressed(block=BLOCK), indexer(block=BLOCK))
LAYOUTS = {
    "pages": (layout_of(*ROWS, window("S", 16, 40), tail("T", 4, 8), block_tokens=BLOCK), 16),
    "turned": (layout_of(tail("T", 4, 8), window("S", 16, 40), *ROWS[::-1], block_tokens=BLOCK, model="turned"), 16),
    "states": (
        layout_of(
            *ROWS,
            window("S", 16, 40, speculative_units=1),
            recurrent("M", page_bytes=5000),
            block_tokens=BLOCK,
            model="states",
        ),
        16,
    ),
    "tails": (layout_of(*ROWS, recurrent("M", coupled_to="C"), block_tokens=BLOCK, model="tails"), 1),
    "shards": (
        layout_of(compressed(block=BLOCK, shards=2), window("S", 16, 24, shards=2), block_tokens=BLOCK, model="shards"),
        16,
    ),
}
"""Layouts by name, each with the distance of positions at which its boundaries may lie."""


def prompt(number, tokens):
    """A prompt that no other number begins like."""
    return [1_000_000 + number, *range(tokens - 1)]


def bytes_of(name, number, slot):
    """What an object of a layout's prompt should hold."""
    return content(number, f"{name} {slot.group}/{slot.shard}", slot.first_token, slot.length)


def assert_whole(spec, position, handles):
    """The handles of one group and shard are all that a resume at this position needs of it, and in order."""
    if spec.form is Form.SNAPSHOT:
        # The tail of rows is empty where a row ends; here a row is 4 tokens
        empty = bool(spec.coupled_to) and position % 4 == 0
        assert [handle.first_token for handle in handles] == ([] if empty else [position])
        return
    need = spec.window - 1 + spec.speculative_units * spec.page_tokens if spec.form is Form.PAGED_WINDOW else position
    first = max(position - need, 0) // spec.page_tokens * spec.page_tokens
    ends = [first, *(handle.first_token + handle.tokens for handle in handles)]
    assert [handle.first_token for handle in handles] == ends[:-1]
    assert position - spec.tokens_per_row < ends[-1] <= position


class Client:
    """One client of the crowd, which does what its random numbers say."""

    def __init__(self, cache, seed):
        self.cache = cache
        self.chance = random.Random(seed)
        self.layouts = {name: cache.register(what) for name, (what, _) in LAYOUTS.items()}
        self.done = Counter()

    def step(self):
        """Do one thing with one prompt of one layout."""
        name = self.chance.choice(list(LAYOUTS))
        grid, number = LAYOUTS[name][1], self.chance.randrange(30)
        end = grid * self.chance.randrange(1, 320 // grid)
        calls = {"store": 8, "look": 7, "offload": 2, "restore": 1, "evict": 3, "forget": 1}
        call = self.chance.choices(list(calls), list(calls.values()))[0]
        try:
            getattr(self, call)(name, self.layouts[name], number, end)
        except REFUSED:
            call = "refused"
        self.done[call] += 1

    def store(self, name, layout, number, end):
        """Commit a boundary, with all its pages or only those that it needs."""
        every = self.chance.random() < 0.2
        with self.cache.reserve(layout, prompt(number, end), boundary=end, all_pages=every) as unit:
            for slot in unit.objects:
                if not slot.present:
                    unit.put(slot, bytes_of(name, number, slot))

    def look(self, name, layout, number, end):
        """Look a prompt up that is longer or shorter, and compare whatever is handed out."""
        tokens = [*prompt(number, end + self.chance.randrange(40)), 7]
        with self.cache.acquire(layout, tokens, leave=self.chance.choice((0, 1, 5)), wait=5) as hit:
            for handle in hit:
                if bytes(handle.buffer) != bytes_of(name, number, handle):
                    raise WrongHitError(f"{handle!r} of prompt {number} of {name}")
            for spec in layout.layout.groups if hit else ():
                for shard in range(spec.shards):
                    assert_whole(spec, hit.tokens, [h for h in hit[spec.name] if h.shard == shard])
            self.done["hits"] += bool(hit)

    def offload(self, _, layout, number, end):
        """Write a boundary to disk, and perhaps drop its memory."""
        drop = self.chance.random() < 0.7
        self.cache.offload(layout, prompt(number, end), boundary=end, drop_memory=drop)

    def restore(self, _, layout, number, end):
        """Bring a boundary back, or begin to."""
        self.cache.restore(layout, prompt(number, end), boundary=end, wait=self.chance.choice((0, 5)))

    def evict(self, _, layout, number, end):
        """Drop copies of one kind, of a path, a block, a page or a boundary."""
        kind = self.chance.choice(layout.layout.groups).kind
        block, page = self.chance.choice((-2, -1, 0, 1, 2)), self.chance.choice((-1, -1, 0, 3))
        disk = self.chance.random() < 0.4
        self.cache.evict(layout, prompt(number, end), boundary=end, kind=kind, block=block, page=page, disk=disk)

    def forget(self, _, layout, number, end):
        """Forget a disk prefix."""
        self.cache.evict(layout, prompt(number, end), boundary=end, kind=Kind.DISK_PREFIX)


def live(daemon, seed, steps):
    """Run one client and return what it did."""
    with Cache.open(daemon.socket, staging_bytes=1 << 18, timeout=60) as cache:
        client = Client(cache, seed)
        for _ in range(steps):
            client.step()
        return client.done


@pytest.mark.timeout(600)
@pytest.mark.parametrize("steps", [60, pytest.param(4000, marks=pytest.mark.slow)])
def test_p32_l07_l30_everything_at_once_with_every_kind(steps):
    """Whatever others do with the same prompts, each hit is whole and has its own bytes, and every invariant holds."""
    with Daemon(memory="8MiB", settings=SETTINGS) as daemon:
        with ThreadPoolExecutor(4) as pool:
            done = sum(pool.map(lambda seed: live(daemon, seed, steps), range(4)), Counter())
        with Cache.open(daemon.socket) as cache:
            counters = cache.status().counters
        assert min(done[call] for call in ("store", "look", "evict", "hits", "refused")) > 0
        assert [counters[n] for n in ("leases", "units", "decision_faults")] == [0, 0, 0]
        daemon.stop()
        command = [sys.executable, "-m", "kvledgerd.cli", "check", "--json", "--data", str(daemon.data_dir)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        assert (found["ok"], found["violations"]) == (True, [])
