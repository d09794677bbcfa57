"""Names that are somebody else's or no names at all: one typed error or a plain miss, which tells nothing of others."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from kvledger import Cache, Kind
from kvledger.errors import LeaseLost
from kvledger.testing import Daemon
from kvledger.wire import replies, requests
from support.raw_engine import Engine
from support.shell import Client
from support.tiny import prompt, store, tiny_layout
from support.users import as_user, only_root


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


OPERATOR = '{tenant = "ops", right = "operator", socket = "kvledger.socket"}'


@pytest.fixture(scope="module")
def tenants():
    """Give the sockets of two tenants of one daemon."""
    with tempfile.TemporaryDirectory(prefix="kvl-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        rows = [f'{{name = "{name}", path = "{folder}/{name}", mode = "0666"}}' for name in ("red", "blue")]
        rules = [f'{{tenant = "{name}", right = "operator", socket = "{name}"}}' for name in ("red", "blue")]
        settings = {
            "arena_bytes": "1MiB",
            "sockets": f"[{', '.join(rows)}]",
            "access": f"[{', '.join((*rules, OPERATOR))}]",
        }
        with Daemon(memory="16MiB", directory=Path(folder) / "d", settings=settings):
            yield SimpleNamespace(**{name: SimpleNamespace(socket=f"{folder}/{name}") for name in ("red", "blue")})


async def belongings(client):
    """Return the numbers of all that an engine holds: layout, lease, reservation, pool, asked pages, topology."""
    await client.store()
    found = await client.ask(client.lookup())
    pool = await client.ask(requests.RegisterPool(client.layout, "cuda:0", b"memory", 1 << 20, 1 << 16, [4, 2]))
    asked = await client.ask(requests.AskPages(pool.pool, requests.Boundary(os.urandom(32)), boundary=False))
    part = requests.TopologyPart(found.lease, 0, [])
    topology = await client.ask(requests.RegisterTopology([part]))
    return {
        "layout": client.layout,
        "lease": found.lease,
        "unit": (await client.ask(requests.Reserve(client.layout, requests.Boundary(os.urandom(96))))).unit,
        "pool": pool.pool,
        "asked": asked.unit,
        "topology": topology.topology.topology,
        "arena": found.rows[0].arena,
    }


def requests_about(named, at):
    """Return a request of each command that names something by its number."""
    kind = Kind.COMPRESSED_KV
    part = requests.TopologyPart(named["lease"], 0, [])
    return [
        requests.Acquire(named["layout"], 49, at.hashes),
        requests.Reserve(named["layout"], at),
        requests.Describe(named["layout"], at),
        requests.Evict(kind, named["layout"], at),
        requests.Offload(named["layout"], at),
        requests.Restore(named["layout"], at, wait_ms=0),
        requests.RegisterPool(named["layout"], "cuda:0", b"other", 1 << 21, 1 << 16, [4, 2]),
        requests.Settle(named["lease"], 0),
        requests.Renew(named["lease"]),
        requests.Release(named["lease"]),
        requests.Fingerprints(named["lease"]),
        requests.RegisterTopology([part]),
        requests.Put(named["unit"], [requests.PutRange(kind, 0, 0, 0, 16)]),
        requests.Join(named["unit"], 0),
        requests.Commit(named["unit"]),
        requests.Abort(named["unit"]),
        requests.DropPool(named["pool"]),
        requests.AskPages(named["pool"], at),
        requests.FreePages(kind, named["pool"], at),
        requests.ReportFilled(named["asked"], bytes(8), 16),
        requests.GivePagesUp(named["asked"]),
        requests.OpenRecapture(named["topology"]),
        requests.CloseRecapture(named["topology"]),
        requests.ChangeTopology(named["topology"], [], []),
        requests.DropTopology(named["topology"]),
        requests.Arenas([named["arena"]]),
    ]


@pytest.mark.hostile("ID01")
@pytest.mark.slow
@pytest.mark.asyncio
async def test_numbers_of_another_tenant_are_numbers_of_nobody(tenants):
    """Whatever a tenant names of another's, it is answered as a number that was never given; the other keeps it all."""
    with await Engine.enter(tenants.red, tiny_layout()) as owner, await Client.connect(tenants.blue.socket) as stranger:
        await stranger.hello()
        named = await belongings(owner)
        never = {name: number + 1_000_000 for name, number in named.items()}
        pairs = zip(requests_about(named, owner.end), requests_about(never, owner.end), strict=True)
        for foreign, unknown in pairs:
            told, untold = await stranger.ask(foreign), await stranger.ask(unknown)
            assert isinstance(told, replies.Failed), foreign
            words = [without_numbers(reply, numbers) for reply, numbers in ((told, named), (untold, never))]
            assert words[0] == words[1], foreign
        assert await owner.ask(requests.Renew(named["lease"])) == replies.Done()
        assert await owner.ask(requests.Abort(named["unit"])) == replies.Done()
        assert await owner.ask(requests.GivePagesUp(named["asked"])) == replies.Done()
        assert await owner.ask(requests.DropTopology(named["topology"])) == replies.Done()


def without_numbers(reply, numbers):
    """Return a refusal whose message names no number any more."""
    message = reply.message
    for number in sorted(map(str, numbers.values()), key=len, reverse=True):
        message = message.replace(number, "#")
    return replace(reply, message=message)


@pytest.mark.hostile("ID02")
@pytest.mark.slow
@only_root
@pytest.mark.asyncio
async def test_an_engine_id_is_its_user_s_and_its_tenant_s(tenants):
    """Another user of the tenant is refused an id that is in use; in another tenant the same id is another engine."""
    key = os.urandom(16)
    with await Engine.enter(tenants.red, tiny_layout(), key) as owner:
        unit = await owner.reserve()
        with as_user(4321):
            thief = await Client.connect(tenants.red.socket)
        with thief:
            refused = await thief.hello(key)
            assert (refused.code, refused.field) == ("caller", "engine")
            assert await thief.is_closed()
        with await Client.connect(tenants.blue.socket) as other:
            assert isinstance(await other.hello(key, leader=True), replies.Welcome)
            assert (await other.ask(requests.Abort(unit))).code == "generation"
        assert await owner.ask(requests.Abort(unit)) == replies.Done()
