"""Concurrent commits of one prefix: the first wins object by object, couples together, and the audit tells the rest."""

import pytest

from kvledger.kinds import Kind
from kvledger.wire.evictions import EvictMany
from kvledger.wire.replies import Committed
from kvledger.wire.requests import Commit, Offload
from kvledgerd.audit.names import ObjectName
from kvledgerd.audit.object_life import object_life
from kvledgerd.core.commands import Written
from kvledgerd.core.copies.records import blob_of
from kvledgerd.core.disk_commands import RecordsLost
from support.epochs import PROMPT, stored
from support.layouts import pick
from support.refused import write_log
from support.world import World


def raced(seeds, letters="CXST"):
    """Two engines reserve one boundary, fill it, and commit one after the other; their replies."""
    world = World()
    users = world.engine("one"), world.engine("two")
    number = users[0].register(pick(letters))
    units = [user.reserve(number, PROMPT, 512) for user in users]
    for user, unit, seed in zip(users, units, seeds, strict=True):
        user.fill(unit, seed=seed)
    replies = [user.ok(Commit(unit.unit)) for user, unit in zip(users, units, strict=True)]
    return world, users, number, replies


@pytest.mark.parametrize("seeds", [(0, 0), (0, 1)])
def test_the_loser_is_told_and_its_bytes_are_dropped(seeds):
    """The second commit stores nothing, its reply counts what was there and what differed; the first's bytes stay."""
    world, users, number, (first, second) = raced(seeds)
    assert (first.duplicates, first.differing) == (0, 0)
    assert (second.stored, second.duplicates) == (0, first.stored)
    assert second.differing == (first.stored if seeds[0] != seeds[1] else 0)
    read = users[1].read(users[1].acquire(number, PROMPT))
    assert all(data.partition(b";")[0].endswith(b"/0") for data in read.values())
    assert sum(pool.live_bytes for pool in world.state.pools.values()) == 4096 * first.stored


@pytest.mark.parametrize(("seeds", "what"), [((0, 0), "duplicate"), ((0, 1), "duplicate differs")])
def test_the_life_of_an_object_tells_of_its_duplicates(seeds, what, tmp_path):
    """Each object that was brought twice has an entry that says by whom, and whether the bytes were the same."""
    world, _, number, (_, second) = raced(seeds)
    write_log(world, tmp_path)
    for cell in world.state.cells.values():
        for slot in range(len(cell.states)):
            if cell.memory >> slot & 1:
                life = object_life(tmp_path, ObjectName(cell.id, slot))
                told = [entry for entry in life.entries if entry.what.startswith("duplicate")]
                assert [entry.what for entry in told] == [what]
                assert f"commit {second.commit_id} of engine 2" in told[0].detail
    assert number


@pytest.mark.parametrize("failed", [False, True])
def test_a_half_that_is_being_written_goes_once_that_is_over(failed):
    """Rows whose keys were lost while they are written to disk make way for a commit of both, which waits for that."""
    user, number = stored(pick("CX"))
    world = user.world
    user.offload(number, PROMPT, 512, drop=False)
    user.ok(EvictMany(Kind.COMPRESSED_KV, memory=False, disk=True))
    user.ok(EvictMany(Kind.INDEXER_STATE))
    known = world.state.layouts[number]
    keys = [blob_of(known, cell, 1) for cell in world.state.cells.values() if cell.disk]
    world.held = []
    user.ask(Offload(number, user.boundary(number, PROMPT, 512)))
    (job,), write, world.held = world.state.jobs, world.held, None
    world.do(RecordsLost(tuple(keys), "gone", "scrub"))
    unit = user.reserve(number, PROMPT, 512)
    user.fill(unit, seed=1)
    world.held = write
    assert not isinstance(user.commit(unit), Committed)
    world.held = None
    for effect in write:
        world.do(Written(job, error="no space left")) if failed else world.run(effect)
    assert user.commit(unit).stored == 4
    read = user.read(user.acquire(number, PROMPT)).values()
    assert all(data.partition(b";")[0].endswith(b"/1") for data in read)
    assert set(world.disk) == world.records()
    assert world.replayed().digest() == world.state.digest()
