"""The daemon, from the first descriptor to the last sync.

Start-up is a sequence in which each step rests on the one before: settings, the log with its lock, the replay, the
arenas that survived, the start of the new incarnation (an event), the generation tables, and only then the first
connection. So nobody ever holds a handle that an earlier incarnation gave out and this one has not overwritten.
"""

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NoReturn

import structlog

from kvledger.memfd import PAGE_BYTES
from kvledger_storage.adoption import store_name
from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.log import LogRotError, LogWriter
from kvledgerd import logs
from kvledgerd.collector import keep_for_good
from kvledgerd.core.commands import Adopted, MemoryDue, RecordsLost, Start, Stop
from kvledgerd.core.config import DRILL_TENANT, DiskWritePolicy
from kvledgerd.core.decision import Ack, WarmUp
from kvledgerd.core.placement.sureness import tenants_with_arenas
from kvledgerd.exits import Exit, exit_of
from kvledgerd.keeper.listener import bound
from kvledgerd.keeper.notify import Notifier, listen_fds, watchdog_seconds
from kvledgerd.life.assembly import Assembly
from kvledgerd.life.companion import Companion
from kvledgerd.life.holding import hold
from kvledgerd.life.live_settings import tell
from kvledgerd.life.recovery import Recovered, recover
from kvledgerd.life.reloading import Reloading
from kvledgerd.life.saving import save
from kvledgerd.life.watchdog import Watchdog
from kvledgerd.loop.live_core import live_records
from kvledgerd.server.waiting_room import WaitingRoom
from kvledgerd.settings.table import Config
from kvledgerd.snapshots.process import SnapshotProcess

__all__ = ["run"]

# How late an engine may be found silent; nothing else depends on it.
_SWEEP_SECONDS: Final = 1.0

_log = structlog.get_logger(__name__)


def run(config: Config, reread: Callable[[], Config]) -> Exit:
    """Run the daemon until it is told to stop; returns why it ended.

    To be called in the main thread. Takes the sockets that the service manager passes, and binds the others itself.

    Args:
        config: The settings.
        reread: Returns them as they are by then, when SIGHUP comes.
    """
    logs.configure(json=config.json_log)
    # By default it would end a daemon that is still starting
    hangups: list[int] = []
    signal.signal(signal.SIGHUP, lambda number, _: hangups.append(number))
    try:
        notifier = Notifier.from_environment()
        passed = listen_fds()
        with _listeners(config, passed) as listeners:
            with WaitingRoom(list(listeners.values())) as room:
                try:
                    recovered = recover(config, passed, partial(_tell, (room.status, notifier.status)))
                except LogRotError as error:
                    if config.exit_on_damage:
                        raise
                    return hold(error.problem, config.data_dir / "log", passed, room, notifier)
            logs.configure(json=config.json_log, incarnation=recovered.incarnation)
            return asyncio.run(_Daemon(config, recovered, notifier, reread).serve(listeners, hangups))
    except Exception as error:  # noqa: BLE001  the outermost frame: every end gets its code and its line
        code = exit_of(error)
        _log.critical("daemon ends", code=int(code), why=str(error), exc_info=code is Exit.FAULT)
        return code


