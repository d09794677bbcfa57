"""Putting the parts of one incarnation together, in the one order in which they know of each other."""

import asyncio
import contextlib
import resource
from collections.abc import Callable
from functools import partial
from typing import Final

from kvledger.memfd import has_shared_huge_pages
from kvledger_storage.disk.store import DiskStore
from kvledger_storage.log import EventLog
from kvledger_storage.log.frame import ARRAY_HEADER_BYTES
from kvledger_storage.log.segment import payload_cap
from kvledgerd.core.commands import Command
from kvledgerd.core.state import State
from kvledgerd.keeper.notify import Notifier
from kvledgerd.life.census import PrefixCensus
from kvledgerd.life.disk_care import DiskCare
from kvledgerd.life.drill import Drill
from kvledgerd.life.loop_lag import LoopLag
from kvledgerd.life.recovery import Recovered
from kvledgerd.life.retention import Retention
from kvledgerd.life.topology_watch import TopologyWatch
from kvledgerd.life.warming import Warmer
from kvledgerd.loop.interest import Interest
from kvledgerd.loop.live_core import LiveCore
from kvledgerd.loop.log_space import LogSpace
from kvledgerd.loop.ports import Recorder
from kvledgerd.loop.queued import Answer
from kvledgerd.loop.writer import WriterLoop
from kvledgerd.memory.arenas import ArenaTable
from kvledgerd.memory.rings import RingTable
from kvledgerd.server.admission import Admission
from kvledgerd.server.engines import EngineRegistry
from kvledgerd.server.limits import Most, UserLimits, connections_of_each
from kvledgerd.server.outbox import Outbox
from kvledgerd.server.server import Server
from kvledgerd.server.services import ConnectionLimits, Identity, Services
from kvledgerd.settings.disk_sizes import cleaning_reserve
from kvledgerd.settings.table import Config
from kvledgerd.tensors.worker import TensorWorker
from kvledgerd.workers.background import Background
from kvledgerd.workers.breaker import Breaker
from kvledgerd.workers.disk_jobs import DiskJobs
from kvledgerd.workers.effects import EffectCarrier
from kvledgerd.workers.memory_jobs import ArenaMaker, SlotFiller
from kvledgerd.workers.room import WriteRoom
from kvledgerd.workers.scrubber import Scrubber
from kvledgerd.workers.upkeep import Upkeep
from kvledgerd.workers.workers import Workers

__all__ = ["Assembly"]


