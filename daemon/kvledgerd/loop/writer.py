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
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Final

import msgspec
import structlog
from anyio import WouldBlock

from kvledger.errors import GenerationError, KVLedgerError, LeaseLost, LimitError
from kvledger.wire.replies import Failed, Pending, Reply, StatusReport
from kvledgerd.core.commands import Ask, Caller, Command, ConnectionEnded
from kvledgerd.core.decision import Ack, Decision, Effect
from kvledgerd.loop.acknowledge import AckQueue
from kvledgerd.loop.interest import Interest
from kvledgerd.loop.journal import Journal
from kvledgerd.loop.parking import ParkingLot
from kvledgerd.loop.ports import Carrier, Core, Recorder
from kvledgerd.loop.queued import DAEMON, Answer, Queued
from kvledgerd.loop.refusals import failed, internal
from kvledgerd.loop.writer_statistics import WriterStatistics

__all__ = ["CHECKPOINT_EVENTS", "TURN", "WriterLoop"]

CHECKPOINT_EVENTS: Final = 4096
"""Events between two checkpoints of the state's digest."""

TURN: Final = 64
"""Commands decided before the loop gets a turn again: at some 50 us each a few milliseconds."""
# How often a daemon that stops looks whether a sync has returned.
_ACKNOWLEDGED_SECONDS: Final = 0.002

