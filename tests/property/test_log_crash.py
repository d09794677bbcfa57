"""Whatever the moment at which power or the process goes, the log comes back with all that it had promised."""

import contextlib
import itertools
import random
from pathlib import Path

import pytest

from kvledger_storage.log import EventLog, LogError, verify
from support.log_sessions import SMALL, Session, contents, event
from support.log_simulation import SECTOR, PowerCutError, SimulatedLogIO
from support.promises import assert_judged, assert_kept

HOME = Path("/log")
LIVES = 4


class Promise:
    """What callers had been told, and what they had submitted, over all lives of one log."""

    def __init__(self):
        self.submitted = {}
        self.written = self.durable = 0

    def check(self, found, *, power_lost):
        """Compare what came back with what was told, and take it as the new past."""
        true = {seq: self.submitted.get(seq) for seq in range(1, len(found) + 1)}
        assert_judged(found == true, "an event that nobody submitted, or another than the one that was")
        assert_kept(range(1, (self.durable if power_lost else self.written) + 1), found)
        self.submitted = dict(found)
        self.written = self.durable = len(found)


def live(io, promise, rng):
    """Run one incarnation until it ends by itself or by the power cut that `io` has in store."""
    session = None
    with contextlib.suppress(LogError, PowerCutError):
        session = Session(HOME, io)
        durable_share = rng.choice((0.0, 0.1, 0.5))
        for _ in range(rng.randrange(1, 20)):
            numbers = [rng.randrange(1000) for _ in range(rng.randrange(1, 4))]
            size = rng.choice((1, 8, 40))
            seq = session.log.last_seq
            promise.submitted |= {seq + index: event(number, size) for index, number in enumerate(numbers, 1)}
            session.put(numbers, durable=rng.random() < durable_share, size=size)
            if session.errors:
                break
            archive(session, rng)
    if session is not None:
        with contextlib.suppress(LogError, PowerCutError):
            session.close()
        promise.written, promise.durable = session.written, session.durable


def archive(session, rng):
    """Now and then move what is durable to the archive."""
    ends = [end for end in session.log.sealed_ends() if end.seq <= session.durable] if rng.random() < 0.1 else []
    if ends:
        session.log.archive_through(rng.choice(ends))


def crash_and_recover(seed):
    """Let one log live and die several times, its recovery included, and check it after each."""
    rng = random.Random(seed)
    io, promise = SimulatedLogIO(), Promise()
    power_lost = False
    for _ in range(LIVES):
        io.cut_at = io.operations + rng.randrange(1, 160)
        live(io, promise, rng)
        power_lost = rng.random() < 0.7
        io.cut(rng) if power_lost else io.kill()
        if rng.random() < 0.5:
            io.cut_at = io.operations + rng.randrange(1, 40)
            with contextlib.suppress(PowerCutError), EventLog.open(HOME, io=io, segment_bytes=SMALL):
                pass
            io.cut(rng)
            power_lost = True
        with EventLog.open(HOME, io=io, segment_bytes=SMALL) as log:
            promise.check(contents(log), power_lost=power_lost)
        io.kill()
    assert_judged(verify(HOME, io=io).problem is None, "a recovered log does not verify")


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_a_crash_loses_nothing_that_was_promised(first):
    """Over 200 seeds of cuts and kills, what was durable (after a kill: written) comes back, and nothing is refused."""
    for seed in range(first, first + 50):
        crash_and_recover(seed)


@pytest.mark.slow
def test_two_thousand_crashes_lose_nothing_that_was_promised():
    """The same over the 2,000 seeds that the design asks for."""
    for seed in range(1000, 3000):
        crash_and_recover(seed)


class Watched(Session):
    """A session that keeps a copy of the files at each report, taken before the writer does anything else.

    Attributes:
        reports: What was durable then, and the files.
    """

    def __init__(self, io):
        self.io = io
        self.reports = []
        super().__init__(HOME, io)

    def _on_reached(self, written, durable):
        self.reports.append((durable, self.io.copy()))
        super()._on_reached(written, durable)


def cut_after_report(durable, files, submitted, fate):
    """Lose power right after one report, in one of the ways in which that may go, and compare."""
    promise = Promise()
    promise.submitted, promise.durable = dict(submitted), durable
    files.cut(random.Random(fate))
    with EventLog.open(HOME, io=files, segment_bytes=SMALL) as log:
        promise.check(contents(log), power_lost=True)


def test_a_report_is_true_at_the_moment_at_which_it_is_made():
    """Power may go with the very report: what it says is kept, and no segment is named too early or too late."""
    io = SimulatedLogIO()
    session = Watched(io)
    for number in range(1, 60):
        session.put([number], durable=number % 4 == 0, size=40)
    session.close()
    submitted = {number: event(number, 40) for number in range(1, 60)}

    assert len([name for name in io.names(HOME) if name.endswith(".seg")]) > 4
    for durable, files in session.reports:
        for fate in range(8):
            cut_after_report(durable, files.copy(), submitted, fate)


def recover_subset(files, path, subset, frames):
    """Recover a log of which only some dirty sectors reached the device; return how many events it kept."""
    disk = files.copy()
    disk.boot += 1
    node = disk.files[path]
    node.flush(subset, size=False)
    node.data = bytearray(node.durable)
    with EventLog.open(HOME, io=disk, segment_bytes=8 * SECTOR) as log:
        found = contents(log)
    assert_kept([1, 2], found)
    true = {seq: event(seq, 2400 // frames if seq > 2 else 8) for seq in range(1, len(found) + 1)}
    assert_judged(found == true, f"another past from sectors {subset}")
    return len(found)


@pytest.mark.parametrize("frames", [1, 3])
def test_every_sector_subset_of_the_last_batch(frames):
    """Whichever sectors of the unsynced frames reach the disk, the synced past comes back and no event is changed."""
    io = SimulatedLogIO()
    session = Session(HOME, io, segment_bytes=8 * SECTOR)
    session.put([1, 2], durable=True)
    for number in range(frames):
        session.put([3 + number], size=2400 // frames)
    files = io.copy()
    session.close()
    (path,) = (path for path in files.files if path.suffix == ".seg")
    dirty = sorted(files.files[path].dirty)
    lengths = set()
    for subset in itertools.chain.from_iterable(itertools.combinations(dirty, n) for n in range(len(dirty) + 1)):
        lengths.add(recover_subset(files, path, subset, frames))
    assert len(dirty) >= 5
    assert {2, 2 + frames} <= lengths
