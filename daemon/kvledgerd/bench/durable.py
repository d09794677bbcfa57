"""Durable events: how fast the log makes them so, beside the same writes and syncs made by nothing but a loop.

An event counts when the loop that asked has been told that it is on the device: that is the moment at which a reply of
class durable leaves. Between the two lie all that the log promises: every event is checked, joined to a frame with two
sums and a place in the chain, written, synced, noted in the mark, and told from one thread to the other.

The peer is told by the cache: what the log writes and syncs in one measurement is recorded, call by call, and the bare
loop that follows makes the same calls, with the same lengths at the same offsets of files that were allocated in the
same way. It has nothing to check, sum, hash or tell, and no second thread; so 1 is out of reach, and the faster the
device, the more the difference shows. Both are compared within milliseconds of each other on the same file system.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kvledger_storage.events import Offloaded, encode
from kvledger_storage.log import EventLog, RealLogIO
from kvledgerd.bench.contents import require
from kvledgerd.bench.figures import Goal, Measured, Sense
from kvledgerd.bench.rounds import in_turns, timed
from kvledgerd.bench.scale import Scale
from kvledgerd.loop.writer import TURN

__all__ = ["durable"]

_SEGMENT_BYTES: Final = 16 << 20


_Call = tuple[int, int | None, int]
"""Descriptor, length and offset of a write; a sync has no length."""


class _Recording(RealLogIO):
    """The real operating system, with a list of what was asked of it; as little as can be, for the log is timed."""

    def __init__(self) -> None:
        self.calls: list[_Call] = []

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """See `LogIO`."""
        self.calls.append((fd, len(data), offset))
        return os.pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        """See `LogIO`."""
        self.calls.append((fd, None, 0))
        os.fdatasync(fd)


class _Log:
    """Submits durable events as the writer loop does: so many at a time, those of one turn of the loop together.

    Args:
        directory: Where logs are made, one for each measurement.
        events: Events of one measurement.
        in_flight: Events that wait at the same time.
    """

    def __init__(self, directory: Path, events: int, in_flight: int) -> None:
        self._directory: Final = directory
        self._events: Final = events
        self._in_flight: Final = in_flight
        self._event: Final = encode(Offloaded(7, ((1, 4096, 1 << 20),) * 2, (1, 8192, 512)), 1, "daemon")
        self.calls: list[_Call] = []

    def rate(self) -> float:
        """Return the events that became durable a second."""
        path = self._directory / "log"
        io = _Recording()
        with EventLog.open(path, io=io, segment_bytes=_SEGMENT_BYTES) as log:
            io.calls.clear()
            seconds = asyncio.run(self._run(log))
            self.calls = list(io.calls)
            require(log.last_seq == self._events, f"{self._events} events in the log, not {log.last_seq}")
        shutil.rmtree(path)
        return self._events / seconds

    async def _run(self, log: EventLog) -> float:
        loop = asyncio.get_running_loop()
        done, left, due, reached = loop.create_future(), self._events, 0, 0

        def turn() -> None:
            nonlocal left, due
            submissions = [(self._event,) for _ in range(min(due, left, TURN))]
            if submissions:
                writer.submit(submissions, durable=True)
                left, due = left - len(submissions), due - len(submissions)
                loop.call_soon(turn)

        def submit(count: int) -> None:
            nonlocal due
            idle, due = not due, due + count
            if idle:
                turn()

        def durable_through(seq: int) -> None:
            nonlocal reached
            newly, reached = seq - reached, seq
            submit(newly)
            if reached == self._events:
                done.set_result(None)

        def tell(_: int, durable: int) -> None:
            loop.call_soon_threadsafe(durable_through, durable)

        def failed(error: BaseException) -> None:
            loop.call_soon_threadsafe(done.set_exception, error)

        writer = await asyncio.to_thread(log.writer, 1, tell, failed)
        begin = loop.time()
        submit(self._in_flight)
        await done
        return loop.time() - begin


class _Bare:
    """Makes the calls that the log made before it."""

    def __init__(self, directory: Path, log: _Log, events: int) -> None:
        self._directory: Final = directory
        self._log: Final = log
        self._events: Final = events
        self._zeros: Final = memoryview(bytes(_SEGMENT_BYTES))

    def rate(self) -> float:
        """Return the events a second that those calls stand for."""
        files = {fd: self._allocated(fd) for fd in sorted({fd for fd, _, _ in self._log.calls})}
        calls = [(files[fd], length, offset) for fd, length, offset in self._log.calls]
        try:
            return self._events / timed(lambda: self._run(calls))
        finally:
            for fd in files.values():
                os.close(fd)

    def _allocated(self, number: int) -> int:
        fd = os.open(self._directory / f"bare-{number}", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        os.posix_fallocate(fd, 0, _SEGMENT_BYTES)
        os.fsync(fd)
        return fd

    def _run(self, calls: list[_Call]) -> None:
        zeros = self._zeros
        for fd, length, offset in calls:
            if length is None:
                os.fdatasync(fd)
            else:
                os.pwrite(fd, zeros[:length], offset)


def durable(scale: Scale) -> Iterator[Measured]:
    """Events that are on the device, with some hundred waiting at any time."""
    with tempfile.TemporaryDirectory(prefix="kvl-") as name:
        log = _Log(Path(name), scale.events, scale.in_flight)
        pairs = in_turns(log.rate, _Bare(Path(name), log, scale.events).rate, scale.rounds)
        row, peer = f"durable events, {scale.in_flight} in flight", "the same writes and syncs in a bare loop"
        yield Measured(row, "events a second", peer, Goal(Sense.AT_LEAST, 0.7), pairs)
