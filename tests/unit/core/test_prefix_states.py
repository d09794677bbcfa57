"""The states of a prefix: derived from its objects, told from the log with version and time."""

import pytest

from kvledger.errors import CallerError
from kvledger.kinds import Kind
from kvledger.wire.requests import Evict, Release
from kvledger_storage.events import LookedUp
from kvledgerd.audit.explanation import explain
from kvledgerd.audit.prefix_states import prefix_states
from kvledgerd.audit.replay import moments
from kvledgerd.cli import main
from support.layouts import pick
from support.refused import write_log
from support.world import World

PROMPT = list(range(600))


@pytest.fixture
def story(tmp_path):
    """A boundary that was stored, offloaded, brought back, dropped for good and stored anew; its log and its cells."""
    world = World()
    user = world.engine()
    number = user.register(pick("CM"))
    user.store(number, PROMPT, 512)
    boundary = next(cell.id for cell in world.state.cells.values() if not cell.is_block)
    block = next(cell.id for cell in world.state.cells.values() if cell.is_block)
    user.store(number, [9, *PROMPT], 512)  # another prompt's life is none of it
    user.offload(number, PROMPT, 512)
    user.restore(number, PROMPT, 512)
    at = user.boundary(number, PROMPT, 512)
    user.ok(Evict(Kind.UNCOMPRESSED_TAIL, number, at, disk=True))
    user.store(number, PROMPT, 512)
    write_log(world, tmp_path)
    return tmp_path, boundary, block


def test_each_change_has_version_and_event(story):
    """A prefix is full, then partly offloaded, fully restored, gone, and full again in its fifth version."""
    data, boundary, _ = story
    found = prefix_states(data, boundary)
    assert [(one.version, one.state.value, one.event) for one in found] == [
        (1, "full", "UnitCommitted"),
        (2, "partial_offload", "ObjectsEvicted"),
        (3, "full_restore", "RestoreFinished"),
        (4, "gone", "ObjectsEvicted"),
        (5, "full", "UnitCommitted"),
    ]
    assert [one.seq for one in found] == sorted(one.seq for one in found)
    assert [one.time_ms for one in found] == sorted({one.time_ms for one in found})


def test_a_verdict_is_explained_with_the_state_at_its_time(tmp_path):
    """What was away and is back is told from what always lay in memory, also of rows that outlived the boundary."""
    world = World()
    user = world.engine()
    number = user.register(pick("CM"))
    at = user.boundary(number, PROMPT, 512)
    steps = (
        lambda: user.store(number, PROMPT, 512),
        lambda: user.offload(number, PROMPT, 512),
        lambda: user.restore(number, PROMPT, 512),
        lambda: user.ok(Evict(Kind.UNCOMPRESSED_TAIL, number, at, disk=True)),
        lambda: user.store(number, PROMPT, 512),
        lambda: user.offload(number, PROMPT, 512),
        lambda: user.restore(number, PROMPT, 512),
    )
    for step in steps:
        step()
        lease = user.acquire(number, PROMPT, restore=False).lease
        if lease:
            user.ok(Release(lease))
    write_log(world, tmp_path)
    found = explain(tmp_path, [moment.seq for moment in moments(tmp_path) if isinstance(moment.event, LookedUp)])
    told = [next(b.prefix for b in one.boundaries if b.position == 512) for one in found]
    assert told == ["full", "partial_offload", "full_restore", "gone", "full", "partial_offload", "full_restore"]


def test_a_boundary_of_blocks_alone_is_known_by_the_cell_that_its_record_gives_it(tmp_path):
    """A boundary that got a cell of its own with its first offload has its states under that number as well."""
    world = World()
    user = world.engine()
    number = user.register(pick("C"))
    user.store(number, PROMPT, 512)
    user.offload(number, PROMPT, 512, drop=False)
    cell = next(cell.id for cell in world.state.cells.values() if not cell.is_block)
    write_log(world, tmp_path)
    assert [(one.state.value, one.event) for one in prefix_states(tmp_path, cell)] == [("full", "OffloadStarted")]


def test_the_command_prints_them(story, capsys):
    """The command tells the same, a line for each change."""
    data, boundary, _ = story
    assert main(["audit", "states", str(boundary), "--data", str(data)]) == 0
    said = capsys.readouterr().out
    assert [said.count(word) for word in ("partial_offload", "full_restore", "gone")] == [1, 1, 1]


def test_what_was_never_a_boundary_has_no_states(story):
    """The end of a block at which nothing could ever resume was in no state; an unknown number is an error."""
    data, _, block = story
    assert prefix_states(data, block) == []
    with pytest.raises(CallerError, match="no cell 99"):
        prefix_states(data, 99)
