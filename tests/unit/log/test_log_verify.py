"""Verifying and reading from outside: no lock, no change, and useful words about a damaged log."""

import itertools
import threading
from pathlib import Path

import msgspec
import pytest

from kvledger_storage.log import EventLog, LogRotError, read_events, verify
from kvledger_storage.log.mark import Mark, read_mark
from support.log_faults import FastLogIO
from support.log_sessions import Session, contents, event
from support.log_simulation import SimulatedLogIO

HOME = Path("/log")


def written_log(count=20):
    """Return a file system with a closed log of `count` events, and the paths of its segments."""
    io = SimulatedLogIO()
    session = Session(HOME, io)
    for number in range(1, count + 1):
        session.put([number], durable=True)
    session.close()
    return io, sorted(path for path in io.files if path.suffix == ".seg")


def test_a_whole_log_verifies(tmp_path):
    """A whole log is reported with its extent, also while a daemon holds it, and nothing in the directory changes."""
    session = Session(tmp_path)
    for number in range(1, 21):
        session.put([number])
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    report = verify(tmp_path)
    assert (report.ok, report.decision, report.problem) == (True, "clean", None)
    assert (report.first_seq, report.last_seq, report.frames) == (1, 20, 20)
    assert report.segments == len(list(tmp_path.glob("*.seg"))) > 1
    assert report.log_id == session.log.log_id.hex()
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    session.close()


def test_an_empty_log_verifies_and_no_log_is_told():
    """A log without events is in order; a directory without a log is an error that says so."""
    io = SimulatedLogIO()
    EventLog.open(HOME, io=io).close()
    report = verify(HOME, io=io)
    assert (report.ok, report.first_seq, report.last_seq, report.frames) == (True, 0, 0, 0)
    with pytest.raises(FileNotFoundError, match="there is no log here"):
        verify(Path("/nowhere"), io=io)


def test_damage_is_told_in_full():
    """The report names file, offset, seq, rule, reason, what is lost, what is safe and what to run, and is JSON."""
    io, paths = written_log()
    io.files[paths[1]].data[80 + 104] ^= 1
    report = verify(HOME, io=io)
    first_lost = int(paths[1].stem)
    problem = report.problem
    assert (report.ok, report.decision, report.last_seq) == (False, "refuse", first_lost - 1)
    assert (problem.file, problem.offset, problem.seq) == (str(paths[1]), 80, first_lost)
    assert problem.rule == "sealed-damage"
    assert "synced before the next one" in problem.because
    assert problem.expected.startswith("payload CRC32C: ")
    assert f"seq 1 to {first_lost - 1}" in problem.safe
    assert f"seq {first_lost}" in problem.lost
    assert "--on-corrupt=quarantine" in problem.run_next
    assert msgspec.json.decode(msgspec.json.encode(report), type=type(report)) == report
    with pytest.raises(LogRotError) as caught:
        EventLog.open(HOME, io=io)
    assert caught.value.problem == problem
    assert problem.run_next in str(caught.value)


def test_a_torn_tail_is_ok_and_told():
    """What a crash leaves does not make a log bad: the report is ok, and says what recovery will do."""
    io, paths = written_log()
    data = io.files[paths[-1]].data
    end = len(bytes(data).rstrip(b"\0"))
    data[end + 3 : end + 6] = b"abc"
    report = verify(HOME, io=io)
    assert (report.ok, report.decision, report.last_seq) == (True, "repair_tail", 20)
    assert report.problem.rule == "torn"
    assert "side file" in report.problem.run_next


def test_a_log_without_id_is_read_as_far_as_it_goes():
    """With a damaged id the report still says which events can be read."""
    io, paths = written_log()
    io.files[HOME / "id"].data[20] ^= 1
    report = verify(HOME, io=io)
    assert (report.ok, report.first_seq, report.last_seq, report.frames) == (False, 1, 20, 20)
    assert report.problem.rule == "identity"
    io.files[paths[-1]].data[80] ^= 1
    assert verify(HOME, io=io).last_seq == int(paths[-1].stem) - 1


