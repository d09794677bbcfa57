"""Many engines that look up at the same time: the rate at which the daemon answers, beside that of a bare server."""

import resource
import selectors
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Final

from kvledgerd.bench.figures import Goal, Measured, Sense
from kvledgerd.bench.layouts import five_groups
from kvledgerd.bench.lookup_cycle import release_of, request_for
from kvledgerd.bench.raw_client import RawClient, greeted
from kvledgerd.bench.rounds import in_turns
from kvledgerd.bench.scale import Scale
from kvledgerd.bench.served import Served, bare_server, served

__all__ = ["crowd"]

_BLOCKS: Final = 8
_BLOCK_TOKENS: Final = 128


class _Crowd:
    """Connections that each keep one look-up under way; one thread serves them all.

    Args:
        clients: The connections.
        request: What each asks.
        seconds: How long one measurement takes.
    """

    def __init__(self, clients: list[RawClient], request: bytes, seconds: float) -> None:
        self._request: Final = request
        self._seconds: Final = seconds
        self._clients: Final = clients
        self._owed: Final = dict.fromkeys(clients, 0)
        self._selector: Final = selectors.DefaultSelector()
        for client in clients:
            self._selector.register(client.socket, selectors.EVENT_READ, client)

    def rate(self) -> float:
        """Return the look-ups answered and released a second."""
        begin = time.perf_counter()
        end, answered, asked = begin + self._seconds, 0, len(self._clients)
        for client in self._clients:
            client.send(self._request)
        while asked:
            go_on = time.perf_counter() < end
            for key, _ in self._selector.select():
                if self._answered(key.data):
                    answered += 1
                    if go_on:
                        key.data.send(self._request)
                    else:
                        asked -= 1
        return answered / (time.perf_counter() - begin)

    def close(self) -> None:
        """Hang up everywhere."""
        self._selector.close()
        for client in self._clients:
            client.close()

    def _answered(self, client: RawClient) -> bool:
        """Read; on a verdict release it and return True. The answer to the release before it comes first."""
        client.read()
        while (body := client.cut()) is not None:
            if self._owed[client]:
                self._owed[client] = 0
                continue
            client.send(release_of(body))
            self._owed[client] = 1
            return True
        return False


def crowd(scale: Scale) -> Iterator[Measured]:
    """Look-ups of 8 blocks with release, by many clients at once."""
    _allow_descriptors(6 * scale.clients)
    boundary = _BLOCKS * _BLOCK_TOKENS
    with served(five_groups(_BLOCK_TOKENS), [boundary]) as there, ExitStack() as stack:
        connect = stack.enter_context(bare_server(there, boundary))
        request, clients = _engines(there, boundary, scale.clients)
        ours = _Crowd(clients, request, scale.crowd_seconds)
        stack.callback(ours.close)
        bare = _Crowd([connect() for _ in range(scale.clients)], request, scale.crowd_seconds)
        stack.callback(bare.close)
        pairs = in_turns(ours.rate, bare.rate, scale.rounds)
        peer = "bare asyncio server, frames of the same sizes"
        yield Measured(f"{scale.clients} clients", "acquires a second", peer, Goal(Sense.AT_LEAST, 0.4), pairs)


def _engines(there: Served, boundary: int, count: int) -> tuple[bytes, list[RawClient]]:
    """Return what each engine asks, and that many connections, each an engine of its own."""
    clients = [greeted(there.daemon.socket) for _ in range(count)]
    first, welcome = clients[0]
    request = request_for(first, welcome, there.layout.layout, there.prompt(boundary))
    return request, [client for client, _ in clients]


def _allow_descriptors(count: int) -> None:
    """Raise this process's limit of open files, which the daemon inherits, as far as it may be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = max(soft, count + 256)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
