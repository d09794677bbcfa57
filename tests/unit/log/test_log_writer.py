"""The writer: one frame for all that waits, seqs in order, each report true, failure final."""

import errno
import threading
import time

import msgspec
import pytest

from kvledger_storage.log import EventLog, EventRefusedError, LogClosedError, LogStoppedError, appender
from kvledger_storage.log import frame as frames
from kvledger_storage.log.segment import SEGMENT_BYTES
from kvledger_storage.log.writer import split_batch
from support.log_faults import FastLogIO
from support.log_sessions import SMALL, WAIT_S, Session, contents, event


class GatedIO(FastLogIO):
    """Holds each sync until the test lets it go."""

    def __init__(self):
        super().__init__()
        self.syncing = threading.Semaphore(0)
        self.go = threading.Semaphore(0)
        self.gated = False

    def fdatasync(self, fd):
        """Say that a sync began, then wait."""
        if self.gated:
            self.syncing.release()
            assert self.go.acquire(timeout=WAIT_S)


def test_what_gathers_during_a_sync_is_one_frame(tmp_path):
    """While one sync runs, all submissions become the next frame, and one sync serves all of them."""
    io = GatedIO()
    session = Session(tmp_path, io, segment_bytes=SEGMENT_BYTES)
    io.gated = True
    session.submit([1], durable=True)
    assert io.syncing.acquire(timeout=WAIT_S)
    assert [session.submit([number], durable=number == 30) for number in range(2, 51)] == list(range(2, 51))
    assert session.writer.statistics().pending == 49
    assert session.durable == 0
    io.gated = False
    io.go.release()
    session.wait(lambda: session.durable == 50)
    assert (session.writer.statistics().frames, session.writer.statistics().syncs) == (2, 2)
    session.close()


@pytest.mark.parametrize("size", [8, 20_000])
def test_a_sync_is_told_while_the_next_one_runs(tmp_path, size):
    """Whoever waits for the first sync hears of it though the second has not returned, whatever its frame's size."""
    io = GatedIO()
    session = Session(tmp_path, io, segment_bytes=SEGMENT_BYTES)
    io.gated = True
    session.submit([1], durable=True)
    assert io.syncing.acquire(timeout=WAIT_S)
    session.submit(range(2, 12), durable=True, size=size)
    io.go.release()
    assert io.syncing.acquire(timeout=WAIT_S)
    session.wait(lambda: (session.written, session.durable) == (11, 1))
    io.gated = False
    io.go.release()
    session.wait(lambda: session.durable == 11)
    session.close()


def test_a_sync_is_told_before_a_large_frame_is_written(tmp_path):
    """What joining and writing many bytes takes is no part of what others wait for."""

    class WatchedIO(GatedIO):
        told = -1

        def pwrite(self, fd, data, offset):
            if len(data) > 100_000:
                self.told = session.durable
            return super().pwrite(fd, data, offset)

    io = WatchedIO()
    session = Session(tmp_path, io, segment_bytes=SEGMENT_BYTES)
    io.gated = True
    session.submit([1], durable=True)
    assert io.syncing.acquire(timeout=WAIT_S)
    session.submit(range(2, 12), size=20_000)
    io.gated = False
    io.go.release()
    session.wait(lambda: session.written == 11)
    assert io.told == 1
    session.close()


def test_a_hash_that_was_overtaken_is_not_that_of_the_next_frame(tmp_path, monkeypatch):
    """While a submission hashes the last frame ahead, the writer may append another, and the chain still holds."""
    io = GatedIO()
    session = Session(tmp_path, io)
    overtaken = []

    def slowly(frame):
        digest = frames.chain_of(frame)
        if threading.current_thread() is threading.main_thread() and not overtaken:
            overtaken.append(frame)
            io.gated = False
            io.go.release()
            session.wait(lambda: session.written == 2)
        return digest

    monkeypatch.setattr(appender, "chain_of", slowly)
    io.gated = True
    session.submit([1], durable=True)
    assert io.syncing.acquire(timeout=WAIT_S)
    session.submit([2])
    assert overtaken
    session.put([3])
    session.close()
    with EventLog.open(tmp_path, io=FastLogIO()) as log:
        assert contents(log) == {number: event(number) for number in (1, 2, 3)}


