"""A daemon of the benchmark's own with a prompt in it, and a bare server beside it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from kvledger import Cache, Layout, RegisteredLayout
from kvledger.testing import Daemon
from kvledgerd.bench.bare_server import BareServer
from kvledgerd.bench.contents import check_hit, put_all
from kvledgerd.bench.lookup_cycle import canned_from, request_for
from kvledgerd.bench.raw_client import RawClient, greeted

__all__ = ["Served", "bare_server", "look_up", "served"]

_AFTER = (1, 2, 3)
"""Tokens behind a boundary, since the last token of a prompt is always left to compute."""


class Served(NamedTuple):
    """A daemon that holds one prompt.

    Attributes:
        daemon: The daemon.
        cache: A connection to it.
        layout: The layout of the prompt.
        tokens: The prompt up to its deepest boundary.
    """

    daemon: Daemon
    cache: Cache
    layout: RegisteredLayout
    tokens: Sequence[int]

    def prompt(self, boundary: int) -> list[int]:
        """Return a prompt that can be resumed at a boundary."""
        return [*self.tokens[:boundary], *_AFTER]


@contextmanager
def served(layout: Layout, boundaries: Sequence[int], memory: str = "256MiB") -> Iterator[Served]:
    """Start a daemon and commit one prompt with boundaries (tokens, ascending); every byte is read back."""
    with Daemon(memory=memory, keeper=False) as daemon, Cache.open(daemon.socket) as cache:
        known = cache.register(layout)
        tokens = range(boundaries[-1])
        for boundary in reversed(boundaries):
            with cache.reserve(known, tokens, boundary=boundary) as unit:
                put_all(unit)
        found = Served(daemon, cache, known, tokens)
        for boundary in boundaries:
            check_hit(cache, known, found.prompt(boundary), boundary)
        yield found


@contextmanager
def look_up(there: Served, boundary: int) -> Iterator[tuple[RawClient, bytes]]:
    """Yield a connection, and the frame with which it looks up the prompt that resumes at a boundary."""
    client, welcome = greeted(there.daemon.socket)
    try:
        yield client, request_for(client, welcome, there.layout.layout, there.prompt(boundary))
    finally:
        client.close()


@contextmanager
def bare_server(there: Served, boundary: int) -> Iterator[Callable[[], RawClient]]:
    """Start a bare server that gives the daemon's answers to a look-up; yields what connects to it."""
    with look_up(there, boundary) as (client, request):
        canned = canned_from(client, request, boundary)
    with BareServer(there.daemon.directory / "bare.sock", canned) as bare:
        yield lambda: RawClient(bare.path)
