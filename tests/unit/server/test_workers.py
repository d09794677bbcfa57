"""Workers: whatever happens to a job, it is answered once, and ranges of one unit keep their order."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from kvledgerd.core.commands import ArenaFailed, ArenaMade
from kvledgerd.workers.workers import Lane, OrderedLane, Workers
from support.shell import until


@pytest.mark.asyncio
async def test_jobs_are_answered_on_the_loop():
    """The answer of a job arrives in the loop's thread, after what was to be done just before it."""
    order, loop_thread = [], threading.get_ident()
    lane = Lane("test", 1, lambda command: order.append((command, threading.get_ident())))
    lane.start(lambda: ArenaMade(1, 2), lambda _: None, lambda: order.append("after"))
    await until(lambda: len(order) == 2)
    await asyncio.to_thread(lane.close)

    assert order == ["after", (ArenaMade(1, 2), loop_thread)]
    assert lane.running == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("error", [OSError("no space"), ZeroDivisionError()])
async def test_failed_jobs_are_answered_too(error):
    """A job that raises, whatever it raises, is answered with what its fallback makes of the error."""
    answers = []
    lane = Lane("test", 1, answers.append)

    def job():
        raise error

    lane.start(job, lambda found: ArenaFailed(1, 2, type(found).__name__))
    await until(lambda: bool(answers))
    await asyncio.to_thread(lane.close)

    assert answers == [ArenaFailed(1, 2, type(error).__name__)]


@pytest.mark.asyncio
async def test_jobs_with_one_key_keep_their_order():
    """Jobs of one unit run one after the other, while those of another unit run beside them."""
    answers, log, other_ran = [], [], threading.Event()
    lane = Lane("test", 2, answers.append)
    ordered = OrderedLane(lane)

    def job(name):
        def work():
            log.append(f"{name} begins")
            assert name != "a1" or other_ran.wait(60)
            log.append(f"{name} ends")
            if name == "b1":
                other_ran.set()
            return ArenaMade(1, 1)

        return work

    for name, key in (("a1", 1), ("a2", 1), ("b1", 2)):
        ordered.start(key, job(name), lambda _: None, lambda: None)
    assert ordered.running == 3
    await until(lambda: len(answers) == 3)
    await asyncio.to_thread(lane.close)

    assert log.index("a1 ends") < log.index("a2 begins")
    assert log.index("b1 ends") < log.index("a1 ends")
    assert ordered.running == 0


@pytest.mark.asyncio
async def test_jobs_without_a_key_run_side_by_side():
    """Two copies of whole objects overlap, whatever waits for its turn under a key."""
    answers, meeting = [], threading.Barrier(2, timeout=60)
    lane = Lane("test", 2, answers.append)
    ordered = OrderedLane(lane)
    for number in range(2):
        ordered.start(None, lambda n=number: (meeting.wait(), ArenaMade(n, n))[1], lambda _: None, lambda: None)
    await until(lambda: len(answers) == 2)
    await asyncio.to_thread(lane.close)

    assert sorted(answer.job for answer in answers) == [0, 1]


@pytest.mark.asyncio
async def test_the_next_job_of_a_key_does_not_wait_for_the_loop():
    """A unit's next range is copied while the loop is busy with something else."""
    second_ran, answers = threading.Event(), []
    lane = Lane("test", 1, answers.append)
    ordered = OrderedLane(lane)
    ordered.start(1, lambda: ArenaMade(1, 1), lambda _: None, lambda: None)
    ordered.start(1, lambda: second_ran.set() or ArenaMade(2, 2), lambda _: None, lambda: None)

    assert second_ran.wait(60), "the loop stands still here, and nothing else may be needed"
    await until(lambda: len(answers) == 2)
    await asyncio.to_thread(lane.close)
    assert answers == [ArenaMade(1, 1), ArenaMade(2, 2)]


@pytest.mark.asyncio
async def test_closing_waits_for_what_runs():
    """Closing the workers lets a running job finish."""
    answers = []
    workers = Workers(answers.append, copies=2, reads=1)
    workers.disk.start(lambda: time.sleep(0.03) or ArenaMade(1, 1), lambda _: None)
    await asyncio.to_thread(workers.close)
    await until(lambda: bool(answers))

    assert set(workers.running().values()) == {0}
