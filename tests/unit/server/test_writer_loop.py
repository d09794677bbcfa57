"""The writer loop over a small core and a log that a test drives."""

from __future__ import annotations

import asyncio

import pytest
from anyio import WouldBlock

from kvledger.wire import replies, requests
from kvledger_storage.events import Checkpoint, LeaseEnded
from kvledgerd.core.commands import ArenaMade, Ask, Caller, ConnectionEnded
from kvledgerd.core.decision import Ack, Decision, Park, SetGenerations
from kvledgerd.loop.writer import WriterLoop
from support.shell import SmallCarrier, SmallCore, SmallLog, ask, until


class Bench:
    """A writer loop with its neighbours, and the answers that have come."""

    def __init__(self, **settings):
        self.core, self.log, self.carrier = SmallCore(), SmallLog(), SmallCarrier()
        self.fatal, self.answers = [], []
        self.writer = WriterLoop(self.core, self.log, self.carrier, last_seq=0, on_fatal=self.fatal.append, **settings)

    async def ask(self, *bodies, connection=1):
        """Submit requests and let the loop turn."""
        for body in bodies:
            self.writer.submit_nowait(ask(body, connection), answer=self.answers.append)
        await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_session_replies_leave_at_once():
    """A reply of class session leaves before its event is even in the log."""
    bench = Bench()
    await bench.ask(requests.Renew(0))

    assert bench.answers == [replies.Done()]
    assert bench.log.batches == []


@pytest.mark.asyncio
async def test_session_events_ride_with_the_next_frame():
    """Events of class session are handed over, in order, as soon as something waits for the log."""
    bench = Bench()
    await bench.ask(requests.Renew(0), requests.Renew(1))

    assert [len(events) for events, _ in bench.log.batches] == [1, 1]
    assert b"lease=0" in bench.log.batches[0][0][0]


@pytest.mark.asyncio
async def test_lonely_session_events_are_not_held_for_long():
    """An event of class session is due in the log within a fraction of a second, and reaches it by itself."""
    bench = Bench()
    await bench.ask(requests.Renew(0))
    timer = bench.writer._journal._timer  # when it is due; how soon it comes then is the machine's matter
    assert timer.when() - asyncio.get_running_loop().time() < 0.1
    await until(lambda: bool(bench.log.batches))


@pytest.mark.asyncio
@pytest.mark.parametrize("ack", [Ack.WRITTEN, Ack.DURABLE])
async def test_replies_wait_for_their_class(ack):
    """A reply leaves when its event has reached the class that the core named, and not before."""
    bench = Bench()
    await bench.ask(requests.Renew(int(ack)))

    assert bench.answers == []
    assert bench.log.batches[0][1] is (ack is Ack.DURABLE)
    bench.writer.reached(ack, 1)
    assert bench.answers == [replies.Done()]


@pytest.mark.asyncio
async def test_written_is_not_durable():
    """A durable reply does not leave when its event is only written."""
    bench = Bench()
    await bench.ask(requests.Renew(2))
    bench.writer.reached(Ack.WRITTEN, 1)

    assert bench.answers == []


@pytest.mark.asyncio
async def test_reads_show_nothing_that_a_crash_could_take_back():
    """A reply without events waits until what was decided before it is written."""
    bench = Bench()
    await bench.ask(requests.Renew(1), requests.Status())
    assert bench.answers == []

    bench.writer.reached(Ack.WRITTEN, 1)
    assert [type(answer) for answer in bench.answers] == [replies.Done, replies.StatusReport]


@pytest.mark.asyncio
async def test_status_shows_the_seq_of_its_own_moment():
    """A status report carries the seq of the last event and the gauges of the shell."""
    bench = Bench(gauges=lambda tenant: {"connections": 3} if not tenant else {}, notes=lambda tenant: {"of": tenant})
    await bench.ask(requests.Renew(0), requests.Status())

    assert bench.answers[-1] == replies.StatusReport(1, 1, "", {"connections": 3}, {"of": ""})


