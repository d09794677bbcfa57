"""The log writer: one thread that turns what the loop submits into frames, and tells when they are written and durable.

Group commit needs no timer. While the thread writes and syncs one batch, submissions gather; all of them together are
the next. So a lone event waits for nobody, and under load the batches grow exactly as large as the disk makes them.

The thread tells as rarely and as late as it may: that a sync has returned is told when the next frame is written, while
that one is being synced, and with the same call. A call wakes the loop, and the two share one interpreter lock; told at
once, the disk would stand idle while the loop answers everybody. It is told before anything that takes longer than
writing into the page cache: waiting, beginning a segment, making a spare, a frame of more than `_SMALL_BYTES`.

Failure is final. After any error the state of the file is the kernel's secret, so the thread stops, says so once, and
every later submission is refused; what was not reported was not promised. A sync is never tried again.
"""

from __future__ import annotations

import contextlib
import threading
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from kvledger_storage.log.errors import LogClosedError, LogStoppedError
from kvledger_storage.log.frame import ARRAY_HEADER_BYTES, encode_frame, join_events
from kvledger_storage.log.segment import payload_cap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from kvledger_storage.log.appender import Appender

# About 100 microseconds of joining, summing and copying: no more than waking a loop takes.
_SMALL_BYTES: Final = 64 << 10


class _Batch(NamedTuple):
    """What gathered while the thread was busy: event by event, joined, and whether somebody waits for a sync."""

    submissions: list[Sequence[bytes]]
    joined: list[bytes]
    events: int
    durable: bool


class LogStatistics(msgspec.Struct, frozen=True, kw_only=True):
    """What the writer has done since it started.

    Attributes:
        frames: Frames written.
        events: Events written.
        bytes: Bytes written, headers included.
        syncs: Syncs that returned.
        pending: Events submitted and not yet written.
        spares: Spare segments ready: two, one for a moment when a segment was begun, fewer for long on a full disk.
    """

    frames: int
    events: int
    bytes: int
    syncs: int
    pending: int
    spares: int