def test_written_is_reported_without_a_sync(tmp_path):
    """Events that nobody wants durable are reported written, and no sync is made for them until the end."""
    session = Session(tmp_path)
    session.put([1, 2, 3])
    numbers = session.writer.statistics()
    assert (numbers.events, numbers.syncs, numbers.pending) == (3, 0, 0)
    session.close()
    assert session.durable == 3


def test_closing_writes_and_syncs_what_is_pending(tmp_path):
    """Everything submitted before the close is in the log afterwards, and was reported durable."""
    session = Session(tmp_path)
    for number in range(1, 101):
        session.submit([number])
    session.close()
    session.close()
    assert session.durable == 100
    with EventLog.open(tmp_path, io=FastLogIO()) as log:
        assert contents(log) == {number: event(number) for number in range(1, 101)}


def test_frames_say_what_was_synced_before_them(tmp_path):
    """Each frame carries its incarnation, its boot, and the last seq whose sync had returned when it was written."""
    session = Session(tmp_path, incarnation=42)
    session.put([1], durable=True)
    session.put([2])
    session.put([3], durable=True)
    session.put([4])
    frames = [frame for _, frame, _ in session.log.read()]
    session.close()
    assert [frame.synced_through for frame in frames] == [0, 1, 1, 3]
    assert {(frame.incarnation, frame.boot_id) for frame in frames} == {(42, bytes(range(16)))}


def test_batches_over_the_cap_are_split_between_submissions():
    """A batch is cut where a submission begins; only a submission larger than a frame is cut inside."""
    small, large = [b"1234", b"1234"], [b"12345678"] * 3
    assert list(split_batch([small, small, small], 21)) == [small + small, small]
    assert list(split_batch([small, large, small], 21)) == [small, large[:2], [large[2], *small]]
    assert list(split_batch([large], 29)) == [large]


def test_a_submission_larger_than_a_frame_is_logged_whole(tmp_path):
    """Ten megabytes in one submission become several frames over segments of the real size, in order."""
    session = Session(tmp_path, segment_bytes=SEGMENT_BYTES)
    events = [msgspec.msgpack.encode(bytes([number]) * 100_000) for number in range(200)]
    assert session.writer.submit([events], durable=True) == 200
    session.wait(lambda: session.durable == 200)
    assert session.writer.statistics().frames == 5
    assert [data for _, _, data in session.log.read()] == events
    session.close()
    assert len(list(tmp_path.glob("*.seg"))) == 2


def test_refused_events_take_no_seq(tmp_path):
    """A submission with one bad event is refused whole, and the next one gets the seq it would have had."""
    session = Session(tmp_path)
    with pytest.raises(EventRefusedError, match="event 1 "):
        session.writer.submit([[event(1), b""]], durable=True)
    with pytest.raises(EventRefusedError, match="split it"):
        session.writer.submit([[msgspec.msgpack.encode(bytes(2000))]], durable=True)
    with pytest.raises(ValueError, match="at least one event"):
        session.writer.submit([], durable=True)
    assert session.put([1], durable=True) == 1
    session.close()


def test_nothing_is_taken_after_the_close(tmp_path):
    """A closed writer refuses by type, and so does a second writer of one log."""
    session = Session(tmp_path)
    with pytest.raises(LogClosedError, match="has its writer"):
        session.log.writer(1, print, print)
    session.close()
    with pytest.raises(LogClosedError):
        session.submit([1])
    with pytest.raises(LogClosedError, match="closed"):
        session.log.writer(1, print, print)


class FailingIO(FastLogIO):
    """Fails the operation that a test names, from when the test says so."""

    failing = ""
    calls = 0

    def fdatasync(self, fd):
        """Sync, or lose the pages once."""
        if self.failing == "fdatasync":
            self.calls += 1
            raise OSError(errno.EIO, "sync failed")

    def pwrite(self, fd, data, offset):
        """Write, or fail."""
        if self.failing == "pwrite":
            raise OSError(errno.ENOSPC, "write failed")
        return super().pwrite(fd, data, offset)

    def preallocate(self, fd, length):
        """Allocate, or find the disk full."""
        if self.failing == "preallocate":
            raise OSError(errno.ENOSPC, "disk full")
        super().preallocate(fd, length)


