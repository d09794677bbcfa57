"""Rows about storing: one unit of 32 MiB, and units without pause, beside the least that could be done to the bytes.

The floor is two copies (engine to ring, ring to slot) and one fingerprint, in one thread, over memory that is warm. The
cache works in its steady state: its memory is full, so every unit evicts one.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import xxhash

from kvledger import Cache
from kvledger.testing import Daemon
from kvledgerd.bench.committer import Committer
from kvledgerd.bench.figures import Goal, Measured, Sense
from kvledgerd.bench.layouts import MIB, megabyte_blocks
from kvledgerd.bench.rounds import in_turns, speeds, timed
from kvledgerd.bench.scale import Scale

__all__ = ["commit", "commits"]

_GIB: Final = 1 << 30
_PEER: Final = "two memcpy passes and one XXH3-128 pass, warm"
_UNITS_IN_MEMORY: Final = 6


def _floor(source: memoryview) -> Callable[[], None]:
    ring, slot = memoryview(bytearray(len(source))), memoryview(bytearray(len(source)))

    def run() -> None:
        ring[:] = source
        slot[:] = ring
        xxhash.xxh3_128_digest(slot)

    return run


@contextmanager
def _full_cache(size: int) -> Iterator[Committer]:
    source = memoryview(bytes(range(256)) * (size // 256))
    memory = f"{max(_UNITS_IN_MEMORY * size // MIB, 8)}MiB"
    daemon = Daemon(memory=memory, keeper=False, settings={"arena_bytes": "8MiB"})
    with daemon, Cache.open(daemon.socket) as cache:
        committer = Committer(cache, cache.register(megabyte_blocks()), source)
        for _ in range(2 * _UNITS_IN_MEMORY):
            committer.commit()
        committer.check()
        yield committer
        committer.check()


def commit(scale: Scale) -> Iterator[Measured]:
    """One unit: how long until it is published, every byte fingerprinted where it lies."""
    with _full_cache(scale.commit_bytes) as committer:
        floor = _floor(committer.source)
        pairs = in_turns(lambda: timed(committer.commit), lambda: timed(floor), scale.rounds)
        name = f"commit {scale.commit_bytes // MIB} MiB"
        yield Measured(name, "GiB/s", _PEER, Goal(Sense.AT_LEAST, 0.7), speeds(pairs, scale.commit_bytes / _GIB))


def commits(scale: Scale) -> Iterator[Measured]:
    """One unit after the other without pause."""
    with _full_cache(scale.commit_bytes) as committer:

        def rate(work: Callable[[], None]) -> float:
            begin, count = time.perf_counter(), 0
            while time.perf_counter() - begin < scale.commit_seconds or not count:
                work()
                count += 1
            return count * scale.commit_bytes / _GIB / (time.perf_counter() - begin)

        floor = _floor(committer.source)
        pairs = in_turns(lambda: rate(committer.commit), lambda: rate(floor), scale.rounds)
        name = f"commits of {scale.commit_bytes // MIB} MiB without pause"
        yield Measured(name, "GiB/s", _PEER, Goal(Sense.AT_LEAST, 0.6), pairs)