class LogWriter:
    """Owns the writing thread of one open log; made by `EventLog.writer`.

    Both callbacks run in that thread and must return at once; a loop passes them on with `call_soon_threadsafe`.
    A callback that raises stops the writer like any other error.

    Args:
        appender: The end of the log; from now on only this writer touches it.
        log_id: Id of the log, 16 bytes.
        boot_id: Boot that goes into every frame, 16 bytes.
        incarnation: Run of the daemon that goes into every frame.
        segment_bytes: Length of a segment, which bounds a frame.
        on_reached: Called with two seqs when one of them has grown: everything up to the first is in the page cache,
            everything up to the second is on the device.
        on_error: Called once, with what stopped the writer.
    """

    def __init__(
        self,
        appender: Appender,
        *,
        log_id: bytes,
        boot_id: bytes,
        incarnation: int,
        segment_bytes: int,
        on_reached: Callable[[int, int], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._appender = appender
        self._log_id = log_id
        self._boot_id = boot_id
        self._incarnation = incarnation
        self._cap = payload_cap(segment_bytes)
        self._on_reached = on_reached
        self._on_error = on_error
        # The condition is entered through its lock: that spares the loop two Python calls for each submission.
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        self._pending: list[Sequence[bytes]] = []
        self._joined: list[bytes] = []
        self._pending_durable = False
        self._submitted_seq = self._taken_seq = appender.last_seq
        self._idle = self._looking = False
        self._closing = False
        self._failure: BaseException | None = None
        self._frames = self._events = self._bytes = 0
        self._told = (appender.last_seq, appender.synced_seq)
        self._thread = threading.Thread(target=self._run, name="kvledger-log-writer", daemon=True)
        self._thread.start()

    @property
    def last_written(self) -> int:
        """Last seq in the page cache."""
        return self._appender.last_seq

    @property
    def spares(self) -> int:
        """Spare segments that stand ready."""
        return self._appender.spares

    @property
    def is_full(self) -> bool:
        """Whether the disk had no room for a spare segment when one was last made."""
        return self._appender.is_full

    def submit(self, submissions: Sequence[Sequence[bytes]], *, durable: bool) -> int:
        """Queue submissions for the next frame and return the seq of their last event; never waits for the disk.

        Events of one submission stay in one frame, so a crash keeps all or none of them, unless together they exceed
        what a frame holds. They get consecutive seqs, in the order of submissions.

        Args:
            submissions: At least one, each of at least one event, each of those one msgpack value. They must not change
                afterwards.
            durable: Whether the batch that holds them is to be synced.

        Raises:
            EventRefusedError: An event can not be logged; nothing was queued.
            LogStoppedError: The writer met an error before.
            LogClosedError: The writer is closed.
        """
        if not submissions or not all(submissions):
            raise ValueError("a submission needs at least one event")
        most = self._cap - ARRAY_HEADER_BYTES
        events = list(chain.from_iterable(submissions))
        joined = join_events(events, most)
        with self._lock:
            if self._failure is not None:
                raise LogStoppedError(self._failure)
            if self._closing:
                raise LogClosedError("the log writer is closed; open the log again to write")
            self._pending += submissions
            self._joined.append(joined)
            self._pending_durable |= durable
            self._submitted_seq += len(events)
            seq = self._submitted_seq
            idle = self._idle
            if idle:
                self._work.notify()
        if not idle:
            # The thread waits for the device, as a rule, and could hash its last frame only when that has answered.
            self._appender.link_ahead()
        return seq

    def look_for_room(self) -> None:
        """Let the thread try again to make the spare segments that are missing; never waits for the disk."""
        with self._lock:
            self._looking = True
            self._work.notify()

    def statistics(self) -> LogStatistics:
        """Return the counters of this moment; callable from any thread."""
        with self._lock:
            return LogStatistics(
                frames=self._frames,
                events=self._events,
                bytes=self._bytes,
                syncs=self._appender.syncs,
                pending=self._submitted_seq - self._appender.last_seq,
                spares=self._appender.spares,
            )

    def close(self) -> None:
        """Write and sync what is pending, report it, and end the thread; waits, so not for a loop's own thread.

        Raises:
            LogStoppedError: The writer met an error, now or before, so not everything is durable.
        """
        with self._lock:
            self._closing = True
            self._work.notify()
        self._thread.join()
        if self._failure is not None:
            raise LogStoppedError(self._failure)

    def _run(self) -> None:
        try:
            while batch := self._take():
                self._write(batch)
                if batch.durable:
                    self._appender.sync()
                if self._appender.lacks_spares:
                    self._tell()
                    self._appender.refill()
            self._appender.sync()
            self._tell()
        except Exception as error:  # noqa: BLE001  whatever it is, nothing may be written after it
            with self._lock:
                self._failure = error
                self._pending, self._joined = [], []
            self._on_error(error)
        finally:
            # What a close may fail on has been synced, or was never promised.
            with contextlib.suppress(OSError):
                self._appender.close()

    def _take(self) -> _Batch | None:
        """Wait for submissions and take all of them, none if only room is looked for; None when all is over."""
        if not self._pending:
            self._tell()
        with self._lock:
            while not (self._pending or self._closing or self._looking):
                self._idle = True
                self._work.wait()
            self._idle = False
            if not self._pending and self._closing:
                return None
            self._looking = False
            count = self._submitted_seq - self._taken_seq
            batch = _Batch(self._pending, self._joined, count, self._pending_durable)
            self._pending, self._joined, self._pending_durable = [], [], False
            self._taken_seq = self._submitted_seq
            return batch

    def _write(self, batch: _Batch) -> None:
        """Write a batch as one frame, or as few as the cap allows, and tell of each."""
        if sum(map(len, batch.joined)) <= self._cap - ARRAY_HEADER_BYTES:
            if batch.events:
                self._write_frame(batch.joined, batch.events)
            return
        for events in split_batch(batch.submissions, self._cap):
            self._write_frame(events, len(events))

    def _write_frame(self, events: Sequence[bytes], count: int) -> None:
        appender = self._appender
        first_seq = appender.last_seq + 1
        frame = encode_frame(
            events,
            count,
            log_id=self._log_id,
            first_seq=first_seq,
            incarnation=self._incarnation,
            synced_through=appender.synced_seq,
            boot_id=self._boot_id,
            previous_chain=appender.link(),
        )
        if len(frame) > _SMALL_BYTES or not appender.has_room(frame):
            self._tell()
        appender.append(frame, first_seq + count - 1)
        with self._lock:
            self._frames += 1
            self._events += count
            self._bytes += len(frame)
        self._tell()

    def _tell(self) -> None:
        """Tell what was reached since this was last told."""
        reached = (self._appender.last_seq, self._appender.synced_seq)
        if reached != self._told:
            self._told = reached
            self._on_reached(*reached)


def split_batch(submissions: list[Sequence[bytes]], cap: int) -> Iterator[list[bytes]]:
    """Yield the events of all submissions in as few lists as fit `cap` bytes of payload each.

    A submission begins a new list if it does not fit the open one; only one that is larger than the cap is cut.
    """
    room = cap - ARRAY_HEADER_BYTES
    batch: list[bytes] = []
    used = 0
    for events in submissions:
        length = sum(map(len, events))
        if batch and used + length > room:
            yield batch
            batch, used = [], 0
        if length <= room:
            batch.extend(events)
            used += length
            continue
        for event in events:
            if batch and used + len(event) > room:
                yield batch
                batch, used = [], 0
            batch.append(event)
            used += len(event)
    yield batch