@pytest.mark.parametrize(("failing", "text"), [("fdatasync", "sync failed"), ("pwrite", "write failed")])
def test_an_error_stops_the_writer_once_and_for_all(tmp_path, failing, text):
    """After an error nothing more is reported or taken, the error is told once, and no sync is tried again."""
    io = FailingIO()
    session = Session(tmp_path, io)
    session.put([1], durable=True)
    io.failing = failing
    session.submit([2], durable=True)
    session.wait(lambda: session.errors)
    with pytest.raises(LogStoppedError, match=text):
        session.submit([3], durable=True)
    with pytest.raises(LogStoppedError, match=text):
        session.close()
    assert (len(session.errors), session.durable) == (1, 1)
    assert io.calls <= 1


def test_a_callback_that_raises_stops_the_writer(tmp_path):
    """If nobody can be told what was written, the log stops instead of going on unheard."""
    errors = []

    def deaf(written, durable):
        raise RuntimeError("the loop is closed")

    log = EventLog.open(tmp_path, io=FastLogIO())
    writer = log.writer(1, deaf, errors.append)
    writer.submit([[event(1)]], durable=True)
    with pytest.raises(LogStoppedError, match="the loop is closed"):
        log.close()
    assert len(errors) == 1


def test_a_full_disk_is_no_error_while_spares_last(tmp_path):
    """When no spare can be allocated the log goes on in those it has, and counts them for whoever makes room."""
    io = FailingIO()
    session = Session(tmp_path, io)
    io.failing = "preallocate"
    spares = set()
    while not session.errors:
        session.put([1], durable=True, size=200)
        spares.add(session.writer.statistics().spares)
    assert spares == {2, 1, 0}
    assert session.errors[0].errno == errno.ENOSPC
    acknowledged = session.durable
    with pytest.raises(LogStoppedError):
        session.close()
    io.failing = ""
    with EventLog.open(tmp_path, io=io) as log:
        assert log.last_seq == acknowledged


def test_room_made_in_time_keeps_the_log_going(tmp_path):
    """Spares come back by themselves once the disk has room again."""
    io = FailingIO()
    session = Session(tmp_path, io)
    io.failing = "preallocate"
    while session.writer.statistics().spares == 2:
        session.put([1], size=200)
    io.failing = ""
    while session.writer.statistics().spares < 2:
        session.put([1], size=200)
    assert not session.errors
    session.close()


def test_room_is_found_without_an_event(tmp_path):
    """Spares come back when they are asked for, though nothing is written, and a part that had room is given back."""
    io = FailingIO()
    session = Session(tmp_path, io)
    io.failing = "preallocate"
    while session.writer.spares == 2:
        session.put([1], size=200)
    written = session.writer.statistics().frames
    session.writer.look_for_room()
    session.put([1])
    assert (session.writer.spares, session.writer.is_full) == (1, True)
    assert sorted(path.stat().st_size for path in tmp_path.glob("spare-*")) == [0, SMALL]
    io.failing = ""
    session.writer.look_for_room()
    end = time.monotonic() + WAIT_S
    while session.writer.spares < 2:
        assert time.monotonic() < end
        time.sleep(0.001)
    assert session.writer.statistics().frames == written + 1
    assert not session.writer.is_full
    session.close()


def test_a_begun_segment_is_no_full_disk(tmp_path):
    """While a segment is begun a spare is missing for a moment, and nobody is told that the disk is full."""
    session = Session(tmp_path)
    told = set()
    for _ in range(40):
        session.put([1], size=200)
        told.add(session.writer.is_full)
    session.close()
    assert told == {False}
    assert len(list(tmp_path.glob("*.seg"))) > 5


def test_a_spare_of_an_earlier_run_counts_on_a_full_disk(tmp_path):
    """After a restart on a full disk the spare that was left is found, whichever of the two it is."""
    io = FailingIO()
    session = Session(tmp_path, io)
    session.put([1])
    session.close()
    for lost in ("spare-0", "spare-1"):
        (tmp_path / lost).unlink()
        io.failing = "preallocate"
        session = Session(tmp_path, io)
        assert (session.writer.spares, session.writer.is_full) == (1, True)
        session.close()
        io.failing = ""
        session = Session(tmp_path, io)
        assert (session.writer.spares, session.writer.is_full) == (2, False)
        session.close()
