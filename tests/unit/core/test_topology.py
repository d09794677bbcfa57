"""Topologies: what a captured graph reads keeps its address until its owner or the end of its processes lets go."""

import pytest

from kvledger.epochs import EpochState
from kvledger.kinds import Kind
from kvledger.wire.epoch_requests import SetEpoch
from kvledger.wire.replies import Done, Failed, NotResident, TopologyList, TopologyRegistered, TopologyReport
from kvledger.wire.requests import (
    ChangeTopology,
    CloseRecapture,
    Commit,
    DropTopology,
    Evict,
    Offload,
    OpenRecapture,
    RegisterTopology,
    Release,
    Topologies,
    TopologyPart,
)
from kvledger_storage import events
from kvledgerd.core.commands import EngineSilent, TopologyOrphaned
from kvledgerd.core.config import PAGE, CoreConfig
from kvledgerd.core.invariants import violations
from kvledgerd.core.topology.decide_topology import TOPOLOGY_OBJECTS_MAX
from kvledgerd.snapshots.decode import decode_state
from kvledgerd.snapshots.encode import encode_state
from support.layouts import pick
from support.world import User, World

PROMPT = list(range(600))
OTHER = list(range(5000, 5600))


class Scene:
    """A world with one stored prompt, a lease on it, and a topology over that."""

    def __init__(self, letters: str = "CM", config: CoreConfig | None = None) -> None:
        self.world = World(config)
        self.user = self.world.engine("one")
        self.number = self.user.register(pick(letters))
        self.user.store(self.number, PROMPT, 512)
        self.hit = self.user.acquire(self.number, PROMPT)
        self.bytes = self.user.read(self.hit)
        self.topology = self.user.capture(self.hit)

    def is_as_captured(self) -> bool:
        """Whether the graph would read what it read when it was captured."""
        return self.user.read(self.hit) == self.bytes

    def release(self) -> None:
        """Give the lease back; from now on the topology is all that holds."""
        self.user.ok(Release(self.hit.lease))

    def evict_all(self) -> int:
        """Ask for the eviction of everything and return how many copies were kept."""
        at = self.user.boundary(self.number, PROMPT, 512)
        kinds = (Kind.COMPRESSED_KV, Kind.UNCOMPRESSED_TAIL)
        return sum(self.user.ok(Evict(kind, self.number, at)).kept for kind in kinds)

    def damage(self, place: tuple[int, int]) -> None:
        """Change bytes in memory behind the daemon's back."""
        self.world.memory[place] = b"?"

    def again(self, name: str = "one") -> User:
        """The same engine, connected anew."""
        return self.world.engine(name)

    def report(self) -> TopologyReport:
        """What the daemon says of the topology."""
        (report,) = self.user.ok(Topologies()).topologies
        return report


def part(hit, *groups: int) -> TopologyPart:
    """All of a lease's first offer, or some of its groups."""
    return TopologyPart(hit.lease, 0, list(groups))


def test_what_a_topology_names_is_not_evicted_after_the_lease():
    """An eviction on request keeps all that the graph reads, though no lease is left."""
    scene = Scene()
    scene.release()
    assert scene.evict_all() == scene.report().objects > 0
    assert scene.is_as_captured()


def test_an_offload_that_drops_memory_keeps_what_a_topology_pins():
    """The boundary is on disk afterwards, and in memory at the same address as well."""
    scene = Scene()
    scene.release()
    scene.user.ok(Offload(scene.number, scene.user.boundary(scene.number, PROMPT, 512), drop_memory=True))
    assert scene.is_as_captured()
    assert len(scene.world.disk) > 0


def test_pressure_for_room_evicts_around_a_topology_and_then_says_so():
    """Other prompts are evicted to make room; when only pinned memory is left the refusal counts it."""
    scene = Scene(
        config=CoreConfig(memory_bytes=1 << 20, arena_bytes=1 << 16, kind_bytes={Kind.COMPRESSED_KV: 2 * PAGE})
    )
    scene.release()
    refused = scene.user.ask_reserve(scene.number, OTHER, 512)
    assert isinstance(refused, Failed)
    assert refused.code == "capacity"
    assert f"{2 * PAGE} of these by topologies" in refused.message
    assert "drop topologies" in refused.remedy
    scene.user.ok(DropTopology(scene.topology))
    scene.user.store(scene.number, OTHER, 512)


