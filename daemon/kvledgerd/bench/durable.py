"""Durable events: how fast the log makes them so, beside the same writes and syncs made by nothing but a loop.

The peer is told by the cache: what the log writes and syncs in one measurement is recorded, call by call, and the bare
loop that follows makes the same calls with the same lengths on a file that was allocated in the same way.
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
_SYNC: Final = -1


class _Recording(RealLogIO):
    """The real operating system, with a list of what was asked of it: bytes of a write, or `_SYNC`."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """See `LogIO`."""
        self.calls.append(len(data))
        return super().pwrite(fd, data, offset)

    def fdatasync(self, fd: int) -> None:
        """See `LogIO`."""
        self.calls.append(_SYNC)
        super().fdatasync(fd)


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
        self.calls: list[int] = []

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

        def tell(seq: int) -> None:
            loop.call_soon_threadsafe(durable_through, seq)

        def failed(error: BaseException) -> None:
            loop.call_soon_threadsafe(done.set_exception, error)

        writer = await asyncio.to_thread(log.writer, 1, lambda _: None, tell, failed)
        begin = loop.time()
        submit(self._in_flight)
        await done
        return loop.time() - begin


class _Bare:
    """Makes the calls that the log made before it."""

    def __init__(self, directory: Path, log: _Log, events: int) -> None:
        self._log: Final = log
        self._events: Final = events
        self._fd: Final = os.open(directory / "bare", os.O_RDWR | os.O_CREAT)
        self._zeros: Final = memoryview(bytes(_SEGMENT_BYTES))
        self._allocate()

    def rate(self) -> float:
        """Return the events a second that those calls stand for."""
        self._allocate()
        return self._events / timed(self._run)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)

    def _allocate(self) -> None:
        os.ftruncate(self._fd, 0)
        os.posix_fallocate(self._fd, 0, _SEGMENT_BYTES)
        os.fsync(self._fd)

    def _run(self) -> None:
        fd, zeros, offset = self._fd, self._zeros, 0
        for call in self._log.calls:
            if call == _SYNC:
                os.fdatasync(fd)
            else:
                os.pwrite(fd, zeros[:call], offset)
                offset += call


def durable(scale: Scale) -> Iterator[Measured]:
    """Events that are on the device, with some hundred waiting at any time."""
    with tempfile.TemporaryDirectory(prefix="kvl-") as name:
        log = _Log(Path(name), scale.events, scale.in_flight)
        bare = _Bare(Path(name), log, scale.events)
        try:
            pairs = in_turns(log.rate, bare.rate, scale.rounds)
        finally:
            bare.close()
        row, peer = f"durable events, {scale.in_flight} in flight", "the same writes and syncs in a bare loop"
        yield Measured(row, "events a second", peer, Goal(Sense.AT_LEAST, 0.7), pairs)
