"""kvledger as it is measured beside peers: through its client library, under its keeper, bytes copied out."""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Final

from kvledger import Cache
from kvledger.testing import Daemon
from kvledgerd.bench.committer import Committer
from kvledgerd.bench.contents import require
from kvledgerd.bench.layouts import MIB, five_groups, megabyte_blocks
from kvledgerd.bench.peers.system import UNITS, System, Work
from kvledgerd.bench.served import Served, served

__all__ = ["ours"]

_BLOCK_TOKENS: Final = 128


class _Ours:
    """A cache with one connection that stores and one that reads, and a daemon whose prompt is looked up.

    Args:
        work: What is stored and looked up.
        storing: The connection that stores.
        reading: The one that reads.
        looked_up: The other daemon.
    """

    def __init__(self, work: Work, storing: Cache, reading: Cache, looked_up: Served) -> None:
        self._work: Final = work
        self._committer: Final = Committer(storing, storing.register(megabyte_blocks()), work.unit)
        self._reading: Final = reading
        self._layout: Final = reading.register(megabyte_blocks())
        self._copy: Final = memoryview(bytearray(len(work.unit)))
        self._looked_up: Final = looked_up
        self._prompt: Final = looked_up.prompt(work.blocks * _BLOCK_TOKENS)

    def put(self) -> None:
        self._committer.commit()

    def get(self) -> memoryview:
        at = 0
        with self._reading.acquire(self._layout, self._committer.prompt) as hit:
            # Of one block the rows come first and then their keys, as they were stored.
            for handle in sorted(hit, key=lambda handle: handle.first_token):
                self._copy[at : at + handle.length] = handle.buffer
                at += handle.length
        return self._copy[:at]

    def exists(self) -> int:
        with self._looked_up.cache.acquire(self._looked_up.layout, self._prompt) as hit:
            return hit.tokens // _BLOCK_TOKENS

    def restart(self) -> float:
        # A daemon of its own each time: the keeper makes one wait that dies again and again.
        memory = f"{2 * UNITS * len(self._work.unit) // MIB + 32}MiB"
        with Daemon(memory=memory, settings={"arena_bytes": "8MiB"}) as daemon:
            with Cache.open(daemon.socket) as cache:
                committer = Committer(cache, cache.register(megabyte_blocks()), self._work.unit)
                for _ in range(UNITS):
                    committer.commit()
            begin = perf_counter()
            daemon.kill()
            with Cache.open(daemon.socket, timeout=60) as cache:
                layout = cache.register(megabyte_blocks())
                block = layout.layout.block_tokens
                with cache.acquire(layout, [*committer.prompt[:block], 0]) as hit:
                    first = bytes(next(iter(hit)).buffer)
                seconds = perf_counter() - begin
        require(first == self._work.unit[: len(first)], "an object that was stored before SIGKILL")
        return seconds


@contextmanager
def ours(work: Work) -> Iterator[System]:
    """Start the cache with `UNITS` units in its memory, which is full."""
    boundary = work.blocks * _BLOCK_TOKENS
    daemon = Daemon(memory=f"{UNITS * len(work.unit) // MIB}MiB", settings={"arena_bytes": "8MiB"})
    with (
        served(five_groups(_BLOCK_TOKENS), [boundary]) as looked_up,
        daemon,
        Cache.open(daemon.socket) as storing,
        Cache.open(daemon.socket) as reading,
    ):
        system = _Ours(work, storing, reading, looked_up)
        for _ in range(2 * UNITS):
            system.put()
        yield system