def test_a_cap_on_objects_counts_what_topologies_pin():
    """A refusal for the number of objects names those that topologies pin."""
    scene = Scene(config=CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, max_objects=3))
    scene.release()
    refused = scene.user.ask_reserve(scene.number, OTHER, 512)
    assert isinstance(refused, Failed)
    assert "topologies pin 3 objects" in refused.message


def test_topologies_pin_no_more_than_their_cap():
    """A topology that would take more memory from everybody else than the cap allows is refused, and pins nothing."""
    config = CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, topology_bytes=4 * PAGE)
    scene = Scene(config=config)
    scene.user.store(scene.number, OTHER, 512)
    hit = scene.user.acquire(scene.number, OTHER)
    refused = scene.user.ask(RegisterTopology([part(hit)]))
    assert isinstance(refused, Failed)
    assert (refused.code, refused.field) == ("capacity", "topology_bytes")
    assert len(scene.world.state.topologies) == 1
    assert isinstance(scene.user.ask(RegisterTopology([part(scene.hit)])), TopologyRegistered)  # nothing more is pinned


def test_two_topologies_over_the_same_objects_each_hold_them():
    """Dropping one of two leaves everything where it is for the other."""
    scene = Scene()
    second = scene.user.capture(scene.hit)
    scene.release()
    scene.user.ok(DropTopology(scene.topology))
    assert scene.evict_all() > 0
    scene.user.ok(DropTopology(second))
    assert scene.evict_all() == 0


@pytest.mark.parametrize("how", ["silent", "gone"])
def test_neither_silence_nor_the_end_of_a_connection_ends_a_topology(how):
    """An engine that is not heard, or has lost its connections, keeps what its graphs read."""
    scene = Scene()
    if how == "silent":
        scene.release()
        scene.world.do(EngineSilent(scene.user.caller.engine, silent=True))
    else:
        scene.user.leave()
    other = scene.again("two")
    at = other.boundary(scene.number, PROMPT, 512)
    assert other.ok(Evict(Kind.COMPRESSED_KV, scene.number, at)).dropped == 0
    assert scene.world.state.topologies


def test_the_end_of_all_its_processes_ends_a_topology():
    """When the shell has seen all processes end the pins go, and a second report of it changes nothing."""
    scene = Scene()
    scene.user.leave()
    scene.world.do(TopologyOrphaned(scene.topology))
    scene.world.do(TopologyOrphaned(scene.topology))
    assert scene.world.reasons("topology_ended.1") == ["its processes ended"]
    assert not any(cell.pins for cell in scene.world.state.cells.values())


def test_a_restart_with_arenas_keeps_addresses_and_verifies_them():
    """The graph reads the same bytes at the same addresses, and they are compared though nobody looks them up."""
    scene = Scene()
    scene.world.restart()
    assert not any(cell.unverified for cell in scene.world.state.cells.values())
    scene.user = scene.again()
    assert scene.is_as_captured()
    assert scene.report() == TopologyReport(scene.topology, 3, 3 * PAGE)
    assert scene.evict_all() == 3
    scene.user.ok(DropTopology(scene.topology))
    assert scene.evict_all() == 0


def test_a_restart_without_arenas_ends_topologies_and_says_why():
    """What was pinned is gone and so is the topology, by an event with the reason; its owner is told."""
    scene = Scene()
    scene.world.restart(arenas=False)
    assert scene.world.reasons("topology_ended.1") == ["its memory is gone: not found after the restart"]
    again = scene.again()
    assert again.ask(DropTopology(scene.topology)).code == "topology_lost"