class Assembly:
    """The parts of a running daemon; made on its loop.

    Args:
        config: The settings.
        recovered: What the data directory gave.
        notifier: Speaks to the service manager.
        recorder: The log's writer.
        on_fatal: Called with what made going on impossible.

    Attributes:
        arenas: All arenas.
        rings: All staging rings.
        loop_lag: How late the loop is.
        census: Counts prefixes by their state.
        engines: All living engines.
        topologies: Watches the processes that topologies name.
        workers: All threads.
        tensors: Works on tensors, in a process of its own.
        background: The queues of disk work.
        writer: The writer loop.
        server: The listening socket and its connections.
        warmer: Brings back what was hot.
        breaker: Stops restores that keep failing.
        retention: Looks after the log's past.
        care: Looks after the disk tier.
        scrubber: Verifies what lies on disk.
        drill: Tries whether all of it works.
    """

    def __init__(
        self,
        config: Config,
        recovered: Recovered,
        notifier: Notifier,
        recorder: Recorder,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        log = recovered.log
        self.loop_lag = LoopLag()
        self._loop: Final = asyncio.get_running_loop()
        self._core: Final = LiveCore(recovered.state)
        self.census: Final = PrefixCensus(recovered.state)
        self._recorder: Final = recorder
        self._space: Final = LogSpace(recorder, self._make_room)
        self._outbox: Final = Outbox()
        self.arenas: Final = ArenaTable()
        self.rings: Final = RingTable(
            cap_bytes=config.ring_bytes, tenant_bytes=config.staging_bytes, user_bytes=config.uid_staging_bytes
        )
        self.workers: Final = Workers(self._post, copies=config.copy_workers, reads=config.read_workers)
        self.tensors: Final = TensorWorker(config.tensor_device, self.arenas, log, config.tensor_seconds)
        interest = Interest()
        room = WriteRoom(self._wake_care)
        self.background: Final = self._background(config, recovered.store, interest, room)
        carrier = self._carrier(recovered, notifier)
        self.writer: Final = self._writer(config, carrier, interest, log.last_seq, on_fatal)
        self.retention: Final = self._retention(config, log)
        self.care: Final = self._care(config, recovered.store, room)
        self.breaker: Final = self._breaker(config, recovered.state)
        busy, runs = (lambda: self.background.is_awaited), recovered.state.jobs.__contains__
        self.warmer: Final = Warmer(self.writer.submit, runs, busy, config.warm_bytes_per_second)
        self.drill: Final = self._drill(config)
        self._users: Final = _user_limits(config, recovered.state.config.tenants)
        self.engines: Final = EngineRegistry(self._post, self._core.engine_number)
        self.topologies: Final = TopologyWatch(recovered.state.topologies.values, self._post)
        self.server: Final = self._server(config, recovered)

    def _writer(
        self,
        config: Config,
        carrier: EffectCarrier,
        interest: Interest,
        last_seq: int,
        on_fatal: Callable[[BaseException], None],
    ) -> WriterLoop:
        return WriterLoop(
            self._core,
            self._recorder,
            carrier,
            last_seq=last_seq,
            on_fatal=on_fatal,
            gauges=self.gauges,
            notes=self.notes,
            interest=interest,
            progress=self.background.progress,
            admit=self._space.admit,
            turn=self._outbox,
            capacity=config.queue_commands,
            event_bytes_max=payload_cap(config.log_segment_bytes) - ARRAY_HEADER_BYTES,
        )

    def _retention(self, config: Config, log: EventLog) -> Retention:
        return Retention(
            config.data_dir,
            log,
            archive_bytes=config.archive_bytes,
            room_bytes=config.log_segment_bytes + config.disk_segment_bytes,
            ask=self.writer.submit,
            space=self._space,
        )

    def _server(self, config: Config, recovered: Recovered) -> Server:
        identity = Identity(recovered.incarnation, recovered.log.log_id, recovered.secret)
        parts = (identity, self.writer, self.engines, self.arenas, self.rings, self._users, self._outbox)
        return Server(Services(*parts, ConnectionLimits(), Admission(config.access, recovered.state.orders.keys)))

    def _drill(self, config: Config) -> Drill:
        ask = partial(self.writer.submit, actor="drill")
        parts = (self._core.engine_number, self.rings, self.arenas, config.drill_seconds)
        return Drill(ask, self.writer.post, *parts)

    def _background(self, config: Config, store: DiskStore, interest: Interest, room: WriteRoom) -> Background:
        tensors = self.tensors if config.tensor_device.is_gpu else None  # a CPU has a thread for each kind already
        disk = DiskJobs(store, self.arenas, config.read_seconds, cleaning_reserve(config), tensors)
        limits = {"pieces": config.read_workers, "bytes_max": config.queue_bytes}
        return Background(self.workers, disk, self._post, interest, room, **limits)

    def _carrier(self, recovered: Recovered, notifier: Notifier) -> EffectCarrier:
        log = recovered.log
        return EffectCarrier(
            self._post,
            self.workers,
            self.rings,
            SlotFiller(self.arenas),
            ArenaMaker(self.arenas, notifier, log.log_id, log.boot_id),
            self.tensors,
            self.background,
            lambda run: self.warmer.begin(run),  # noqa: PLW0108  the warmer asks the writer, which carries this out
            log,
        )

    def _breaker(self, config: Config, state: State) -> Breaker:
        return Breaker(
            self.writer.post,
            lambda: bool(state.degraded),
            failures=config.degrade_failures,
            window=config.degrade_seconds,
            pause=config.probe_seconds,
        )

    def _care(self, config: Config, store: DiskStore, room: WriteRoom) -> DiskCare:
        upkeep = Upkeep(store, self.workers, self.writer.submit)
        tier = self._core.tier
        scrubber = self.scrubber = Scrubber(
            upkeep, tier, bytes_per_second=config.scrub_bytes_per_second, seconds=config.scrub_seconds
        )
        again = self.background.write
        return DiskCare(upkeep, scrubber, room, tier, self._post, again, cleaning_reserve(config))

    def gauges(self, tenant: str = "") -> dict[str, int]:
        """Return the numbers of the shell, for status reports: one tenant's, or all."""
        if tenant:
            own = {"staging_bytes": self.rings.of_tenant(tenant), "staging_cap_bytes": self.rings.tenant_bytes}
            return own | self._core.hits.counters(tenant) | self.drill.counters()
        statistics = self.writer.statistics()
        return {
            "loop_lag_micros": self.loop_lag.micros,
            "connections": self._users.connections,
            "requests_in_flight": self._users.in_flight,
            "queue_commands": statistics.queued,
            "queue_parked": statistics.parked,
            "queue_waiting": statistics.waiting,
            "decisions": statistics.decided,
            "decision_faults": statistics.faults,
            "log_written_seq": statistics.written_seq,
            "log_durable_seq": statistics.durable_seq,
            "log_spares": self._recorder.spares,
            "staging_bytes": self.rings.bytes,
            "staging_cap_bytes": self.rings.tenant_bytes,
            "huge_pages": int(has_shared_huge_pages()),
            **self.care.counters(),
            **self._core.hits.counters(),
            **self._core.ended.counters(),
            **self.census.counters(),
            "restores_failed_lately": self.breaker.recent,
            **self.workers.running(),
            **self.tensors.counters(),
            **self.background.counters(),
            **self.warmer.counters(),
            **self.drill.counters(),
        }

    def notes(self, tenant: str = "") -> dict[str, str]:
        """Return what the shell has to say in words: to one tenant of what is its own, or all."""
        return self.drill.notes() | ({} if tenant else self.tensors.notes())

    def unsaved(self) -> list[int]:
        """Return the cells of which something would be lost with the memory, most recently used first."""
        return self._core.unsaved()

    def look_for_room(self) -> None:
        """Let the log try again for room on its disk, if it is short of it."""
        if self._space.is_short:
            self._recorder.look_for_room()

    def _wake_care(self) -> None:
        """Look at the disk tier soon; safe in any thread, also when the loop has ended."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.care.look)

    def _make_room(self) -> None:
        self.retention.look()

    def _post(self, command: Command, answer: Answer | None = None) -> None:
        self.breaker.note(command)
        self.writer.post(command, answer)


def _user_limits(config: Config, tenants: int) -> UserLimits:
    """Return the limits by uid; of several tenants none may take the queue or the descriptors from the others."""
    connections, in_flight = Most(config.uid_connections), Most(config.uid_requests)
    frame_bytes = Most(config.uid_frame_bytes)
    if tenants > 1:
        descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        connections = connections._replace(tenant=connections_of_each(tenants, descriptors))
        in_flight = in_flight._replace(tenant=config.queue_commands // tenants)
        frame_bytes = frame_bytes._replace(tenant=config.uid_frame_bytes)
    return UserLimits(connections=connections, in_flight=in_flight, frame_bytes=frame_bytes)