def _report(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log what asyncio has to say, such as that it can accept nothing for want of descriptors."""
    _log.error("event loop", why=context["message"], exc_info=context.get("exception"))


def _tell(listeners: Sequence[Callable[[str], object]], text: str) -> None:
    for listener in listeners:
        listener(text)


@contextlib.contextmanager
def _listeners(config: Config, passed: dict[str, list[int]]) -> Iterator[Mapping[str, socket.socket]]:
    """Yield the listening sockets by name; those that were passed are taken out of `passed`."""
    with contextlib.ExitStack() as stack:
        found: dict[str, socket.socket] = {}
        for where in config.listening:
            mine = passed.pop(where.name, [])
            for extra in mine[1:]:
                os.close(extra)
            one = socket.socket(fileno=mine[0]) if mine else bound(where)
            found[where.name] = stack.enter_context(one)
        yield found


def _companions(config: Config) -> list[Companion]:
    """Return what runs beside the daemon; the page shows what the follower tells."""
    data, found = ["--data", str(config.data_dir)], []
    if config.audit_follow or config.http:
        found.append(Companion("the audit follower", ["audit", "follow", *data]))
    if config.http:
        words = ["page", "--http", config.http, "--socket", str(config.socket), *data]
        found.append(Companion("the page", words))
    return found


class _Daemon:
    """One incarnation on its loop."""

    def __init__(self, config: Config, recovered: Recovered, notifier: Notifier, reread: Callable[[], Config]) -> None:
        self._config = config
        self._recovered: Final = recovered
        self._notifier: Final = notifier
        self._reread: Final = reread
        self._snapshots: Final = SnapshotProcess(
            config.data_dir, config.snapshot_events, recovered.snapshot_seq, self._snapshot_made
        )
        self._companions: Final = _companions(config)
        self._stop = asyncio.Event()

    async def serve(self, listeners: Mapping[str, socket.socket], hangups: Collection[int]) -> Exit:
        """Serve until a signal or a failure ends it; a hangup that came during the start is heeded when it is over."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.set_exception_handler(_report)
        recorder = await asyncio.to_thread(self._start_log, loop)
        assembly = Assembly(self._config, self._recovered, self._notifier, recorder, self._fail)
        self._assembly = assembly
        if self._config.tensor_device.is_gpu:
            self._notifier.status(f"waking {self._config.tensor_device}")
            await assembly.workers.tensors.call(assembly.tensors.prove)
        await self._begin(assembly)
        await assembly.server.start(listeners)
        self._notifier.ready(f"serving at {self._config.socket}")
        _log.info("ready", socket=str(self._config.socket), arenas=len(assembly.arenas), pid=os.getpid())
        self._warm_up(assembly)
        holding = partial(tenants_with_arenas, self._recovered.state)
        reloading = Reloading(self._config, self._reread, self._change, holding)
        loop.add_signal_handler(signal.SIGHUP, reloading.wake)
        if hangups:
            reloading.wake()
        helpers = [
            asyncio.create_task(reloading.run()),
            asyncio.create_task(self._sweep()),
            *self._watchdog(),
            *(asyncio.create_task(companion.run()) for companion in self._companions),
            asyncio.create_task(assembly.drill.run(), name="drill"),
        ]
        await self._stop.wait()
        for helper in helpers:
            helper.cancel()
        return await self._end(assembly)

    def _warm_up(self, assembly: Assembly) -> None:
        """Begin to bring back what was hot, of each tenant as much as of any other."""
        tenants = [tenant for tenant in self._recovered.state.orders if tenant != DRILL_TENANT]
        for tenant in tenants if self._config.warm_percent else ():
            part = self._config.memory_bytes * self._config.warm_percent // 100 // len(tenants)
            assembly.warmer.begin(WarmUp(tenant, b"", b"", part))

    def _start_log(self, loop: asyncio.AbstractEventLoop) -> LogWriter:
        def tell(written: int, durable: int) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._reached, written, durable)

        def failed(error: BaseException) -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._fail, error)

        return self._recovered.log.writer(self._recovered.incarnation, tell, failed)

    def _reached(self, written: int, durable: int) -> None:
        self._assembly.writer.reached(Ack.WRITTEN, written)
        self._assembly.writer.reached(Ack.DURABLE, durable)

    def _fail(self, error: BaseException) -> NoReturn:
        """End at once: nothing may be acknowledged any more, and a thread may hang in the call that failed."""
        code = exit_of(error)
        _log.critical("daemon ends", code=int(code), why=str(error))
        os._exit(code)

    async def _begin(self, assembly: Assembly) -> None:
        """Start the incarnation: the event, the generation tables, the records that are alive."""
        recovered = self._recovered
        log = recovered.log
        start = Start(
            incarnation=recovered.incarnation,
            boot_id=log.boot_id,
            log_id=log.log_id,
            arenas=tuple(sorted(recovered.adoption.arenas)),
            tail_repaired=log.repaired is not None,
        )
        await assembly.writer.submit(start)
        lost = await asyncio.to_thread(self._adopt, assembly)
        if lost:
            await assembly.writer.submit(RecordsLost(lost, "no file holds it at the start", "start"))
        assembly.writer.post(Adopted())
        assembly.topologies.look()
        keep_for_good()

    def _adopt(self, assembly: Assembly) -> tuple[BlobRef, ...]:
        """Take over what survived; returns the records that are gone from disk."""
        state = self._recovered.state
        for arena_id, arena in self._recovered.adoption.arenas.items():
            assembly.arenas.add(arena)
            live = (
                (offset // PAGE_BYTES, -(-length // PAGE_BYTES), number)
                for offset, length, number in state.generations(arena_id)
            )
            arena.rewrite_table(live, free=state.serial - 1)
        if self._notifier.present:
            self._tidy_store()
        lost = self._recovered.store.adopt(live_records(state))
        if lost:
            _log.warning("records are gone from disk", records=len(lost))
        return tuple(lost)

    def _tidy_store(self) -> None:
        """Have the store forget what was refused; it forgets by name, so what shares one is stored anew."""
        adoption = self._recovered.adoption
        for arena_id in adoption.arenas:
            self._notifier.assume_stored(1, store_name(arena_id))
        for name in {name for name, _ in adoption.refused}:
            self._notifier.assume_stored(1, name)
            self._notifier.remove(name)
            kept = [arena.fd for arena in adoption.arenas.values() if store_name(arena.arena_id) == name]
            if kept:
                self._notifier.store(name, kept)
        if adoption.refused:
            self._notifier.barrier()

    def _watchdog(self) -> list[asyncio.Task[None]]:
        seconds = watchdog_seconds()
        if seconds is None:
            return []
        watchdog = Watchdog(self._notifier.watchdog, self._assembly.writer.statistics)
        return [asyncio.create_task(watchdog.run(seconds))]

    def _change(self, config: Config) -> int:
        """Go by other settings; returns how many connections end by them."""
        self._config = config
        self._snapshots.every = config.snapshot_events
        return tell(self._assembly, config)

    async def _sweep(self) -> None:
        while True:
            await self._assembly.loop_lag.sleep(_SWEEP_SECONDS)
            self._assembly.engines.find_silent(self._config.silence_seconds)
            self._assembly.topologies.look()
            self._assembly.look_for_room()
            self._assembly.census.look()
            self._assembly.writer.post(MemoryDue())
            self._assembly.retention.look()
            self._assembly.care.look()
            self._assembly.breaker.look()
            self._snapshots.look(self._assembly.writer.last_seq)

    def _snapshot_made(self) -> None:
        self._assembly.retention.wake()

    async def _end(self, assembly: Assembly) -> Exit:
        self._notifier.stopping()
        self._snapshots.stop()
        for companion in self._companions:
            companion.stop()
        assembly.retention.stop()
        assembly.topologies.close()
        assembly.warmer.stop()
        await assembly.server.stop(self._config.stop_seconds)
        if self._config.disk_write is not DiskWritePolicy.ASKED and self._config.stop_write_seconds:
            await save(assembly.writer.submit, assembly.unsaved, self._config.stop_write_seconds)
        await assembly.care.stop()  # not before: what is written may have to wait for the cleaner
        assembly.tensors.stop()
        # An effect that waits for a sync still needs the workers
        await assembly.writer.acknowledged()
        await asyncio.to_thread(assembly.workers.close)
        await asyncio.to_thread(assembly.tensors.close)  # it holds the lock, too
        await assembly.writer.settled()
        await assembly.writer.submit(Stop())
        await asyncio.to_thread(self._recovered.log.close)
        _log.info("stopped", last_seq=assembly.writer.last_seq)
        return Exit.DONE