def test_one_lost_arena_breaks_a_topology_and_the_rest_stays_pinned():
    """What lies in the arenas that were found keeps its address, since the graph may still be replayed."""
    scene = Scene()
    (gone,) = {run.arena for run in scene.hit.offers[0].runs}
    scene.world.restart(lost=gone)
    scene.user = scene.again()
    assert scene.report().lost == 1
    assert scene.evict_all() == 2


def test_damage_under_a_topology_breaks_it_and_nothing_comes_into_its_place():
    """The generation moves, the engine is told, and the memory is not reused before the topology ends."""
    scene = Scene()
    run = scene.hit.rows[0]
    place = (run.arena, run.offset)
    scene.damage(place)
    scene.world.restart()
    scene.user = scene.again()
    assert scene.report().lost == 1
    assert scene.world.generations[place] != run.generation
    assert scene.world.reasons("topology_broken.1") == ["its bytes are not the committed ones"]
    scene.user.store(scene.number, PROMPT, 512)
    hit = scene.user.acquire(scene.number, PROMPT)
    stored = {(one.arena, one.offset) for one in hit.rows}
    assert place not in stored
    assert scene.world.memory[place] == b"?"


def test_a_recapture_makes_a_broken_topology_whole():
    """Inside the window the object is taken at its new address, and the old memory goes."""
    scene = Scene()
    run = scene.hit.rows[0]
    scene.damage((run.arena, run.offset))
    scene.world.restart()
    scene.user = scene.again()
    scene.user.store(scene.number, PROMPT, 512)
    hit = scene.user.acquire(scene.number, PROMPT)
    scene.user.ok(OpenRecapture(scene.topology))
    changed = scene.user.ok(ChangeTopology(scene.topology, [part(hit)], [], whole=True))
    assert (changed.objects, changed.lost) == (3, 0)
    assert scene.user.ok(CloseRecapture(scene.topology)).lost == 0
    event = [e for e in map(events.decode, scene.world.log) if isinstance(e.event, events.TopologyChanged)][-1].event
    assert len(event.added) == 1


def test_a_change_outside_of_a_window_is_refused():
    """A graph that may be replayed at any time keeps what it reads; the refusal says what to do first."""
    scene = Scene()
    change = ChangeTopology(scene.topology, [], [part(scene.hit, 1)])
    refused = scene.user.ask(change)
    assert (refused.code, refused.field) == ("recapture", "topology")
    assert scene.user.ask(CloseRecapture(scene.topology)).code == "recapture"
    scene.user.ok(OpenRecapture(scene.topology))
    assert scene.user.ask(OpenRecapture(scene.topology)).code == "recapture"
    assert scene.user.ok(change).objects == 2
    scene.user.ok(CloseRecapture(scene.topology))
    assert scene.user.ask(change).code == "recapture"


def test_a_change_adds_removes_and_replaces():
    """What `add` names stays though `remove` names it too; `whole` leaves nothing else."""
    scene = Scene()
    scene.user.store(scene.number, OTHER, 512)
    other = scene.user.acquire(scene.number, OTHER)
    scene.user.ok(OpenRecapture(scene.topology))
    assert scene.user.ok(ChangeTopology(scene.topology, [part(other)], [])).objects == 6
    assert scene.user.ok(ChangeTopology(scene.topology, [part(other, 0)], [part(other)])).objects == 5
    assert scene.user.ok(ChangeTopology(scene.topology, [part(other)], [], whole=True)).objects == 3
    scene.release()
    assert scene.evict_all() == 0


def test_a_topology_may_not_become_one_of_nothing():
    """A change that would leave nothing is refused, and so is a registration of nothing."""
    scene = Scene()
    scene.user.ok(OpenRecapture(scene.topology))
    assert scene.user.ask(ChangeTopology(scene.topology, [], [part(scene.hit)])).code == "caller"
    assert scene.user.ask(RegisterTopology([])).code == "caller"


