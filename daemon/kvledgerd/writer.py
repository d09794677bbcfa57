"""The writer loop: the one place where something is decided, applied and recorded.

Everything that changes the cache comes through here, one command after the other, in the thread of the event loop and
without a single `await` between deciding and recording. So there is no lock, a decision sees all decisions before it,
and the order of the log is the order of the decisions.

Three rules about what leaves:

- A reply leaves, and an effect starts, when the events of its decision have reached the class that the core named.
- A decision without events may show what an earlier one did, so its reply waits until that one is written: nobody is
  told of a state that a crash could take back.
- Effects never overtake earlier ones that wait for the log, since a slot's generation has to move before its bytes do.

Commands of clients go through a bounded queue; who finds it full is called when there is room again. What the shell
itself has to say (answers of jobs, engines that ended) is never turned away, because it only ever frees something.

Events of class `session` ride in the next frame. The loop holds them back for a few milliseconds, so that a look-up
does not wake the log's thread, unless something that waits for the log comes along first.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import structlog
from anyio import WouldBlock

from kvledger.errors import KVLedgerError
from kvledger.wire.replies import Reply, StatusReport
from kvledgerd.acknowledge import AckQueue
from kvledgerd.core.commands import Ask, Command
from kvledgerd.core.decision import Ack, Decision, Effect
from kvledgerd.parking import ParkingLot
from kvledgerd.ports import Carrier, Core, Recorder
from kvledgerd.queued import DAEMON, Answer, Queued
from kvledgerd.refusals import failed, internal

__all__ = ["CHECKPOINT_EVENTS", "WriterLoop", "WriterStatistics"]

CHECKPOINT_EVENTS: Final = 4096
"""Events between two checkpoints of the state's digest."""

# Commands decided before the loop gets a turn again: at some 50 us each a few milliseconds.
_SLICE: Final = 64

# How long events of class session wait for company. The client has its answer already; this is what a SIGKILL may cost.
_HOLD_SECONDS: Final = 0.005

_log = structlog.get_logger(__name__)


class WriterStatistics(msgspec.Struct, frozen=True):
    """The writer loop in numbers.

    Attributes:
        capacity: Commands that the queue takes.
        queued: Commands in it.
        parked: Commands that wait for jobs.
        waiting: Replies and effects that wait for the log.
        decided: Commands decided so far.
        faults: Decisions that ended in an exception; each is a bug.
        last_seq: Seq of the last event.
        written_seq: Last seq that survives a crash of the daemon.
        durable_seq: Last seq that survives a power cut.
    """

    capacity: int
    queued: int
    parked: int
    waiting: int
    decided: int
    faults: int
    last_seq: int
    written_seq: int
    durable_seq: int


