"""Topologies over device pages: they outlive engine and daemon with what they pin, and the engine finds it again."""

import pytest

from kvledger.epochs import EpochState
from kvledger.wire.replies import PoolRegistered
from kvledger.wire.requests import DropPool, DropTopology, RegisterTopology, Release, Topologies, TopologyPart
from kvledger_storage import events
from kvledgerd.core.commands import TopologyOrphaned
from kvledgerd.core.config import PAGE
from kvledgerd.core.invariants import violations
from kvledgerd.snapshots.decode import decode_state
from kvledgerd.snapshots.encode import encode_state
from kvledgerd.snapshots.proof import proven
from support.devices import Pages, set_aside, wish
from support.epochs import become, told
from support.layouts import pick
from support.world import World

PROMPT = list(range(600))


class Scene:
    """A world in which an engine has captured a graph over its own device pages."""

    def __init__(self, *, stored: bool = False, end: int = 512) -> None:
        self.world = World()
        self.user = self.world.engine("one")
        self.number = self.user.register(pick("CM"))
        if stored:
            self.user.store(self.number, PROMPT, 512)
        self.pages = set_aside(self.user, self.number, 4)
        self.pages.put(PROMPT, end)
        self.hit = self.user.acquire(self.number, PROMPT)
        self.bytes = self.user.read(self.hit)
        self.topology = self.user.capture(self.hit)
        self.user.ok(Release(self.hit.lease))

    def reads_the_same(self) -> bool:
        """Whether the graph would read what it read when it was captured."""
        return self.user.read(self.hit) == self.bytes

    def come_back(self) -> None:
        """The same engine, connected anew."""
        self.user = self.world.engine("one")


def kept(scene) -> int:
    """Copies in the pool that topologies keep."""
    pool = scene.world.state.device_pools.get(scene.pages.number)
    return len(pool.held) if pool is not None else 0


def test_pages_under_a_graph_are_not_freed_on_request():
    """An engine that frees its own pages by mistake keeps those that its graph reads."""
    scene = Scene()
    freed = scene.pages.free(PROMPT, 512, "C", whole=True)
    assert (freed.dropped, freed.kept) == (0, 2)
    assert scene.reads_the_same()
    hit = scene.user.acquire(scene.number, PROMPT)
    assert scene.user.ok(RegisterTopology([TopologyPart(hit.lease, 0, [])])).topology.bytes == 0
    assert scene.user.ask(DropPool(scene.pages.number)).code == "service"


def test_pages_under_a_graph_outlive_connection_and_daemon():
    """The pool is kept with what the graph reads, and the engine registers it again under its number."""
    scene = Scene()
    for end in (scene.user.leave, scene.world.restart):
        end()
        scene.come_back()
        assert kept(scene) == 3
        found = scene.user.ok(wish(scene.user, scene.number, 4, memory=b"memory 1", pool=scene.pages.number))
        assert found == PoolRegistered(scene.pages.number, 3)
        assert scene.reads_the_same()
        assert scene.user.acquire(scene.number, PROMPT).usable_tokens == 512
        (report,) = scene.user.ok(Topologies()).topologies
        assert (report.topology, report.objects, report.lost) == (scene.topology, 3, 0)


def test_memory_of_which_a_graph_reads_a_part_is_no_new_pool():
    """As a new pool it would be handed out under the graph; the refusal names the pool that it is."""
    scene = Scene()
    scene.user.leave()
    scene.come_back()
    refused = scene.user.ask(wish(scene.user, scene.number, 4, memory=b"memory 1"))
    assert (refused.code, refused.field) == ("caller", "memory")
    assert f"device pool {scene.pages.number}" in refused.message
    shifted = wish(scene.user, scene.number, 4, memory=b"other", address=0x7F00_0000_1000)
    assert scene.user.ask(shifted).code == "caller"
    scene.user.ok(DropTopology(scene.topology))
    scene.user.ok(wish(scene.user, scene.number, 4, memory=b"memory 1"))


def test_the_end_of_the_processes_frees_the_pages():
    """When nobody can replay the graph any more what only it kept is gone, and the pool with it."""
    scene = Scene()
    scene.user.leave()
    assert kept(scene) == 3
    scene.world.do(TopologyOrphaned(scene.topology))
    assert scene.world.state.device_pools == {}
    assert scene.world.state.cells == {}