def test_what_is_not_resident_is_refused_with_its_list():
    """Objects on disk are named with group, block and state, and nothing is pinned."""
    world = World()
    user = world.engine()
    number = user.register(pick("CM"))
    user.store(number, PROMPT, 512)
    user.offload(number, PROMPT, 512)
    hit = user.acquire(number, PROMPT)
    reply = user.ok(RegisterTopology([part(hit)]))
    assert isinstance(reply, NotResident)
    assert [(one.group, one.block, one.state) for one in reply.objects] == [
        (0, 0, "ON_DISK"),
        (0, 1, "ON_DISK"),
        (1, -1, "ON_DISK"),
    ]
    assert not world.state.topologies


def test_an_object_that_is_being_restored_is_not_resident():
    """While its bytes are on their way nobody may capture a graph over them."""
    world = World()
    user = world.engine()
    number = user.register(pick("CM"))
    user.store(number, PROMPT, 512)
    user.offload(number, PROMPT, 512)
    hit = user.acquire(number, PROMPT)
    world.held = []
    user.restore(number, PROMPT, 512)
    reply = user.ok(RegisterTopology([part(hit)]))
    assert {one.state for one in reply.objects} == {"RESTORING"}


def test_damaged_and_reserved_objects_are_not_resident():
    """An object that was found damaged under a lease is named as such, and as reserved once it is being stored anew."""
    world = World()
    user = world.engine()
    number = user.register(pick("CM"))
    user.store(number, PROMPT, 512)
    hit = user.acquire(number, PROMPT)
    cell = world.state.leases[hit.lease].blocks[0]
    cell.unverified = cell.memory
    assert states(user, hit) == ["UNVERIFIED"]
    world.memory[hit.rows[0].arena, hit.rows[0].offset] = b"?"
    other = world.engine("two")
    other.acquire(number, PROMPT)  # verifies what is not, and finds it damaged
    assert states(user, hit) == ["QUARANTINED"]
    other.reserve(number, PROMPT, 512)
    assert states(user, hit) == ["RESERVED"]


def states(user: User, hit) -> list[str]:
    """The states of what a lease handed out and is not resident any more."""
    return [one.state for one in user.ok(RegisterTopology([part(hit)])).objects]


def test_the_list_of_what_is_not_resident_is_capped():
    """The first 64 are named and the rest is counted."""
    world = World()
    user = world.engine()
    number = user.register(pick("CM"))
    long = list(range(256 * 70))
    user.store(number, long, len(long))
    user.offload(number, long, len(long))
    reply = user.ok(RegisterTopology([part(user.acquire(number, long, leave=0))]))
    assert (len(reply.objects), reply.more) == (64, 7)


def test_topologies_are_found_by_their_engine_only():
    """Another engine, another tenant, another uid and a number that never was are answered alike."""
    scene = Scene()
    stranger = scene.world.engine("two")
    foreign = scene.world.engine("one", tenant="other")
    said = [user.ask(DropTopology(scene.topology)) for user in (stranger, foreign)]
    said.append(scene.user.ask(DropTopology(scene.topology + 1)))
    assert {one.code for one in said} == {"topology_lost"}
    assert {one.message.replace(str(scene.topology + 1), "N").replace(str(scene.topology), "N") for one in said} == {
        "topology N is not held"
    }
    assert stranger.ok(Topologies()) == TopologyList([])


def test_another_uid_with_the_same_engine_id_owns_nothing():
    """The engine id alone does not open a door."""
    scene = Scene()
    scene.user.leave()
    thief = scene.world.engine("one", uid=1001)
    assert thief.ask(DropTopology(scene.topology)).code == "topology_lost"


def test_a_lease_of_another_engine_makes_no_topology():
    """A topology is made of one's own leases."""
    scene = Scene()
    stranger = scene.world.engine("two")
    assert stranger.ask(RegisterTopology([part(scene.hit)])).code == "lease_lost"


def test_an_engine_that_can_not_be_watched_registers_nothing():
    """Without a process whose end could be seen the pins would stay for ever."""
    scene = Scene()
    scene.user.processes = ()
    refused = scene.user.ask(RegisterTopology([part(scene.hit)]))
    assert (refused.code, refused.field) == ("caller", "processes")