@pytest.mark.asyncio
async def test_a_tenant_is_told_what_is_about_it():
    """Who is no operator is given numbers and words of its tenant alone: it may be another's work that fails."""
    bench = Bench(gauges=lambda tenant: {"of": len(tenant)}, notes=lambda tenant: {"of": tenant})
    bench.writer.submit_nowait(Ask(Caller(1, 1, "red"), requests.Status()), answer=bench.answers.append)
    await until(lambda: bench.answers)
    assert (bench.answers[-1].counters["of"], bench.answers[-1].notes) == (3, {"of": "red"})


@pytest.mark.asyncio
@pytest.mark.parametrize(("unit", "ack"), [(4, Ack.WRITTEN), (5, Ack.DURABLE)])
async def test_effects_wait_for_their_class(unit, ack):
    """An effect runs when the events of its decision have reached the class that stands beside it."""
    bench = Bench()
    await bench.ask(requests.Commit(unit))
    assert bench.carrier.carried == []

    bench.writer.reached(ack, 1)
    assert [effect.slots[0][0] for effect in bench.carrier.carried] == [unit]


@pytest.mark.asyncio
async def test_effects_of_class_session_wait_for_no_event_of_their_own():
    """What a request is parked on starts at once, and its answer waits for the log only if its decision says so."""
    bench = Bench()
    job = SetGenerations(((7, 0, 1, 1),))

    def decide(command):
        if isinstance(command, Ask) and not command.parked:
            return Decision((LeaseEnded(7, "test"),), effects=((Ack.SESSION, job),), park=Park((9,), ack=bench.ack))
        return Decision(reply=replies.Done() if isinstance(command, Ask) else None)

    bench.core.decide = decide
    for bench.ack, answered in ((Ack.SESSION, 1), (Ack.WRITTEN, 0)):
        bench.answers.clear()
        await bench.ask(requests.Release(9))
        bench.writer.post(ArenaMade(9, 1))
        await asyncio.sleep(0)
        assert len(bench.answers) == answered
    assert bench.carrier.carried == [job, job]


@pytest.mark.asyncio
async def test_effects_never_overtake_those_that_wait():
    """An effect of class session waits for an earlier one that waits for the log."""
    bench = Bench()
    await bench.ask(requests.Commit(4), requests.Commit(3))
    assert bench.carrier.carried == []

    bench.writer.reached(Ack.WRITTEN, 2)
    assert [effect.slots[0][0] for effect in bench.carrier.carried] == [4, 3]


@pytest.mark.asyncio
async def test_typed_refusals_change_nothing():
    """An error that the core raises becomes a reply with its code, field and remedy, and no event."""
    bench = Bench()
    await bench.ask(requests.Abort(1))

    assert bench.answers == [replies.Failed("not_found", "no such unit", "unit", "reserve one")]
    assert bench.core.applied == []


@pytest.mark.asyncio
async def test_events_that_the_log_can_not_take_are_refused():
    """A request that leads to an event above the log's cap is refused with a limit, and changes nothing."""
    bench = Bench(event_bytes_max=10)
    await bench.ask(requests.Renew(1), requests.Abort(1))

    assert [answer.code for answer in bench.answers] == ["limit", "not_found"]
    assert bench.core.applied == []
    assert bench.fatal == []


@pytest.mark.asyncio
async def test_bugs_cost_their_own_request_only():
    """An exception in the core is answered as internal, and the next request is served."""
    bench = Bench()
    await bench.ask(requests.Abort(2), requests.Renew(0))

    assert [getattr(answer, "code", None) for answer in bench.answers] == ["internal", None]
    assert bench.writer.statistics().faults == 1
    assert bench.fatal == []


