"""Archiving and retiring segments: what recovery reads, what audit reads, and what a cut at any moment leaves."""

import contextlib
import random
from pathlib import Path

import pytest

from kvledger_storage.log import ARCHIVE_NAME, EventLog, LogRotError, read_events, verify
from kvledger_storage.log.beginning import BEGIN_NAME
from support.log_sessions import SMALL, Session, contents, event
from support.log_simulation import PowerCutError, SimulatedLogIO
from support.promises import assert_judged, assert_kept

HOME = Path("/log")
EVENTS = 120


def written_log():
    """Return a file system with a closed log of several segments, everything in it durable."""
    io = SimulatedLogIO()
    session = Session(HOME, io)
    for number in range(1, EVENTS + 1):
        session.put([number], durable=number % 10 == 0)
    session.close()
    return io


def opened(io):
    """Open the log with small segments."""
    return EventLog.open(HOME, io=io, segment_bytes=SMALL)


def everything(io):
    """Return what can still be read of the log, archive included, as {seq: event bytes}."""
    return {seq: data for seq, _, data in read_events(io, HOME)}


ALL = {number: event(number) for number in range(1, EVENTS + 1)}


def test_archived_events_are_read_by_audit_and_not_by_recovery():
    """After archiving, the log opens, reads and verifies as before, and the archived files lie in the archive."""
    io = written_log()
    with opened(io) as log:
        ends = log.sealed_ends()
        assert len(ends) > 3
        log.archive_through(ends[2])
        assert contents(log) == ALL
        assert log.sealed_ends() == ends[3:]
        assert [anchor.seq for anchor, _ in log.archived_starts()] == [1, ends[0].seq, ends[1].seq]
        assert all(size == SMALL for _, size in log.archived_starts())
    with opened(io) as log:
        assert log.last_seq == EVENTS
        assert log.begins.live == ends[2]
        assert contents(log) == ALL
    report = verify(HOME, io=io)
    assert (report.ok, report.first_seq, report.last_seq, report.problem) == (True, 1, EVENTS, None)


def test_damage_in_the_archive_is_found_by_verify_and_keeps_nobody_from_starting():
    """Recovery does not need the archive, so a flipped bit there is `verify`'s to report, with the archived file."""
    io = written_log()
    with opened(io) as log:
        log.archive_through(log.sealed_ends()[2])
    path = next(path for path in io.files if path.parent.name == ARCHIVE_NAME)
    io.files[path].data[200] ^= 1
    with opened(io) as log:
        assert log.last_seq == EVENTS
    report = verify(HOME, io=io)
    assert (report.ok, report.decision) == (False, "clean")
    assert (report.problem.file, report.problem.rule) == (str(path), "archive-damage")
    assert f"to {EVENTS}, which the daemon stands on" in report.problem.safe


def test_retired_events_are_gone_and_the_rest_still_proves_its_chain():
    """Retiring removes the oldest archived segments; the log verifies from the first event that is left."""
    io = written_log()
    with opened(io) as log:
        ends = log.sealed_ends()
        log.archive_through(ends[3])
        log.retire_through(ends[1])
        assert log.begins.kept == ends[1]
    kept = {seq: data for seq, data in ALL.items() if seq >= ends[1].seq}
    assert everything(io) == kept
    report = verify(HOME, io=io)
    assert (report.ok, report.first_seq, report.last_seq) == (True, ends[1].seq, EVENTS)
    with opened(io) as log:
        assert log.last_seq == EVENTS


def test_what_is_live_can_not_be_retired():
    """Retiring stops where the archive ends, since recovery needs the rest."""
    io = written_log()
    with opened(io) as log:
        ends = log.sealed_ends()
        log.archive_through(ends[1])
        log.retire_through(ends[2])
        assert log.begins.kept.seq == 1
    assert everything(io) == ALL


def test_a_log_goes_on_after_archiving():
    """Events that are written while and after segments move are read in one sequence with the archived ones."""
    io = written_log()
    session = Session(HOME, io)
    session.log.archive_through(session.log.sealed_ends()[-1])
    session.put([EVENTS + 1], durable=True)
    session.close()
    assert everything(io) == {**ALL, EVENTS + 1: event(EVENTS + 1)}


def cut_archiving(number, seed):
    """Lose power at an operation of archiving and retiring and judge what is left; tell whether all had been done."""
    io = written_log()
    done = False
    with contextlib.suppress(PowerCutError), opened(io) as log:
        ends = log.sealed_ends()
        io.cut_at = io.operations + number
        log.archive_through(ends[3])
        log.retire_through(ends[1])
        io.cut_at, done = 0, True
    io.cut(random.Random(seed))
    with opened(io) as log:
        found = contents(log)
    assert_kept(range(ends[1].seq, EVENTS + 1), found)
    assert_judged(found == {seq: data for seq, data in ALL.items() if seq >= min(found)}, "an event is not what it was")
    assert_judged(min(found) in {1, ends[1].seq}, "a segment went that was not to go")
    assert_judged(verify(HOME, io=io).problem is None, "archiving cut short was taken for rot")
    return done


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_the_order_is_kept_at_every_cut(seed):
    """Cut the power at each operation of archiving and retiring: the log opens, and loses nothing that was to stay."""
    for number in range(1, 200):
        if cut_archiving(number, seed * 200 + number):
            assert number > 20
            return
    pytest.fail("200 operations were not enough")


def archived_log(*, retire):
    """Return a log whose first segments are archived, the first perhaps retired, and the path of its beginning."""
    io = written_log()
    with opened(io) as log:
        ends = log.sealed_ends()
        log.archive_through(ends[1])
        if retire:
            log.retire_through(ends[0])
    return io, HOME / BEGIN_NAME


def test_a_lost_beginning_costs_nothing_while_the_archive_is_whole():
    """Without the file that says where the log begins, archive and log are read as the one log that they are."""
    io, beginning = archived_log(retire=False)
    io.unlink(beginning)
    with opened(io) as log:
        assert contents(log) == ALL
    assert verify(HOME, io=io).ok


@pytest.mark.parametrize("damage", ["flip", "remove"])
def test_a_damaged_beginning_is_rot(damage):
    """If it is damaged, or lost where events were retired, nobody can tell a retired segment from a lost one."""
    io, beginning = archived_log(retire=True)
    if damage == "flip":
        io.files[beginning].data[20] ^= 1
    else:
        io.unlink(beginning)
    before = everything(io)
    with pytest.raises(LogRotError), opened(io):
        pass
    with EventLog.open(HOME, io=io, segment_bytes=SMALL, on_corrupt="quarantine") as log:
        folder = Path(log.quarantined.folder)
        assert log.first_seq > EVENTS
    assert io.names(folder / ARCHIVE_NAME), "the archive goes with its log"
    assert {seq: data for seq, _, data in read_events(io, folder)} == before
