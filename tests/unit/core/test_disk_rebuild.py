"""An index made from data segments alone: what it knows is right, and what nobody vouches for stays dead."""

import pytest

from kvledger.errors import CallerError, NotFoundError
from kvledger.kinds import Kind
from kvledger.wire.replies import Restored
from kvledger.wire.requests import Evict, Restore
from kvledger_storage.events import decode
from kvledger_storage.log import EventLog
from kvledgerd.core.apply import apply
from kvledgerd.core.invariants import violations
from kvledgerd.core.state import State
from kvledgerd.salvage.events import rebuilt_events
from kvledgerd.salvage.rebuild import write_log
from kvledgerd.salvage.segments import read_segments
from support.disk_faults import LOG_ID, flip
from support.layouts import pick
from support.store_world import StoreWorld

END = 512
LETTERS = "CXSTM"


def prompt(number):
    """Return a prompt that shares its first block with the others."""
    return [*range(256), *(number * 1000 + token for token in range(344))]


def stored(directory, *, letters=LETTERS, prompts=4, **fields):
    """Return a world in a real directory with prompts on disk alone."""
    world = StoreWorld(directory=str(directory))
    user = world.engine()
    layout = user.register(pick(letters, **fields))
    for number in range(prompts):
        user.store(layout, prompt(number), END)
        user.offload(layout, prompt(number), END)
    return world, user, layout


def scanned(directory, *, verify=False):
    """Read the segments of a directory."""
    return read_segments(directory, verify=verify, progress=lambda _: None)


def reborn(directory, vouched=lambda _: True):
    """Return a world over the same files whose log is the rebuilt one."""
    made = rebuilt_events(scanned(directory), vouched)
    assert violations(made.state) == []
    world = StoreWorld(directory=str(directory))
    world.state, world.log = State(world.config), []
    world.record(made.events)
    assert world.state.digest() == made.state.digest()
    world.restart()
    return world


def restored(world, number, letters=LETTERS):
    """Restore a prompt and return the tokens that are usable then."""
    user = world.engine()
    layout = user.register(pick(letters))
    reply = user.ask(Restore(layout, user.boundary(layout, prompt(number), END)))
    if not isinstance(reply, Restored):
        return 0
    acquired = user.acquire(layout, prompt(number))
    user.read(acquired)
    user.leave("checked")
    return acquired.usable_tokens


def test_an_index_is_rebuilt_without_the_log(tmp_path):
    """All prefixes are found, restored and verified; a replay of the new log makes the same state."""
    old, _, _ = stored(tmp_path)
    world = reborn(tmp_path)
    assert world.state.disk_bytes == old.state.disk_bytes
    assert [restored(world, number) for number in range(4)] == [END] * 4
    assert world.events("records_damaged.1") == []
    assert world.state.incarnation > old.state.incarnation
    assert world.state.serial > old.state.serial


def test_what_nobody_vouches_for_stays_dead(tmp_path):
    """Weights that are not named give no layout and no record, and their space is given back."""
    stored(tmp_path)
    world = reborn(tmp_path, lambda layout: layout.weights_digest == "others")
    assert (world.state.layouts, world.state.cells) == ({}, {})
    assert restored(world, 0) == 0


def test_states_under_strict_provenance_stay_dead(tmp_path):
    """Whose run they belong to only the old log knew."""
    stored(tmp_path, strict_provenance=True)
    assert reborn(tmp_path).state.layouts == {}


def test_only_the_newest_life_of_a_place_counts(tmp_path):
    """A prompt that was given up and stored again is found once, with the records of its second life."""
    world, user, layout = stored(tmp_path, prompts=1)
    at = user.boundary(layout, prompt(0), END)
    for kind in (Kind.DISK_PREFIX, *(group.kind for group in pick(LETTERS).groups)):
        user.ask(Evict(kind, layout, at, disk=True))
    assert world.state.disk_bytes == 0
    user.store(layout, prompt(0), END, seed=5)
    user.offload(layout, prompt(0), END)
    user.store(layout, prompt(1), END)
    user.offload(layout, prompt(1), END)
    before = world.state.disk_bytes
    again = reborn(tmp_path)
    assert again.state.disk_bytes == before
    assert [restored(again, number) for number in range(2)] == [END] * 2


def test_damage_is_told_and_the_rest_is_found(tmp_path):
    """A flipped byte of a header loses that record, one of a payload is found with `verify`; neighbours stay."""
    stored(tmp_path, letters="CM")
    path = tmp_path / "data" / "0000000001.seg"
    tails = [ref for key, ref in scanned(tmp_path).records if key.kind == Kind.UNCOMPRESSED_TAIL]
    assert len(tails) == 4
    flip(path, tails[1].offset + 50)
    assert len(scanned(tmp_path).damage) == 1
    flip(path, tails[2].offset + 4096 + 5)
    assert len(scanned(tmp_path).damage) == 1
    assert len(scanned(tmp_path, verify=True).damage) == 2
    world = reborn(tmp_path)
    assert [restored(world, number, "CM") for number in range(4)] == [END, 0, 0, END]


def test_an_interrupted_scan_tells_what_it_has(tmp_path):
    """Whoever stops it gets the segments so far."""
    world, _, _ = stored(tmp_path, prompts=12)
    assert len(world.store.segments()) > 1

    def stop(found):
        raise KeyboardInterrupt

    found = read_segments(tmp_path, verify=False, progress=stop)
    assert (found.segments, found.of > 1, bool(found.records)) == (1, True, True)


def test_a_place_without_segments_is_refused(tmp_path):
    """Nothing readable is an error, not an empty index."""
    with pytest.raises(NotFoundError, match="no data segment"):
        scanned(tmp_path)


def test_the_log_is_written_where_there_is_none(tmp_path):
    """It bears the records' log id, holds the rebuilt events, and never takes the place of a log."""
    stored(tmp_path)
    made = rebuilt_events(scanned(tmp_path), lambda _: True)
    write_log(tmp_path, LOG_ID, made, 1000)
    with EventLog.open(tmp_path / "log") as log:
        assert log.log_id == LOG_ID
        assert log.last_incarnation == made.state.incarnation
        state = State(StoreWorld().config)
        for logged in log.read():
            apply(state, decode(logged.event).event)
    assert state.digest() == made.state.digest()
    with pytest.raises(CallerError, match="exists"):
        write_log(tmp_path, LOG_ID, made, 1000)