@pytest.mark.parametrize(
    ("wrong", "field"), [(TopologyPart(0, 9, []), "parts[0].offer"), (TopologyPart(0, 0, [7]), "parts[0].groups")]
)
def test_a_part_that_names_nothing_is_refused(wrong, field):
    """An offer or group that there is not is the caller's mistake, and named."""
    scene = Scene()
    refused = scene.user.ask(RegisterTopology([TopologyPart(scene.hit.lease, wrong.offer, wrong.groups)]))
    assert (refused.code, refused.field) == ("caller", field)


def test_an_engine_may_hold_so_many_topologies():
    """Beyond the cap a registration is refused with the limit's name."""
    scene = Scene(config=CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, max_topologies=1))
    refused = scene.user.ask(RegisterTopology([part(scene.hit)]))
    assert (refused.code, refused.field) == ("limit", "max_topologies")
    assert scene.report().objects <= TOPOLOGY_OBJECTS_MAX


def test_half_a_couple_that_a_commit_replaces_breaks_the_topology():
    """Keys that a graph reads stay in their memory when a commit brings the couple anew, and the topology is broken."""
    scene = Scene("CX")
    scene.release()
    run = next(run for run in scene.hit.rows if run.group == 0)
    scene.damage((run.arena, run.offset))
    scene.world.restart()
    scene.user = scene.again()
    assert scene.report().lost == 1
    reserved = scene.user.reserve(scene.number, PROMPT, 512)
    scene.user.fill(reserved, seed=1)
    scene.user.ok(Commit(reserved.unit))
    assert scene.report().lost == 2
    keys = next(run for run in scene.hit.rows if run.group == 1)
    assert scene.world.generations[keys.arena, keys.offset] == keys.generation


def test_topologies_stand_in_replays_digests_and_snapshots():
    """State made from the log and from its image have the same digest, which changes with each change of a topology."""
    scene = Scene()
    seen = [scene.world.state.digest()]
    for request in (OpenRecapture(scene.topology), ChangeTopology(scene.topology, [], [part(scene.hit, 1)])):
        scene.user.ok(request)
        seen.append(scene.world.state.digest())
        image = decode_state(encode_state(scene.world.state), scene.world.config)
        assert image.digest() == scene.world.replayed().digest() == seen[-1]
        assert violations(image) == []
    assert len(set(seen)) == 3
    scene.user.ok(DropTopology(scene.topology))
    assert isinstance(scene.user.ask(DropTopology(scene.topology)), Failed)
    assert scene.user.ask(CloseRecapture(scene.topology)).code == "topology_lost"
    assert Done() == scene.user.ok(Release(scene.hit.lease))


def test_a_graph_over_weights_that_nobody_names_is_refused():
    """Such objects end with their engine's connections, which a graph would not notice."""
    world = World(CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, allow_unpinned=True))
    user = world.engine("one")
    number = user.register(pick("CM", weights_digest=""))
    user.store(number, PROMPT, 512)
    refused = user.ask(RegisterTopology([part(user.acquire(number, PROMPT))]))
    assert (refused.code, refused.field) == ("epoch", "layout")


def test_retired_weights_break_a_topology_and_leave_its_bytes():
    """Whoever captured with these weights reads what it read, is told, and nobody else gets the memory before."""
    scene = Scene()
    scene.user.ok(SetEpoch("test", "w1", EpochState.RETIRED))
    assert (scene.report().objects, scene.report().lost) == (3, 3)
    assert scene.world.reasons("topology_broken.1") == ["its weights or its kernel ABI were retired"]
    scene.release()
    other = scene.world.engine("two")
    other.store(other.register(pick("CM", weights_digest="w2")), OTHER, 512)
    assert scene.is_as_captured()
    scene.world.restart()
    scene.user = scene.again()
    assert scene.is_as_captured()
    scene.user.ok(DropTopology(scene.topology))
    assert not any(cell.limbo for cell in scene.world.state.cells.values())
