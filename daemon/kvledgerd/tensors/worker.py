"""The daemon's tensor worker: keeps one process, gives it jobs, and starts a new one when it dies.

A process is started with the first job, since most daemons never have one; where a GPU is configured it is started with
the daemon, so that a device which can not be used is said at once. One that died over a job is followed by another at
the next job, and then after pauses that grow, during which jobs are refused at once: a job that can not be done costs
its asker a miss, never the daemon anything.
"""

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import msgspec
import structlog

from kvledger.counts import counted
from kvledger.errors import ServiceError
from kvledger_storage.log import EventLog
from kvledgerd.memory.arenas import ArenaTable
from kvledgerd.settings.loading import ConfigError
from kvledgerd.tensor_device import DeviceRefusedError, TensorDevice
from kvledgerd.tensors.jobs import SORTS, Sort, sort_of
from kvledgerd.tensors.messages import Begin, Failed, Job
from kvledgerd.tensors.process import ProcessLostError, TensorProcess

__all__ = ["TensorWorker"]

_PAUSES: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds before the next process, by how many have died one after the other."""
_GIB: Final = 1 << 30

_log = structlog.get_logger(__name__)


class TensorWorker:
    """`prove`, `run` and `close` block, in any thread but the loop's; everything else is called on the loop.

    The kernel kills a process when the thread that started it ends, so the worker has a thread of its own, in which the
    process is started and asked, one job after the other.

    Args:
        device: Where to work.
        arenas: The daemon's arenas.
        log: The log, whose lock the process holds as well.
        seconds: What a job of up to 1 GiB may take; a larger one may take as many times that.
        start: Makes a process.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        device: TensorDevice,
        arenas: ArenaTable,
        log: EventLog,
        seconds: int,
        start: Callable[[int], TensorProcess] = TensorProcess,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._device: Final = device
        self._arenas: Final = arenas
        self._log: Final = log
        self._seconds: Final = seconds
        self._start: Final = start
        self._clock: Final = clock
        self._thread: Final = ThreadPoolExecutor(1, thread_name_prefix="kvledger-tensor")
        self._process: TensorProcess | None = None
        self._stopped = False
        self._lost = 0
        self._next = 0.0
        self._why = ""
        self._counts: Final = Counter[str]()

    def prove(self) -> None:
        """Start a process now; one that dies or hangs over it is tried again with the first job.

        Raises:
            ConfigError: The device can not be used.
        """
        self._thread.submit(self._prove).result()

    def _prove(self) -> None:
        try:
            self._ready()
        except DeviceRefusedError as error:
            self._close()
            raise ConfigError(error.message, field=error.field, remedy=error.remedy) from error
        except (ProcessLostError, OSError) as error:
            self._gone(error)

    def run(self, effect: Any) -> Any:
        """Have an effect's work done and return the command with which it is answered.

        Raises:
            ServiceError: It was not done; nobody writes to the effect's slots any more.
        """
        return self._thread.submit(self._run, effect).result()

    def _run(self, effect: object) -> object:
        sort = sort_of(effect)
        slots = list(sort.slots(effect))
        size = sum(length for _, length in slots)
        try:
            answer = self._ask(sort, effect, {arena for arena, _ in slots}, self._seconds * max(1.0, size / _GIB))
        except ServiceError:
            self._counts[f"{sort.name}_failed"] += 1
            raise
        self._counts[f"{sort.name}_jobs"] += 1
        self._counts[f"{sort.name}_bytes"] += size
        return answer

    def _ask(self, sort: Sort, effect: object, arenas: set[int], seconds: float) -> object:
        try:
            process = self._ready()
            process.give(self._arenas, arenas)
            done = process.ask(Job(sort.name, msgspec.Raw(msgspec.msgpack.encode(effect))), seconds)
            answer = None if isinstance(done, Failed) else msgspec.msgpack.decode(done.answer, type=sort.answer)
        except (ProcessLostError, DeviceRefusedError, msgspec.MsgspecError, OSError) as error:
            raise self._gone(error) from error
        self._lost = 0
        if isinstance(done, Failed):
            raise ServiceError(done.why)
        return answer

    def stop(self) -> None:
        """Let the job that runs fail now, and begin no other; never waits."""
        self._stopped = True
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """End the process; to be called before the log lets go of the lock, and when nobody calls `run` any more."""
        self._thread.submit(self._close).result()
        self._thread.shutdown()

    def _close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def counters(self) -> dict[str, int]:
        """Return what the worker did, by sort of work, and what it works on."""
        found = {"tensor_process": int(self._process is not None), "tensor_gpu": int(self._device.is_gpu)}
        found["tensor_lost"] = self._counts["lost"]
        for name in SORTS:
            found |= {f"tensor_{name}_{what}": self._counts[f"{name}_{what}"] for what in ("jobs", "bytes", "failed")}
        return found

    def notes(self) -> dict[str, str]:
        """Return what an operator has to know of it: why jobs fail, as long as they do."""
        return {"tensor_lost": f"{counted(self._lost, 'time')} in a row, at last: {self._why}"} if self._lost else {}

    def _ready(self) -> TensorProcess:
        """Return the process, started if there is none.

        Raises:
            ServiceError: It is not time for another one.
            DeviceRefusedError: The device can not be used.
            ProcessLostError: It did not come up.
            OSError: So it did not.
        """
        if self._stopped:
            raise ServiceError("the daemon stops", remedy="compute it, or ask again when it is back")
        if self._process is None:
            left = self._next - self._clock()
            if left > 0:
                raise ServiceError(
                    f"the tensor worker has died {counted(self._lost, 'time')} in a row, "
                    f"the next one starts in {left:.0f} s",
                    field="tensor_device",
                    remedy="compute it; the daemon's log says what it died of",
                )
            process = self._process = self._start(self._log.lock_fd)
            if self._stopped:
                process.kill()  # told to stop while it was started
            device = process.greet(Begin(str(self._device), self._log.log_id, self._log.boot_id))
            _log.info("tensor worker ready", device=device, pid=process.pid)
        return self._process

    def _gone(self, error: BaseException) -> ServiceError:
        """End what is left of a process, and return the error of the job that it had."""
        process, self._process = self._process, None
        code = process.end() if process is not None else None
        self._next = self._clock() + _PAUSES[min(self._lost, len(_PAUSES) - 1)]
        self._lost, self._why = self._lost + 1, str(error)
        self._counts["lost"] += 1
        _log.error("tensor worker lost", why=str(error), code=code)
        remedy = "compute it, or ask again; the daemon's log says more"
        return ServiceError(f"the tensor worker is gone: {error}", field="tensor_device", remedy=remedy)
