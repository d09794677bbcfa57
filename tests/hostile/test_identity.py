"""Names that are somebody else's or no names at all: one typed error or a plain miss, which tells nothing of others."""

from __future__ import annotations

import os

import pytest

from kvledger import Cache
from kvledger.errors import LeaseLost
from kvledger.testing import Daemon
from kvledger.wire import replies, requests
from support.shell import Client
from support.tiny import prompt, store, tiny_layout


@pytest.mark.hostile("ID08")
@pytest.mark.asyncio
@pytest.mark.parametrize("length", [1, 31, 33, 95, 32 * 3 + 1])
async def test_arrays_of_hashes_that_are_cut_are_refused_by_field(daemon, neighbour, length):
    """Bytes that are no whole number of hashes are refused by every command that takes hashes, and change nothing."""
    at = requests.Boundary(os.urandom(length))
    with await Client.connect(daemon.socket) as client:
        await client.hello()
        number = (await client.ask(requests.Register(neighbour.layout.layout))).layout
        asked = [
            requests.Acquire(number, 1000, at.hashes),
            requests.Reserve(number, at),
            requests.Evict(neighbour.layout.layout.groups[0].kind, number, at),
            requests.Offload(number, at),
            requests.Restore(number, at, wait_ms=0),
            requests.Describe(number, at),
        ]
        for request in asked:
            refused = await client.ask(request)
            assert (type(refused), refused.code) == (replies.Failed, "caller"), request
            assert refused.field.endswith("hashes"), request


@pytest.mark.hostile("ID07")
@pytest.mark.asyncio
async def test_hashes_of_another_algorithm_are_a_plain_miss(daemon, neighbour):
    """Hashes that no chain of this tenant made find nothing, whatever their bytes are, and are answered alike."""
    with await Client.connect(daemon.socket) as client:
        await client.hello()
        number = (await client.ask(requests.Register(neighbour.layout.layout))).layout
        found = [
            await client.ask(requests.Acquire(number, 100, hashes))
            for hashes in (bytes(96), b"\xff" * 96, os.urandom(96), b"sha256:" + bytes(89))
        ]
        assert {(reply.lease, reply.usable_tokens, reply.hash_tokens) for reply in found} == {(0, 0, 0)}


@pytest.mark.hostile("OR05")
@pytest.mark.slow
def test_what_was_handed_out_under_another_log_is_not_held_here(daemon, neighbour):
    """A hit and a lease of one daemon, shown to another by the same engine, are refused, and neither daemon minds."""
    key = os.urandom(16)
    with (
        Daemon(memory="64MiB", settings={"arena_bytes": "1MiB"}) as elsewhere,
        Cache.open(elsewhere.socket, engine=key, staging_bytes=1 << 17) as there,
        Cache.open(daemon.socket, engine=key) as here,
    ):
        layout = there.register(tiny_layout())
        store(there, layout, 1)
        with there.acquire(layout, [*prompt(1), 7]) as hit:
            assert hit
            with pytest.raises(LeaseLost) as refused:
                here.attach(hit.export())
            assert refused.value.field == "incarnation"
            hit.check()