def test_a_boot_ends_topologies_that_have_nothing_in_memory():
    """Pages of a device do not survive the machine, and a process with the same pid and start time is another one."""
    scene = Scene()
    scene.world.restart(arenas=False, boot=b"c" * 16)
    assert scene.world.reasons("topology_ended.1") == ["the machine was booted"]
    assert scene.world.state.device_pools == {}


def test_a_graph_may_read_memory_and_pages():
    """Rows on the device and behind them in an arena are pinned where they are; without the arenas a part is kept."""
    scene = Scene(stored=True, end=256)
    assert {bool(device) for _, _, device in scene.world.state.topologies[scene.topology].objects} == {True, False}
    (report,) = scene.user.ok(Topologies()).topologies
    assert (report.objects, report.bytes) == (3, 2 * PAGE)
    scene.world.restart(arenas=False)
    scene.come_back()
    (report,) = scene.user.ok(Topologies()).topologies
    assert (report.objects, report.lost) == (3, 2)
    assert kept(scene) == 1


def test_holds_on_devices_stand_in_snapshots():
    """An image of the state keeps what graphs hold, with the pool that has no engine any more."""
    scene = Scene()
    for _ in range(2):
        image = decode_state(encode_state(scene.world.state), scene.world.config)
        assert image.digest() == scene.world.state.digest()
        assert violations(image) == []
        assert image.device_pools[scene.pages.number].held == scene.world.state.device_pools[scene.pages.number].held
        scene.user.leave()
        scene.come_back()


def test_another_engine_can_not_take_the_pages():
    """A pool waits for the engine whose graph reads it, and for nobody else."""
    scene = Scene()
    scene.user.leave()
    thief = scene.world.engine("two")
    assert thief.ask(wish(thief, scene.number, 4, memory=b"memory 1", pool=scene.pages.number)).code == "not_found"
    assert isinstance(Pages(thief, scene.pages.number).pool.engine, int)


@pytest.mark.parametrize("last", ["lease", "graph"])
def test_pages_of_retired_weights_stay_until_lease_and_graph_are_gone(last):
    """Whichever of the two ends last: until then the bytes are there and the memory is nobody else's."""
    scene = Scene()
    user, state = scene.user, scene.world.state
    hit = user.acquire(scene.number, PROMPT)
    become(user, EpochState.RETIRED)
    ends = [Release(hit.lease), DropTopology(scene.topology)]
    user.ok(ends.pop(last == "lease"))
    assert scene.reads_the_same()
    assert proven(state)[1] == state.digest()
    anew = wish(user, user.register(pick("CM", weights_digest="w2")), 4, memory=scene.pages.pool.added.memory)
    assert user.ask(anew).field == "memory"
    user.ok(ends.pop())
    assert not state.device_pools
    assert isinstance(user.ask(anew), PoolRegistered)


@pytest.mark.parametrize("stored", [False, True])
def test_a_graph_over_pages_of_retired_weights_is_broken(stored):
    """The event says so, as it does for memory, the reply counts each object once, and the bytes stay."""
    scene = Scene(stored=stored)
    objects = len(scene.pages.pool.copies)
    assert become(scene.user, EpochState.RETIRED).invalid == objects
    (broken,) = told(scene.world, events.TopologyBroken)
    assert (broken.topology, len(broken.objects)) == (scene.topology, kept(scene))
    assert {device for _, _, device in broken.objects} == {scene.pages.number}
    assert "retired" in broken.reason
    assert scene.reads_the_same()
    assert proven(scene.world.state)[1] == scene.world.state.digest()
    become(scene.user, EpochState.ACTIVE)
    become(scene.user, EpochState.RETIRED)
    assert len(told(scene.world, events.TopologyBroken)) == 1


def test_pages_under_a_graph_are_taken_back_while_their_weights_drain():
    """After a restart the engine has what its graph reads, and look-ups hit it; new pages are refused as before."""
    scene = Scene()
    become(scene.user, EpochState.DRAINING)
    scene.world.restart()
    scene.come_back()
    found = scene.user.ok(wish(scene.user, scene.number, 4, memory=b"memory 1", pool=scene.pages.number))
    assert found == PoolRegistered(scene.pages.number, 3)
    assert scene.user.acquire(scene.number, PROMPT).usable_tokens == 512
    assert scene.user.ask(wish(scene.user, scene.number, 4, memory=b"another")).code == "epoch"
    assert Pages(scene.user, scene.pages.number).ask(list(range(9000, 9600)), 512).code == "epoch"