class WriterLoop:
    """Takes commands, decides, applies, records, and lets replies and effects go when their time has come.

    To be made and used in the thread of the running loop.

    Args:
        core: Decides and keeps the state.
        recorder: Takes the events.
        carrier: Carries the effects out.
        last_seq: Seq of the last event in the log.
        capacity: Commands of clients that may wait.
        on_fatal: Called once with what made going on impossible; nothing is acknowledged after it.
        gauges: Numbers of the shell that a status report shows beside those of the core.
        checkpoint_events: Events between two checkpoints.
    """

    def __init__(
        self,
        core: Core,
        recorder: Recorder,
        carrier: Carrier,
        *,
        last_seq: int,
        on_fatal: Callable[[BaseException], None],
        gauges: Callable[[], dict[str, int]] = dict,
        capacity: int = 4096,
        checkpoint_events: int = CHECKPOINT_EVENTS,
    ) -> None:
        self._core: Final = core
        self._recorder: Final = recorder
        self._carrier: Final = carrier
        self._on_fatal: Final = on_fatal
        self._gauges: Final = gauges
        self._capacity: Final = capacity
        self._checkpoint_events: Final = checkpoint_events
        self._loop: Final = asyncio.get_running_loop()
        self._acks: Final = AckQueue(last_seq)
        self._lot: Final = ParkingLot(self._loop.time, self._last_chance)
        self._queue: Final[deque[Queued]] = deque()
        self._own: Final[deque[Queued]] = deque()
        self._room: Final[deque[Callable[[], None]]] = deque()
        self._held: Final[list[list[bytes]]] = []
        self._hold_timer: asyncio.TimerHandle | None = None
        self._last_seq = self._promised = self._durable_promised = last_seq
        self._since_checkpoint = self._decided = self._faults = 0
        self._scheduled = self._stopped = False

    def __repr__(self) -> str:
        state = "stopped" if self._stopped else f"{len(self._queue)} queued"
        return f"<WriterLoop seq {self._last_seq}, {state}, {len(self._lot)} parked>"

    @property
    def last_seq(self) -> int:
        """Seq of the last event that was decided, written or not."""
        return self._last_seq

    def statistics(self) -> WriterStatistics:
        """Return the loop in numbers."""
        return WriterStatistics(
            capacity=self._capacity,
            queued=len(self._queue),
            parked=len(self._lot),
            waiting=self._acks.waiting,
            decided=self._decided,
            faults=self._faults,
            last_seq=self._last_seq,
            written_seq=self._acks.seq(Ack.WRITTEN),
            durable_seq=self._acks.seq(Ack.DURABLE),
        )

    def submit_nowait(self, command: Command, *, actor: str = DAEMON, answer: Answer | None = None) -> None:
        """Queue a command, if there is room.

        Raises:
            anyio.WouldBlock: There is none; `when_room` tells when to ask again.
        """
        if len(self._queue) >= self._capacity:
            raise WouldBlock
        self._queue.append(Queued(command, actor, answer))
        self._schedule()

    async def submit(self, command: Command, *, actor: str = DAEMON) -> Reply | None:
        """Queue a command, wait for room if need be, and return its reply once its class is reached."""
        done: asyncio.Future[Reply | None] = self._loop.create_future()
        while True:
            try:
                self.submit_nowait(command, actor=actor, answer=partial(_settle, done))
                break
            except WouldBlock:
                room = asyncio.Event()
                self.when_room(room.set)
                await room.wait()
        return await done

    def when_room(self, callback: Callable[[], None]) -> None:
        """Call back once when the queue has room again; it may be full once more by the time somebody uses it."""
        self._room.append(callback)

    def post(self, command: Command, answer: Answer | None = None) -> None:
        """Queue a command of the shell's own, ahead of those of clients; always taken."""
        self._own.append(Queued(command, answer=answer))
        self._schedule()

    def drop_connection(self, connection: int) -> None:
        """Forget the parked commands of a connection that is gone."""
        self._lot.drop_connection(connection)

    def reached(self, ack: Ack, seq: int) -> None:
        """Take in what the log writer reports; in the loop's thread."""
        if not self._stopped:
            self._guarded(partial(self._acks.reached, ack, seq))

    def stop(self, error: BaseException) -> None:
        """Acknowledge nothing from here on, because ``error`` made it impossible to keep a promise."""
        if self._stopped:
            return
        self._stopped = True
        self._lot.clear()
        self._cancel_hold()
        self._on_fatal(error)

    def flush(self) -> None:
        """Hand events that were held back to the log now."""
        self._cancel_hold()
        held, self._held[:] = self._held[:], []
        for events in held:
            self._recorder.submit(events, durable=False)

    async def settled(self) -> None:
        """Wait until nothing is queued, and hand everything to the log."""
        while self._scheduled:  # noqa: ASYNC110  a turn of the loop is all that it takes
            await asyncio.sleep(0)
        self.flush()

    def _schedule(self) -> None:
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        self._guarded(self._slice)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  state, log and memory may disagree now, so nothing may go on
            _log.critical("writer loop stops", exc_info=error)
            self.stop(error)

    def _slice(self) -> None:
        for _ in range(_SLICE):
            if self._stopped or not (self._own or self._queue):
                break
            self._step(self._own.popleft() if self._own else self._queue.popleft())
        while self._room and len(self._queue) < self._capacity:
            self._room.popleft()()
        if self._own or self._queue:
            self._schedule()

    def _step(self, item: Queued) -> None:
        decision = self._decide(item)
        self._record(decision, item.actor)
        self._decided += 1
        for ack, effect in decision.effects:
            self._start(ack, effect, has_events=bool(decision.events))
        if decision.park is None:
            self._reply(item, decision)
        else:
            self._lot.add(item, decision.park)
            if not decision.park.jobs:
                self._own.extend(self._lot.take(item))
        job = getattr(item.command, "job", None)
        if job is not None:
            self._own.extend(self._lot.answered(job))
        if self._since_checkpoint >= self._checkpoint_events:
            self._record(Decision(events=(self._core.checkpoint(),)), DAEMON)
            self._since_checkpoint = 0

    def _decide(self, item: Queued) -> Decision:
        """Return the core's decision; whatever it raises becomes a refusal that changes nothing."""
        try:
            decision = self._core.decide(item.command)
        except KVLedgerError as error:
            return Decision(reply=failed(error))
        except Exception as error:  # noqa: BLE001  a bug must cost its own request and no other
            self._faults += 1
            _log.exception("decision failed", command=type(item.command).__name__, actor=item.actor)
            return Decision(reply=internal(error))
        if decision.park is not None and not (isinstance(item.command, Ask) and not item.command.waited):
            self._faults += 1
            _log.error("parked what can not wait", command=type(item.command).__name__, actor=item.actor)
            return Decision(reply=internal(RuntimeError("the core parked a command that can not wait")))
        return decision

    def _record(self, decision: Decision, actor: str) -> None:
        """Apply the events and hand them to the log. An exception in here is the end: half of them may be applied."""
        if not decision.events:
            return
        stamp = time.time_ns() // 1_000_000
        encoded = [self._core.encode(event, stamp, actor) for event in decision.events]
        for event in decision.events:
            self._core.apply(event)
        self._last_seq += len(encoded)
        self._since_checkpoint += len(encoded)
        classes = [decision.ack, *(ack for ack, _ in decision.effects)]
        if decision.park is None and max(classes) is Ack.SESSION:
            self._hold(encoded)
            return
        self._promised = self._last_seq
        durable = max(classes) is Ack.DURABLE
        if durable:
            self._durable_promised = self._last_seq
        self.flush()
        seq = self._recorder.submit(encoded, durable=durable)
        assert seq == self._last_seq, f"the log counts {seq}, the loop {self._last_seq}"

    def _hold(self, encoded: list[bytes]) -> None:
        self._held.append(encoded)
        if len(self._held) >= _SLICE:
            self.flush()
        elif self._hold_timer is None:
            self._hold_timer = self._loop.call_later(_HOLD_SECONDS, self._guarded, self.flush)

    def _cancel_hold(self) -> None:
        if self._hold_timer is not None:
            self._hold_timer.cancel()
            self._hold_timer = None

    def _start(self, ack: Ack, effect: Effect, *, has_events: bool) -> None:
        action = partial(self._carrier.carry, effect)
        self._acks.run_at(max(ack, Ack.WRITTEN), self._target(ack, has_events=has_events and ack > 0), action)

    def _reply(self, item: Queued, decision: Decision) -> None:
        if item.answer is None:
            return
        reply = decision.reply
        if isinstance(reply, StatusReport):
            reply = msgspec.structs.replace(reply, seq=self._last_seq, counters=reply.counters | self._gauges())
        if decision.events:
            ack, seq = decision.ack, self._last_seq
        else:
            ack, seq = max(decision.ack, Ack.WRITTEN), self._target(decision.ack, has_events=False)
        self._acks.run_at(ack, seq, partial(item.answer, reply))

    def _target(self, ack: Ack, *, has_events: bool) -> int:
        if has_events:
            return self._last_seq
        return self._durable_promised if ack is Ack.DURABLE else self._promised

    def _last_chance(self, item: Queued) -> None:
        assert isinstance(item.command, Ask), "only requests are parked"
        item.command = msgspec.structs.replace(item.command, waited=True)
        self._own.append(item)
        self._schedule()


def _settle(done: asyncio.Future[Reply | None], reply: Reply | None) -> None:
    if not done.done():
        done.set_result(reply)