@pytest.mark.asyncio
async def test_parked_requests_are_decided_anew_when_their_job_is_answered():
    """A parked request is answered after its job, and knows what it was parked on."""
    bench = Bench()
    await bench.ask(requests.Release(9))
    assert bench.answers == []

    bench.writer.post(ArenaMade(8, 1))
    await asyncio.sleep(0)
    assert bench.answers == []
    bench.writer.post(ArenaMade(9, 1))
    await asyncio.sleep(0)
    assert bench.answers == [replies.Pending(9, 0, 1)]
    assert bench.writer.statistics().parked == 0


@pytest.mark.asyncio
async def test_parked_requests_have_a_last_chance_at_their_deadline():
    """A parked request is decided once more when its deadline passes, and told so."""
    bench = Bench()
    bench.core.wait_ms = 5
    await bench.ask(requests.Release(9))
    await until(lambda: bool(bench.answers))

    assert bench.answers == [replies.Pending(9, 1, 1)]


@pytest.mark.asyncio
async def test_parked_requests_go_with_their_connection():
    """What a closed connection had parked is never decided again."""
    bench = Bench()
    await bench.ask(requests.Release(9), connection=4)
    bench.writer.drop_connection(4)
    bench.writer.post(ArenaMade(9, 1))
    await asyncio.sleep(0)

    assert bench.answers == []
    assert len([c for c in bench.core.decided if getattr(c, "body", None) == requests.Release(9)]) == 1


@pytest.mark.asyncio
async def test_full_queues_refuse_and_call_back():
    """A full queue blocks its caller, who is called when there is room; the shell's own commands always fit."""
    bench = Bench(capacity=2)
    for _ in range(2):
        bench.writer.submit_nowait(ask(requests.Renew(0)))
    with pytest.raises(WouldBlock):
        bench.writer.submit_nowait(ask(requests.Renew(0)))
    bench.writer.post(ArenaMade(1, 1))
    assert bench.writer.statistics().queued == 2

    assert await bench.writer.submit(ask(requests.Renew(0))) == replies.Done()


@pytest.mark.asyncio
async def test_checkpoints_record_the_digest():
    """After so many events a checkpoint is applied and recorded."""
    bench = Bench(checkpoint_events=3)
    await bench.ask(*[requests.Renew(0)] * 4)

    assert [type(event) is Checkpoint for event in bench.core.applied] == [False, False, False, True, False]
    assert bench.core.applied[3] == Checkpoint(3)


@pytest.mark.asyncio
async def test_failed_logs_stop_all_acknowledgement():
    """After the log has failed no reply leaves, neither one that waited nor a new one."""
    bench = Bench()
    await bench.ask(requests.Renew(1))
    bench.writer.stop(OSError("the disk is gone"))
    bench.writer.reached(Ack.WRITTEN, 1)
    await bench.ask(requests.Renew(0))

    assert bench.answers == []
    assert [str(error) for error in bench.fatal] == ["the disk is gone"]


@pytest.mark.asyncio
async def test_state_and_log_never_part():
    """If an event can not be applied the loop stops, since nobody knows what the state is now."""
    bench = Bench()
    bench.core.apply = lambda _event: 1 / 0
    await bench.ask(requests.Renew(0), requests.Renew(0))

    assert bench.answers == []
    assert isinstance(bench.fatal[0], ZeroDivisionError)
    assert bench.log.batches == []


@pytest.mark.asyncio
async def test_a_connection_ends_behind_what_it_asked():
    """The end of a connection is decided after its requests, and those of them that wait are forgotten with it."""
    bench = Bench()
    bench.writer.submit_nowait(ask(requests.Renew(0), 7), answer=bench.answers.append)
    bench.writer.post(ConnectionEnded(1, 7, "gone"))
    bench.writer.post(ArenaMade(1, 1))
    await until(lambda: len(bench.core.decided) == 3)

    assert [type(command).__name__ for command in bench.core.decided] == ["ArenaMade", "Ask", "ConnectionEnded"]
