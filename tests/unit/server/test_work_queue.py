"""Queues of background work: order, limits, numbers, and what becomes of work that nobody waits for any more."""

import pytest

from kvledgerd.core.commands import RestoreDone
from kvledgerd.loop.interest import Interest
from kvledgerd.workers.work_queue import PATIENCE, Piece, Urgency, WorkQueue


class Lane:
    """Keeps what was started until a test lets it end."""

    def __init__(self):
        self.started = []

    def start(self, job, fallback, after):
        """Take one piece."""
        self.started.append((job, fallback, after))

    def end(self):
        """Let the oldest piece end as it was meant to, and return its answer."""
        job, _, after = self.started.pop(0)
        answer = job()
        after()
        return answer


class Bench:
    """A queue on a lane, with a clock that the test moves."""

    def __init__(self, pieces=1, bytes_max=100):
        self.lane, self.now, self.answers = Lane(), 0.0, []
        self.queue = WorkQueue(
            self.lane, self.answers.append, pieces=pieces, bytes_max=bytes_max, clock=lambda: self.now
        )

    def put(self, job, urgency=Urgency.RESTORE, size=10):
        """Queue a piece that answers with its job's number."""
        answer = RestoreDone(job, ("",))
        self.queue.put(Piece(job, urgency, size, lambda: answer, lambda error: RestoreDone(job, (str(error),))))

    def order(self):
        """Let everything run and return the jobs in the order in which they did."""
        found = []
        while self.lane.started:
            found.append(self.lane.end().job)
        return found


def test_what_somebody_waits_for_goes_first():
    """A restore overtakes promotions, offloads and cleaning that came before it and have not begun."""
    bench = Bench()
    for job, urgency in enumerate((Urgency.CLEANING, Urgency.OFFLOAD, Urgency.PROMOTION, Urgency.RESTORE), 1):
        bench.put(job, urgency)
        bench.put(10 * job, urgency)
    assert bench.order() == [1, 4, 40, 3, 30, 2, 20, 10]


@pytest.mark.parametrize("urgency", [Urgency.PROMOTION, Urgency.OFFLOAD, Urgency.CLEANING])
def test_nothing_starves(urgency):
    """Work that has stood back for as long as its sort is asked to goes before a restore that comes then."""
    bench = Bench()
    bench.put(1)
    bench.put(2, urgency)
    bench.now = PATIENCE[urgency] + 0.1
    bench.put(3)
    assert bench.order() == [1, 2, 3]


def test_a_job_that_is_joined_is_urgent_from_then_on():
    """A promotion that somebody waits for now goes before the other promotions."""
    bench = Bench()
    for job in (1, 2, 3):
        bench.put(job, Urgency.PROMOTION)
    bench.queue.hasten(3)
    assert bench.order() == [1, 3, 2]


def test_pieces_and_bytes_in_flight_are_limited():
    """No more pieces run than are allowed, nor more bytes; a piece larger than all that is allowed runs alone."""
    bench = Bench(pieces=2, bytes_max=100)
    for job, size in enumerate((60, 60, 30, 200), 1):
        bench.put(job, size=size)
    assert len(bench.lane.started) == 1
    bench.lane.end()
    assert len(bench.lane.started) == 2
    bench.lane.end()
    assert len(bench.lane.started) == 1
    assert bench.order() == [3, 4]


def test_cancelled_work_is_answered_and_what_runs_ends():
    """Of a cancelled job what has not begun is answered with the reason at once, and other jobs take its turn."""
    bench = Bench()
    for job in (1, 1, 2, 1):
        bench.put(job)
    bench.queue.cancel(1, RuntimeError("not wanted"))
    assert bench.answers == [RestoreDone(1, ("not wanted",))] * 2
    assert bench.order() == [1, 2]


def test_a_queue_is_told_in_numbers():
    """Each sort of work tells what waits, what runs, its bytes, and the age of the oldest."""
    bench = Bench()
    bench.put(1)
    bench.put(2)
    bench.put(3, Urgency.OFFLOAD, size=7)
    bench.lane.end()
    bench.now = 2.5
    found = {k: v for k, v in bench.queue.counters("SWA_WINDOW").items() if k.startswith(("restore", "offload"))}
    restore = {"queued": 0, "running": 1, "bytes": 10, "oldest_ms": 0}
    offload = {"queued": 1, "running": 0, "bytes": 7, "oldest_ms": 2500}
    assert found == {f"restore_{k}.SWA_WINDOW": v for k, v in restore.items()} | {
        f"offload_{k}.SWA_WINDOW": v for k, v in offload.items()
    }


class Told:
    """An interest that notes what it calls back with."""

    def __init__(self):
        self.interest, self.said = Interest(), []
        self.interest.on_joined = lambda job: self.said.append(("joined", job))
        self.interest.on_abandoned = lambda job: self.said.append(("abandoned", job))


def test_a_job_is_abandoned_with_the_last_connection_that_waits():
    """A job stays wanted as long as one of the connections that asked for it lives."""
    told = Told()
    told.interest.join(1, (7,))
    told.interest.join(2, (7, 8))
    told.interest.join(1, (7,))
    told.interest.leave(1)
    assert told.interest.is_awaited(7)
    told.interest.leave(2)
    assert told.said == [("joined", 7), ("joined", 8), ("abandoned", 7), ("abandoned", 8)]
    assert len(told.interest) == 0


def test_a_job_that_was_answered_is_abandoned_by_nobody():
    """Who leaves after the answer leaves nothing behind."""
    told = Told()
    told.interest.join(1, (7,))
    told.interest.ended(7)
    told.interest.leave(1)
    assert told.said == [("joined", 7)]
