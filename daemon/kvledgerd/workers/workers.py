"""Threads for everything that blocks: copies and hashes, the disk, the making of arenas.

A job is a function that returns the command with which it answers. Whatever happens to it, exactly one answer reaches
the loop: a job pins slots until it is answered, so an answer that went missing would leak them for ever. Only what
nobody waits for, such as the removal of dead records, answers with None.

Lanes differ by what they wait for. *Copies* use processor time and run in order for each unit where the ranges of an
object have to arrive one after the other; whole objects are copied side by side. *Disk* is one thread, because the
store's writing side belongs to one. *Reads* wait for the device and may overtake each other, *hashes* use processor
time again; of both there is one lane for each kind, so that a flood of one kind, or a device that hangs under it, never
starves another. *Arenas* wait for the kernel to find memory, once in a while, and for the descriptor store.
*Tensors* waits for the tensor process (`kvledgerd.tensors`), which does one job at a time.
*Upkeep* reads disk records that nobody waits for.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

import structlog

from kvledger.errors import KVLedgerError
from kvledger.kinds import Kind
from kvledgerd.core.commands import Command

__all__ = ["Job", "KindLanes", "Lane", "OrderedLane", "Workers"]

Job = Callable[[], Command | None]
Fallback = Callable[[BaseException], Command | None]

_T = TypeVar("_T")
_log = structlog.get_logger(__name__)


class Lane:
    """A pool of threads whose jobs answer to the loop.

    Args:
        name: Of its threads.
        threads: Jobs that run at the same time.
        post: Takes the answers, on the loop.
    """

    def __init__(self, name: str, threads: int, post: Callable[[Command], None]) -> None:
        self._pool: Final = ThreadPoolExecutor(threads, thread_name_prefix=f"kvledger-{name}")
        self._loop: Final = asyncio.get_running_loop()
        self._post: Final = post
        self._running = 0

    @property
    def running(self) -> int:
        """Jobs that have not been answered."""
        return self._running

    def start(self, job: Job, fallback: Fallback, after: Callable[[], None] | None = None) -> None:
        """Run a job.

        Args:
            job: Runs in a thread and returns the answer.
            fallback: Makes the answer if the job raises.
            after: Called on the loop, just before the answer is posted.
        """
        self.expect()
        self.run(partial(self.work, job, fallback, after))

    def expect(self) -> None:
        """Count a job that `work` will be called for later; on the loop."""
        self._running += 1

    def run(self, call: Callable[[], None]) -> None:
        """Run a call in a thread; dropped if the lane is closed."""
        with contextlib.suppress(RuntimeError):
            self._pool.submit(call)

    def work(self, job: Job, fallback: Fallback, after: Callable[[], None] | None) -> None:
        """Do a job here and now and have it answered on the loop; in one of the lane's threads."""
        try:
            answer = job()
        except Exception as error:  # noqa: BLE001  whatever it was, the job must be answered
            expected = isinstance(error, KVLedgerError | OSError)
            _log.warning("job failed", error=str(error), exc_info=None if expected else error)
            answer = fallback(error)
        # A loop that has been closed meanwhile needs no answer: its state is gone with it.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._done, answer, after)

    async def call(self, act: Callable[[], _T]) -> _T:
        """Do something in a thread of the lane and return what it returned; counted like a job."""
        self.expect()
        try:
            return await self._loop.run_in_executor(self._pool, act)
        finally:
            self._running -= 1

    def close(self) -> None:
        """Wait for the jobs that run, drop those that have not begun; blocks."""
        self._pool.shutdown(cancel_futures=True)

    def _done(self, answer: Command | None, after: Callable[[], None] | None) -> None:
        self._running -= 1
        if after is not None:
            after()
        if answer is not None:
            self._post(answer)


class OrderedLane:
    """A lane in which jobs with the same key run one after the other; others run beside them.

    The thread that ends a job starts the next one of its key: to go through the loop would leave the thread idle for a
    turn of it after every job. It starts it behind what other keys have waiting, so that nobody waits for a long queue.
    """

    def __init__(self, lane: Lane) -> None:
        self._lane: Final = lane
        self._waiting: Final[dict[int, deque[Callable[[], None]]]] = {}
        self._guard: Final = threading.Lock()  # held for an append or a pop, also on the loop

    @property
    def running(self) -> int:
        """Jobs of the lane that have not been answered, those that wait for their turn included."""
        return self._lane.running

    def start(self, key: int | None, job: Job, fallback: Fallback, after: Callable[[], None]) -> None:
        """Run a job after all earlier ones with its key, at once if it has none; see `Lane.start`."""
        self._lane.expect()
        call = partial(self._lane.work, job, fallback, after)
        if key is None:
            self._lane.run(call)
            return
        with self._guard:
            if key in self._waiting:
                self._waiting[key].append(call)
                return
            self._waiting[key] = deque()
        self._lane.run(partial(self._turn, key, call))

    def _turn(self, key: int, call: Callable[[], None]) -> None:
        """Do one job in a thread, then hand the next one of its key to whichever thread is free."""
        call()
        with self._guard:
            if not self._waiting[key]:
                del self._waiting[key]
                return
            following = self._waiting[key].popleft()
        self._lane.run(partial(self._turn, key, following))


class KindLanes:
    """One lane for each kind, each with a queue and threads of its own; threads begin with the first job.

    Args:
        name: Of the threads.
        threads: Jobs of one kind that run at the same time.
        post: Takes the answers, on the loop.
    """

    def __init__(self, name: str, threads: int, post: Callable[[Command], None]) -> None:
        self._lanes: Final = {kind: Lane(f"{name}-{kind.name.lower()}", threads, post) for kind in Kind}

    def __getitem__(self, kind: Kind) -> Lane:
        return self._lanes[kind]

    @property
    def running(self) -> int:
        """Jobs of all kinds that have not been answered."""
        return sum(lane.running for lane in self._lanes.values())

    def close(self) -> None:
        """Close all lanes; blocks until the jobs that run are done."""
        for lane in self._lanes.values():
            lane.close()


class Workers:
    """All lanes of a daemon; made on the running loop.

    Args:
        post: Takes the answers.
        copies: Threads that copy, and hash what they copied.
        reads: Threads that read from disk, for each kind.
    """

    def __init__(self, post: Callable[[Command], None], *, copies: int, reads: int) -> None:
        self._copy_lane: Final = Lane("copy", copies, post)
        self.copies: Final = OrderedLane(self._copy_lane)
        self.hashes: Final = KindLanes("hash", 1, post)
        self.disk: Final = Lane("disk", 1, post)
        self.reads: Final = KindLanes("read", reads, post)
        self.arenas: Final = Lane("arena", 1, post)
        self.tensors: Final = Lane("tensor", 1, post)
        self.upkeep: Final = Lane("upkeep", 1, post)

    def running(self) -> dict[str, int]:
        """Return the number of jobs without an answer, by lane."""
        return {
            "jobs_copy": self.copies.running,
            "jobs_disk": self.disk.running,
            "jobs_read": self.reads.running,
            "jobs_hash": self.hashes.running,
            "jobs_arena": self.arenas.running,
            "jobs_tensor": self.tensors.running,
            "jobs_upkeep": self.upkeep.running,
        }

    def close(self) -> None:
        """End all threads; blocks until the jobs that run are done."""
        last = (self.arenas, self.tensors, self.upkeep)
        for lane in (self._copy_lane, self.disk, self.reads, self.hashes, *last):
            lane.close()
