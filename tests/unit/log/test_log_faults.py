"""The n-th operation fails, for every n and in every way: nothing reported is lost, and nothing is called rot."""

import contextlib
import random
from pathlib import Path

import pytest

from kvledger_storage.log import EventLog, LogError, LogStoppedError, verify
from kvledger_storage.log.mark import read_mark
from support.log_faults import FaultyLogIO
from support.log_sessions import SMALL, Session, contents, event
from support.log_simulation import SimulatedLogIO
from support.promises import assert_judged, assert_kept

HOME = Path("/log")
FAULTS = [("EIO", False), ("EIO", True), ("ENOSPC", False), ("ENOSPC", True), ("EINTR", False), ("short", False)]


class Outcome:
    """What a workload had been told when it ended."""

    def __init__(self):
        self.written = self.durable = 0
        self.error = None


def workload(io):
    """Write a log of several segments in two lives, then archive most of it; stop at the first error."""
    outcome = Outcome()
    sessions = []
    try:
        for start in (1, 11):
            sessions.append(Session(HOME, io))
            for number in range(start, start + 10):
                sessions[-1].put([number], durable=number % 3 == 0)
            sessions[-1].close()
        with EventLog.open(HOME, io=io, segment_bytes=SMALL) as log:
            log.archive_through(log.sealed_ends()[-1])
    except (LogError, OSError) as error:
        outcome.error = error
    for session in sessions:
        with contextlib.suppress(LogError, OSError):
            session.close()
        outcome.written, outcome.durable = session.written, max(outcome.durable, session.durable)
        outcome.error = outcome.error or (session.errors or [None])[0]
    return outcome


def fail_at(number, fault, sticky):
    """Run the workload with one failing operation and judge what it leaves; return whether the failure was told."""
    files = SimulatedLogIO()
    outcome = workload(FaultyLogIO(files, number, fault, sticky=sticky))
    files.kill()
    with EventLog.open(HOME, io=files, segment_bytes=SMALL) as log:
        found = contents(log)
    assert_judged(found == {seq: event(seq) for seq in range(1, len(found) + 1)}, "an event is not what was written")
    assert_kept(range(1, max(outcome.written, outcome.durable) + 1), found)
    assert_judged(verify(HOME, io=files).problem is None, "a failed operation was taken for rot")
    return outcome.error is not None


@pytest.mark.parametrize(("fault", "sticky"), FAULTS)
def test_any_operation_may_fail(fault, sticky):
    """Whichever operation fails, what had been reported is there afterwards, unchanged, and the log opens."""
    whole = FaultyLogIO(SimulatedLogIO())
    assert workload(whole).error is None
    stopped = sum(fail_at(number, fault, sticky) for number in range(1, len(whole.journal) + 1))
    assert (stopped > 0) == (fault != "short"), "a short transfer is continued, anything else is told"


def test_an_interrupted_transfer_is_repeated_and_a_sync_is_not():
    """EINTR on a read or write goes unnoticed; on a sync it stops the log like every other error."""
    whole = FaultyLogIO(SimulatedLogIO())
    workload(whole)

    def interrupted(name):
        first = whole.journal.index(name) + 1
        return workload(FaultyLogIO(SimulatedLogIO(), first, "EINTR")).error

    assert interrupted("pread") is None
    assert interrupted("pwrite") is None
    assert isinstance(interrupted("fdatasync"), InterruptedError)


def test_the_mark_is_never_ahead_of_a_sync():
    """The mark names what was synced before, while a sync runs and after it failed."""
    files = SimulatedLogIO()
    session = Session(HOME, files)
    seen = []
    sync = files.fdatasync
    files.fdatasync = lambda fd: (seen.append(read_mark(files, HOME, session.log.log_id)), sync(fd))
    for number in range(1, 4):
        session.put([number], durable=True)
    files.fail_sync_at = files.syncs + 1
    session.put([4], durable=True)
    assert session.errors
    with pytest.raises(LogStoppedError):
        session.close()
    assert seen == [0, 1, 2, 3]
    files.kill()
    assert read_mark(files, HOME, session.log.log_id) == 3


@pytest.mark.parametrize("lost", range(1, 6))
def test_pages_that_a_failed_sync_lost_are_written_again(lost):
    """After a failed sync the kernel calls its pages clean; a restart in the same boot still makes them durable."""
    files = SimulatedLogIO()
    session = Session(HOME, files)
    for number in range(1, lost + 1):
        session.put([number])
    files.fail_sync_at = files.syncs + 1
    session.put([lost + 1], durable=True)
    assert session.errors
    with pytest.raises(LogStoppedError):
        session.close()
    files.kill()
    with EventLog.open(HOME, io=files, segment_bytes=SMALL) as log:
        accepted = log.last_seq
    files.cut(random.Random(lost))
    with EventLog.open(HOME, io=files, segment_bytes=SMALL) as log:
        assert log.last_seq == accepted == lost + 1