_log = structlog.get_logger(__name__)
_RECEIPT_CODES: Final = (GenerationError.code, LeaseLost.code)


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
        gauges: Returns the shell's numbers that a status report shows beside the core's: one tenant's, or all if empty.
        notes: What it says in words beside them, to whom it is told the same way.
        interest: Is told who waits for which job.
        progress: Returns of a job how many objects, and bytes, it has done.
        checkpoint_events: Events between two checkpoints.
        event_bytes_max: Largest event that the log takes; a request that leads to a larger one is refused.
        admit: Raises a typed error for a decision that may not be carried out now.
        turn: Entered for each turn in which replies may leave.
    """

    def __init__(
        self,
        core: Core,
        recorder: Recorder,
        carrier: Carrier,
        *,
        last_seq: int,
        on_fatal: Callable[[BaseException], None],
        gauges: Callable[[str], dict[str, int]] = lambda _: {},
        notes: Callable[[str], dict[str, str]] = lambda _: {},
        interest: Interest | None = None,
        progress: Callable[[int], tuple[int, int]] = lambda _: (0, 0),
        capacity: int = 4096,
        checkpoint_events: int = CHECKPOINT_EVENTS,
        event_bytes_max: int = 1 << 22,
        admit: Callable[[Command, Decision], None] = lambda *_: None,
        turn: AbstractContextManager[None] | None = None,
    ) -> None:
        self._core: Final = core
        self._admit: Final = admit
        self._turn: Final = nullcontext() if turn is None else turn
        self._carrier: Final = carrier
        self._on_fatal: Final = on_fatal
        self._gauges: Final = gauges
        self._notes: Final = notes
        self._interest: Final = Interest() if interest is None else interest
        self._progress: Final = progress
        self._capacity: Final = capacity
        self._checkpoint_events: Final = checkpoint_events
        self._event_bytes_max: Final = event_bytes_max
        self._loop: Final = asyncio.get_running_loop()
        self._acks: Final = AckQueue(last_seq)
        self._lot: Final = ParkingLot(self._loop.time, self._last_chance)
        self._queue: Final[deque[Queued]] = deque()
        self._own: Final[deque[Queued]] = deque()
        self._room: Final[deque[Callable[[], None]]] = deque()
        self._journal: Final = Journal(recorder, last_seq, self._guarded)
        self._since_checkpoint = self._decided = self._faults = 0
        self._scheduled = self._stopped = False

    def __repr__(self) -> str:
        state = "stopped" if self._stopped else f"{len(self._queue)} queued"
        return f"<WriterLoop seq {self._journal.last_seq}, {state}, {len(self._lot)} parked>"

    @property
    def last_seq(self) -> int:
        """Seq of the last event that was decided, written or not."""
        return self._journal.last_seq

    def statistics(self) -> WriterStatistics:
        """Return the loop in numbers."""
        return WriterStatistics(
            capacity=self._capacity,
            queued=len(self._queue),
            parked=len(self._lot),
            waiting=self._acks.waiting,
            decided=self._decided,
            faults=self._faults,
            last_seq=self._journal.last_seq,
            written_seq=self._acks.seq(Ack.WRITTEN),
            durable_seq=self._acks.seq(Ack.DURABLE),
            promised_seq=self._journal.promised_durable,
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
        """Queue a command of the shell's own; always taken.

        It goes ahead of those of clients, but for the end of a connection, which comes behind all that was asked there:
        a ticket that is joined behind it would be held by nobody.
        """
        queue = self._queue if isinstance(command, ConnectionEnded) else self._own
        queue.append(Queued(command, answer=answer))
        self._schedule()

    def drop_connection(self, connection: int) -> None:
        """Forget the parked commands of a connection that is gone, and for what it waited."""
        self._lot.drop_connection(connection)
        self._interest.leave(connection)

    def reached(self, ack: Ack, seq: int) -> None:
        """Take in what the log writer reports; in the loop's thread."""
        if not self._stopped:
            with self._turn:
                self._guarded(partial(self._acks.reached, ack, seq))

    def stop(self, error: BaseException) -> None:
        """Acknowledge nothing from here on, because ``error`` made it impossible to keep a promise."""
        if self._stopped:
            return
        self._stopped = True
        self._lot.clear()
        self._journal.cancel()
        self._on_fatal(error)

    async def settled(self) -> None:
        """Wait until nothing is queued, and hand everything to the log."""
        while self._scheduled:  # noqa: ASYNC110  a turn of the loop is all that it takes
            await asyncio.sleep(0)
        self._journal.flush()

    async def acknowledged(self) -> None:
        """Wait until everything is in the log, and the replies and effects that waited for it have gone out."""
        await self.settled()
        while self._acks.waiting and not self._stopped:
            await asyncio.sleep(_ACKNOWLEDGED_SECONDS)
            await self.settled()

    def _schedule(self) -> None:
        if not self._scheduled and not self._stopped:
            self._scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._scheduled = False
        with self._turn:
            self._guarded(self._slice)

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001  state, log and memory may disagree now, so nothing may go on
            _log.critical("writer loop stops", exc_info=error)
            self.stop(error)

    def _slice(self) -> None:
        for _ in range(TURN):
            if self._stopped or not (self._own or self._queue):
                break
            self._step(self._own.popleft() if self._own else self._queue.popleft())
        self._journal.turn_ends()
        while self._room and len(self._queue) < self._capacity:
            self._room.popleft()()
        if self._own or self._queue:
            self._schedule()

    def _step(self, item: Queued) -> None:
        decision, encoded = self._decide(item)
        earlier = self._journal.promised
        self._record(decision, encoded)
        self._decided += 1
        for ack, effect in decision.effects:
            # What ends with the session anyway waits for no event of its own, only for those that made its slots
            self._start(ack, effect, earlier if ack is Ack.SESSION else self._target(ack, has_events=bool(encoded)))
        if decision.park is None:
            self._reply(item, decision)
        else:
            self._lot.add(item, decision.park)
            if not decision.park.jobs:
                self._own.extend(self._lot.take(item))
        self._note_interest(item, decision)
        if isinstance(item.command, ConnectionEnded):
            self.drop_connection(item.command.connection)
        job = getattr(item.command, "job", None)
        if job is not None:
            self._interest.ended(job)
            self._own.extend(self._lot.answered(job))
        if self._since_checkpoint >= self._checkpoint_events:
            checkpoint = Decision(events=(self._core.checkpoint(),))
            self._record(checkpoint, self._encoded(checkpoint, DAEMON))
            self._since_checkpoint = 0

    def _note_interest(self, item: Queued, decision: Decision) -> None:
        if item.connection is None:
            return
        if decision.park is not None:
            self._interest.join(item.connection, decision.park.jobs)
        elif isinstance(decision.reply, Pending):
            self._interest.join(item.connection, (decision.reply.job,))

    def _decide(self, item: Queued) -> tuple[Decision, list[bytes]]:
        """Return the core's decision with its events as the log takes them; what fails here changes nothing."""
        try:
            decision = self._core.decide(item.command)
            _tell_refused_receipt(item, decision.reply)
            self._admit(item.command, decision)
            _require_parkable(item.command, decision)
            return decision, self._encoded(decision, item.actor)
        except KVLedgerError as error:
            return Decision(reply=failed(error)), []
        except Exception as error:  # noqa: BLE001  a bug must cost its own request and no other
            self._faults += 1
            _log.exception("decision failed", command=type(item.command).__name__, actor=item.actor)
            return Decision(reply=internal(error)), []

    def _encoded(self, decision: Decision, actor: str) -> list[bytes]:
        stamp = time.time_ns() // 1_000_000
        encoded = [self._core.encode(event, stamp, actor) for event in decision.events]
        largest = max([len(event) for event in encoded], default=0)
        if largest > self._event_bytes_max:
            raise LimitError(
                f"this leads to an event of {largest} bytes, the log takes {self._event_bytes_max}",
                field="request",
                remedy="ask for less at once, in several requests",
            )
        return encoded

    def _record(self, decision: Decision, encoded: list[bytes]) -> None:
        """Apply the events and hand them to the log. An exception in here is the end: half of them may be applied."""
        if not encoded:
            return
        for event in decision.events:
            self._core.apply(event)
        self._since_checkpoint += len(encoded)
        # A parked request comes back without these events, so what its answer waits for is settled here.
        awaited = decision.ack if decision.park is None else max(decision.ack, decision.park.ack)
        self._journal.record(encoded, max([awaited, *[ack for ack, _ in decision.effects]]))

    def _start(self, ack: Ack, effect: Effect, seq: int) -> None:
        self._acks.run_at(max(ack, Ack.WRITTEN), seq, partial(self._carrier.carry, effect))

    def _reply(self, item: Queued, decision: Decision) -> None:
        if item.answer is None:
            return
        reply = decision.reply
        if isinstance(reply, StatusReport):
            assert isinstance(item.command, Ask), "the daemon asks itself for no report"
            reply = self._completed(reply, item.command.caller)
        elif isinstance(reply, Pending):
            objects, size = self._progress(reply.job)
            reply = msgspec.structs.replace(reply, done=reply.done + objects, done_bytes=size)
        if not decision.events:
            ack, seq = max(decision.ack, Ack.WRITTEN), self._target(decision.ack, has_events=False)
            self._acks.run_at(ack, seq, partial(item.answer, reply))
        elif decision.ack is Ack.SESSION:
            item.answer(reply)
        else:
            self._acks.run_at(decision.ack, self._journal.last_seq, partial(item.answer, reply))

    def _completed(self, report: StatusReport, caller: Caller) -> StatusReport:
        """Return a report with what the shell knows: of all for operators, else of the caller's tenant."""
        tenant = "" if caller.operator else caller.tenant
        counters, notes = report.counters | self._gauges(tenant), report.notes | self._notes(tenant)
        seq = self._journal.last_seq if caller.operator else 0
        return msgspec.structs.replace(report, seq=seq, counters=counters, notes=notes)

    def _target(self, ack: Ack, *, has_events: bool) -> int:
        if has_events:
            return self._journal.last_seq
        return self._journal.promised_durable if ack is Ack.DURABLE else self._journal.promised

    def _last_chance(self, item: Queued) -> None:
        assert isinstance(item.command, Ask), "only requests are parked"
        item.command = msgspec.structs.replace(item.command, waited=True)
        self._own.append(item)
        self._schedule()


def _tell_refused_receipt(item: Queued, reply: Reply | None) -> None:
    """Log a receipt that was returned twice or too late: who wonders where a lease went looks here."""
    if isinstance(reply, Failed) and reply.code in _RECEIPT_CODES:
        _log.warning("receipt refused", code=reply.code, why=reply.message, actor=item.actor)


def _require_parkable(command: Command, decision: Decision) -> None:
    if decision.park is not None and (not isinstance(command, Ask) or command.waited):
        raise RuntimeError("the core parked a command that can not wait")


def _settle(done: asyncio.Future[Reply | None], reply: Reply | None) -> None:
    if not done.done():
        done.set_result(reply)
