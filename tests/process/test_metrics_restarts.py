"""Metrics reconcile with the log through kills and stops, under a load that fills memory and disk and damages files."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections import Counter

import pytest

from kvledger import Cache, Kind
from kvledger.epochs import EpochState
from kvledger.errors import CommitRefusedError, KVLedgerError, NotFoundError
from kvledger.testing import Daemon
from kvledgerd.metrics.table import METRICS, Basis
from support.log_sums import SUMS, disagreeing, settled
from support.tiny import check, prompt, store, tiny_layout

PROMPTS = 40
KINDS = (Kind.COMPRESSED_KV, Kind.UNCOMPRESSED_TAIL)
SETTINGS = {
    "disk_write": "on_evict",
    "disk_bytes": "4MiB",
    "disk_segment_bytes": "64KiB",
    "arena_bytes": "1MiB",
    "restart_seconds": 0,
    "degrade_failures": 1000,
    "drill_seconds": 1,
}
HOLDER = """
import sys
from kvledger import Cache
from support.tiny import prompt, store, tiny_layout
cache = Cache.open(sys.argv[1])
layout = cache.register(tiny_layout())
store(cache, layout, 999)
hit = cache.acquire(layout, [*prompt(999), 7])
unit = cache.reserve(layout, prompt(998), boundary=50)
print(hit.tokens, flush=True)
sys.stdin.read()
"""


class Load:
    """What engines and operators do, in an order drawn by chance; nothing of it has to succeed."""

    def __init__(self, daemon: Daemon, cache: Cache, draw: random.Random):
        self.daemon, self.cache, self.draw = daemon, cache, draw
        self.layout = cache.register(tiny_layout())
        steps = (self.store, self.store, self.ask, self.ask, self.ask, self.offload, self.offload, self.give_up)
        self.steps = (*steps, self.warm, self.refuse, self.drop_unused, self.retire)

    def run(self, count: int) -> None:
        """Take so many steps, and one of each that takes a while."""
        slow = (self.die, self.clean, self.damage, self.scrub, self.fail_to_write)
        for step in (*self.draw.choices(self.steps, k=count), *slow):
            with contextlib.suppress(KVLedgerError):
                step()

    def prompt(self) -> tuple[int, int]:
        """Draw a prompt, and return its number and tokens."""
        number = self.draw.randrange(PROMPTS)
        return number, (48, 50, 400, 800)[number % 4]

    def store(self) -> None:
        """Store a prompt."""
        number, tokens = self.prompt()
        store(self.cache, self.layout, number, tokens)

    def ask(self) -> None:
        """Look a prompt up, stored or not, and restore it if need be."""
        number, tokens = self.prompt()
        check(self.cache, self.layout, number, tokens)

    def offload(self) -> None:
        """Leave a prompt on disk alone."""
        number, tokens = self.prompt()
        store(self.cache, self.layout, number, tokens)
        self.cache.offload(self.layout, prompt(number, tokens), boundary=tokens, drop_memory=True)

    def give_up(self) -> None:
        """Drop some prompts, on disk too."""
        for _ in range(4):
            self.drop(*self.prompt())

    def drop(self, number: int, tokens: int) -> None:
        """Drop all that there is of a prompt."""
        for kind in (Kind.DISK_PREFIX, *KINDS):
            with contextlib.suppress(NotFoundError):
                self.cache.evict(self.layout, prompt(number, tokens), boundary=tokens, kind=kind, disk=True)

    def warm(self) -> None:
        """Bring back what fits."""
        self.cache.warm()

    def refuse(self) -> None:
        """Ask for a boundary behind a hole."""
        words = [self.draw.randrange(1 << 30), *range(49)]
        with contextlib.suppress(CommitRefusedError):
            self.cache.reserve(self.layout, words, boundary=50, start=16).abort()

    def drop_unused(self) -> None:
        """Write blocks and drop them before a boundary stands on one."""
        words = [self.draw.randrange(1 << 30), *range(47)]
        with self.cache.reserve(self.layout, words, boundary=None) as unit:
            for slot in unit.objects:
                unit.put(slot, bytes(slot.length))
        self.cache.evict(self.layout, words, boundary=48, kind=Kind.COMPRESSED_KV)

    def retire(self) -> None:
        """Store under weights of their own, and retire them."""
        weights = f"w{self.draw.randrange(1 << 30)}"
        store(self.cache, self.cache.register(tiny_layout(weights=weights)), 1)
        self.cache.set_epoch("tiny", weights, EpochState.RETIRED)

    def scrub(self) -> None:
        """Have everything on disk read."""
        passes = self.cache.status().counters["scrub_passes"]
        self.cache.set_scrub(paused=False, now=True)
        self.until("scrub_passes", passes + 1)

    def clean(self) -> None:
        """Leave files of which a quarter is alive, and have them cleaned."""
        for number in range(800, 824):
            store(self.cache, self.layout, number)
            self.cache.offload(self.layout, prompt(number), boundary=50)
        for number in range(800, 824):
            if number % 4:
                self.drop(number, 50)
        self.until("cleaned_records", 1)

    def until(self, counter: str, number: int) -> None:
        """Wait until a counter has grown to a number."""
        end = time.monotonic() + 20
        while self.cache.status().counters[counter] < number:
            assert time.monotonic() < end, counter
            time.sleep(0.02)

    def die(self) -> None:
        """Let an engine die with a lease and a reservation."""
        command = [sys.executable, "-c", HOLDER, str(self.daemon.socket)]
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as holder:
            assert holder.stdout.readline()
            holder.kill()

    def damage(self) -> None:
        """Damage the newest record, and ask for it with all others by a warm-up and by hand."""
        for number in (900, 901):
            store(self.cache, self.layout, number)
            self.cache.offload(self.layout, prompt(number), boundary=50, drop_memory=True)
        settled(self.cache)
        for file in (self.daemon.data_dir / "data").glob("*.seg"):
            os.truncate(file, 4096)
        with self.cache.acquire(self.layout, [*prompt(900), 7]):
            pass
        self.warm()
        settled(self.cache)

    def fail_to_write(self) -> None:
        """Take the folder of records away while one is to be written, which takes a new file."""
        folder = self.daemon.data_dir / "data"
        words = prompt(910, 400)
        store(self.cache, self.layout, 910, 400)
        folder.rename(folder.with_name("away"))
        try:
            with pytest.raises(KVLedgerError):
                self.cache.offload(self.layout, words, boundary=400)
        finally:
            folder.with_name("away").rename(folder)


@pytest.mark.slow
def test_metrics_reconcile_through_kills_and_stops():
    """In each of five daemons over one log all that it holds is told exactly; only sums since a start begin anew."""
    draw, ever = random.Random(7), Counter[str]()
    lasting = {metric.counter for metric in METRICS if metric.type == "counter" and metric.basis is Basis.LOG}
    before = dict.fromkeys(lasting, 0)
    with Daemon(memory="8MiB", settings=SETTINGS) as daemon:
        for incarnation in range(5):
            with Cache.open(daemon.socket, name="load") as cache:
                Load(daemon, cache, draw).run(150)
                report = settled(cache)
            assert disagreeing(report, daemon.data_dir) == {}, incarnation
            ever.update(name.partition(".")[0] for name, number in report.counters.items() if number)
            assert all(report.counters[name] >= before[name] for name in lasting)
            before = {name: report.counters[name] for name in lasting}
            if incarnation % 2:
                assert daemon.stop() == 0
                daemon.start()
            else:
                daemon.kill()
            daemon.wait_ready()
    assert SUMS.keys() | lasting <= ever.keys(), "what the load leaves at 0 is not compared with anything"