def test_verify_is_not_fooled_by_a_busy_writer(tmp_path):
    """While a daemon writes without pause, no look from outside ever reports rot, and what can be read only grows."""
    session = Session(tmp_path, segment_bytes=1 << 16)
    done = threading.Event()

    def write():
        for number in itertools.takewhile(lambda _: not done.is_set(), itertools.count(1)):
            session.put([number], size=1 + number % 40)

    thread = threading.Thread(target=write)
    thread.start()
    seen = [0]
    try:
        while seen[-1] < 1000:
            assert verify(tmp_path, io=FastLogIO()).ok
            seen.append(sum(1 for _ in read_events(FastLogIO(), tmp_path)))
    finally:
        done.set()
        thread.join()
        session.close()
    assert seen == sorted(seen)


def test_reading_a_damaged_log_gives_all_before_the_damage():
    """Every event before the damage is yielded, then the damage is raised; a range before it reads as if whole."""
    io, paths = written_log()
    io.files[paths[1]].data[80 + 104] ^= 1
    seen = []
    with pytest.raises(LogRotError, match="kvledger log verify"):
        seen.extend(read.seq for read in read_events(io, HOME))
    assert seen == list(range(1, int(paths[1].stem)))
    assert [read.event for read in read_events(io, HOME, from_seq=2, through_seq=3)] == [event(2), event(3)]


@pytest.mark.parametrize("place", ["sealed header", "order", "last, asked for"])
def test_reading_raises_wherever_events_are_missing(place):
    """A bad segment header, a missing segment and an unreadable event that must be there each raise."""
    io, paths = written_log()
    if place == "sealed header":
        io.files[paths[1]].data[20] ^= 1
    elif place == "order":
        del io.files[paths[1]]
    else:
        io.files[paths[-1]].data[80] ^= 1
    with pytest.raises(LogRotError):
        list(read_events(io, HOME, through_seq=20 if place == "last, asked for" else None))


def test_an_open_log_that_rots_is_noticed_when_read():
    """Damage that comes after the opening is raised by the next reading, not passed over."""
    io = SimulatedLogIO()
    session = Session(HOME, io)
    session.put([1], durable=True)
    session.put([2], durable=True)
    (path,) = (path for path in io.files if path.suffix == ".seg")
    io.files[path].data[80 + 104] ^= 1
    with pytest.raises(LogRotError):
        contents(session.log)
    session.close()


def test_the_mark_survives_a_torn_slot():
    """The mark returns the newest whole slot: after a torn write the one before, without any slot 0, never garbage."""
    io = SimulatedLogIO()
    mark = Mark(io, HOME, b"i" * 16)
    for seq in (5, 9):
        mark.write(seq)
    mark.close()
    assert read_mark(io, HOME, b"i" * 16) == 9
    assert read_mark(io, HOME, b"another log's id") == 0
    data = io.files[HOME / "mark"].data
    data[4096 + 9] ^= 1
    assert read_mark(io, HOME, b"i" * 16) == 5
    mark = Mark(io, HOME, b"i" * 16)
    mark.write(10)
    mark.close()
    assert read_mark(io, HOME, b"i" * 16) == 10
    data[9] ^= 1
    assert read_mark(io, HOME, b"i" * 16) == 10
    del data[4096:]
    assert read_mark(io, HOME, b"i" * 16) == 0


def test_reading_from_the_middle_passes_over_what_lies_before(tmp_path):
    """Events before the first one asked for may be damaged in their payload: they are passed over, not read."""
    session = Session(tmp_path, segment_bytes=64 << 10)
    for number in range(1, 21):
        session.put([number], durable=True)
    session.close()
    (path,) = tmp_path.glob("*.seg")
    data = bytearray(path.read_bytes())
    data[data.index(event(3)) + 5] ^= 1
    path.write_bytes(data)
    io = FastLogIO()
    assert [seq for seq, _, _ in read_events(io, tmp_path, from_seq=10, through_seq=20)] == list(range(10, 21))
    with pytest.raises(LogRotError):
        list(read_events(io, tmp_path, from_seq=1, through_seq=20))
