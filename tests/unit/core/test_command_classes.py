"""The table of commands promises for each reply what the core lets it wait for."""

from kvledger.epochs import EpochState
from kvledger.kinds import Kind
from kvledger.wire import requests
from kvledger.wire.commands import COMMANDS
from kvledger.wire.quotas import Quotas, SetQuota
from kvledger.wire.tenants import Tenants
from kvledgerd.core.decision import Decision
from support.devices import Pages, wish
from support.layouts import pick
from support.world import User, World

PROMPT = list(range(600))

# These are about the connection itself, so the server answers them.
OF_THE_SERVER = {requests.Hello, requests.Ring, requests.Arenas}


class Noting(World):
    """A world that keeps the last decision that answered somebody."""

    answered: Decision

    def note(self, decision: Decision) -> None:
        """Keep it."""
        if decision.reply is not None:
            self.answered = decision


def everything_once(user: User):
    """Ask each request of the core once, granted; yield each after its answer."""

    def ok(request):
        user.ok(request)
        return request

    yield ok(requests.Register(pick("CM")))
    number = user.register(pick("CM"))
    at = user.boundary(number, PROMPT, 512)
    yield ok(requests.Reserve(number, at))
    yield ok(requests.Abort(max(user.world.state.units)))
    reserved = user.reserve(number, PROMPT, 512)
    yield ok(requests.Join(reserved.unit, 0))
    user.fill(reserved)
    yield requests.Put
    yield ok(requests.Commit(reserved.unit))
    yield ok(requests.Acquire(number, 600, user.boundary(number, PROMPT).hashes))
    lease = max(user.world.state.leases)
    for kind in (requests.Renew, requests.Fingerprints):
        yield ok(kind(lease))
    yield ok(requests.Settle(lease, 0))
    yield ok(requests.RegisterTopology([requests.TopologyPart(lease, 0, [])]))
    topology = max(user.world.state.topologies)
    yield ok(requests.OpenRecapture(topology))
    yield ok(requests.ChangeTopology(topology, [requests.TopologyPart(lease, 0, [0])], [], whole=True))
    for kind in (requests.CloseRecapture, requests.DropTopology):
        yield ok(kind(topology))
    yield ok(requests.Topologies())
    yield ok(requests.Release(lease))
    yield ok(requests.Describe(number, at))
    yield ok(SetQuota(Kind.COMPRESSED_KV, 1 << 20))
    yield ok(Quotas())
    yield ok(Tenants())
    yield ok(requests.SetScrub(paused=True))
    yield ok(requests.Status())
    yield ok(requests.Offload(number, at, drop_memory=True))
    yield ok(requests.Restore(number, at))
    yield ok(requests.Warm())
    yield ok(requests.Evict(Kind.COMPRESSED_KV, number, at, "C"))
    yield ok(requests.EvictMany(Kind.UNCOMPRESSED_TAIL))
    yield ok(wish(user, number, 64))
    pool = max(user.world.state.device_pools)
    yield ok(requests.AskPages(pool, at))
    yield ok(requests.GivePagesUp(max(user.world.state.asked)))
    Pages(user, pool).put(PROMPT, 512)
    yield requests.ReportFilled
    yield ok(requests.FreePages(Kind.COMPRESSED_KV, pool, at, "C", whole=True))
    yield ok(requests.DropPool(pool))
    yield ok(requests.Epochs())
    yield ok(requests.SetEpoch("test", "w1", EpochState.RETIRED))


def test_the_table_names_the_class_that_the_core_waits_for():
    """Each request of the core is acknowledged with the class that the table, and so the documentation, promises."""
    world = Noting()
    found = {}
    for asked in everything_once(world.engine()):
        kind = asked if isinstance(asked, type) else type(asked)
        found[kind] = world.answered.ack.name.lower()

    assert found == {c.request: c.acknowledgement for c in COMMANDS if c.request not in OF_THE_SERVER}
