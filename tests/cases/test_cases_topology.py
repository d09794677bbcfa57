"""Field cases about captured graphs: what they may read, and that it stays what and where it was."""

import pytest

from kvledger.wire.replies import NotResident, TopologyRegistered
from kvledger.wire.requests import (
    Acquire,
    ChangeTopology,
    CloseRecapture,
    Commit,
    Evict,
    Offload,
    OpenRecapture,
    RegisterTopology,
    Release,
    Restore,
    TopologyPart,
)
from kvledgerd.core.config import PAGE, CoreConfig
from support.layouts import compressed, pick
from support.world import World, layout

PROMPT = list(range(600))
LAYOUTS = ["CM", "CXST", "TSXC", "SM"]


def stored(letters: str, **config):
    """A world in which one prompt is stored, its user, and the layout's number."""
    world = World(CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, disk_bytes=64 << 20, **config))
    user = world.engine("one")
    number = user.register(pick(letters))
    user.store(number, PROMPT, 512)
    return world, user, number


def look(user, number, **fields):
    """Look the prompt up."""
    return user.ok(Acquire(number, 512, user.boundary(number, PROMPT, 512).hashes, leave=0, **fields))


def capture(user, hit, offer: int = 0):
    """Register over one offer of a lease, or be refused."""
    return user.ask(RegisterTopology([TopologyPart(hit.lease, offer, [])]))


def evict(user, number, group, *, disk: bool = False):
    """Drop the copies of a group."""
    spec = user.world.state.layouts[number].layout.group(group)
    user.ok(Evict(spec.kind, number, user.boundary(number, PROMPT, 512), group, disk=disk))


@pytest.mark.parametrize("letters", LAYOUTS)
def test_v52_a_graph_that_skips_hooks_is_given_only_what_is_in_memory(letters):
    """With any group on disk, or on its way from there, all that a look-up without restoring offers can be captured."""
    groups = [spec.name for spec in pick(letters).groups]
    for group in groups:
        world, user, number = stored(letters)
        user.ok(Offload(number, user.boundary(number, PROMPT, 512)))
        evict(user, number, group)
        for loading in (False, True):
            if loading:
                world.held = []
                user.ask(Restore(number, user.boundary(number, PROMPT, 512)))
            hit = look(user, number, restore=False)
            assert all(offer.ready for offer in hit.offers)
            for index in range(len(hit.offers)):
                assert isinstance(capture(user, hit, index), TopologyRegistered)
        world.release_effects()
        assert 512 in [offer.position for offer in look(user, number, restore=False).offers]


@pytest.mark.parametrize("letters", LAYOUTS)
def test_v52_what_is_being_loaded_is_refused_with_its_list(letters):
    """A registration over an offer that lies on disk names every object that lacks, before it loads and meanwhile."""
    world, user, number = stored(letters)
    user.offload(number, PROMPT, 512)
    hit = look(user, number, restore=True)
    (index,) = [i for i, offer in enumerate(hit.offers) if offer.position == 512 and not offer.ready]
    count = sum(cell.disk.bit_count() for cell in world.state.cells.values())
    reply = capture(user, hit, index)
    assert isinstance(reply, NotResident)
    assert len(reply.objects) + reply.more == count
    assert {one.state for one in reply.objects} == {"ON_DISK"}
    world.held = []
    user.ask(Restore(number, user.boundary(number, PROMPT, 512)))
    assert {one.state for one in capture(user, hit, index).objects} == {"RESTORING"}
    world.release_effects()
    assert isinstance(capture(user, hit, index), TopologyRegistered)


@pytest.mark.parametrize("letters", LAYOUTS)
def test_p28_what_a_graph_reads_is_never_written_over_in_place(letters):
    """Address, generation and bytes outlive duplicates, offload, eviction, restore, pressure and a restart."""
    world, user, number = stored(letters)
    hit = look(user, number)
    before = user.read(hit)
    assert isinstance(capture(user, hit), TopologyRegistered)
    user.ok(Release(hit.lease))
    other = user.register(pick(letters, model="other"))
    for step in range(6):
        if step == 0:
            user.store(number, PROMPT, 512, seed=7)
        elif step == 1:
            user.ok(Offload(number, user.boundary(number, PROMPT, 512), drop_memory=True))
        elif step == 2:
            for spec in pick(letters).groups:
                evict(user, number, spec.name, disk=True)
        elif step == 3:
            user.restore(number, PROMPT, 512)
        elif step == 4:
            user.store(other, PROMPT, 512)
        else:
            world.restart()
            user = world.engine("one")
        assert user.read(hit) == before


@pytest.mark.parametrize("letters", LAYOUTS)
def test_p28_a_recapture_leaves_the_old_bytes_until_it_has_said_so(letters):
    """While the window is open the old graph could still be replayed: nothing goes before a change names it."""
    world, user, number = stored(letters)
    hit = look(user, number)
    before = user.read(hit)
    topology = capture(user, hit).topology.topology
    user.ok(Release(hit.lease))
    longer = [*PROMPT[:512], *range(9000, 9256)]
    user.store(number, longer, 768)
    new = user.acquire(number, longer, leave=0)
    user.ok(OpenRecapture(topology))
    for spec in pick(letters).groups:
        evict(user, number, spec.name)
    assert user.read(hit) == before
    user.ok(ChangeTopology(topology, [TopologyPart(new.lease, 0, [])], [], whole=True))
    user.ok(CloseRecapture(topology))
    held = {(one.arena, one.offset) for one in world.state.topologies[topology].objects.values()}
    assert held == {
        (run.arena, run.offset + i * run.stride) for run in (*new.rows, *new.offers[0].runs) for i in range(run.count)
    }


def test_v24_graphs_of_two_layouts_read_no_common_page():
    """Two engines that describe one model by other strides get other memory each, and capture over their own only."""
    world, extents = World(), []
    for name, page_bytes in (("one", 1024), ("two", PAGE + 64), ("three", 4 * PAGE)):
        user = world.engine(name)
        number = user.register(layout(compressed(page_bytes=page_bytes), block_tokens=256))
        user.store(number, PROMPT, 512)
        reply = capture(user, look(user, number))
        for one in world.state.topologies[reply.topology.topology].objects.values():
            size = world.state.layouts[number].length_of(one.cell, one.slot)
            extents += [(one.arena, page) for page in range(one.offset // PAGE, (one.offset + size - 1) // PAGE + 1)]
    assert len(extents) == len(set(extents)) > 0


def test_v24_a_lease_of_one_layout_names_no_object_of_another():
    """Objects are named through a lease, which belongs to one layout of one engine; nothing else can be pinned."""
    world, user, number = stored("CM")
    hit = look(user, number)
    other = world.engine("two")
    other.register(pick("CM", model="other"))
    assert capture(other, hit).code == "lease_lost"
    reserved = other.reserve(number, PROMPT, 512)
    assert other.ok(Commit(reserved.unit)).stored == 0
