"""The circuit breaker: what it counts, when it asks for a stop, and how it probes."""

import pytest

from kvledgerd.core.commands import DegradeDue, Probed, ProbeDue, RestoreDone, RestoreLate
from kvledgerd.workers.breaker import Breaker

FAILED, DAMAGED, RIGHT = "failed: not read within 30 s", "damaged: another fingerprint", ""


class Bench:
    """A breaker with a clock, and a core that does what it is told."""

    def __init__(self, failures=3):
        self.now, self.said, self.open = 100.0, [], False
        self.breaker = Breaker(
            self.said.append, lambda: self.open, failures=failures, window=60, pause=5, clock=lambda: self.now
        )

    def restores(self, *errors):
        """Let restores come to these ends, a second apart."""
        for job, error in enumerate(errors):
            self.breaker.note(RestoreDone(job, ("", error)))
            self.now += 1


def test_too_many_failures_stop_restores():
    """The last failure that the window takes asks for a stop, and names how many and the last of them."""
    bench = Bench()
    bench.restores(FAILED, RIGHT, DAMAGED)
    assert bench.said == []
    bench.restores(FAILED)
    (said,) = bench.said
    assert isinstance(said, DegradeDue)
    assert said.reason == f"3 restores failed within 60 s, the last one: {FAILED}"
    bench.open = True
    bench.restores(FAILED)
    assert len(bench.said) == 1


def test_failures_far_apart_are_no_reason():
    """Failures are forgotten when the window has passed."""
    bench = Bench()
    for _ in range(10):
        bench.restores(FAILED)
        bench.now += 30
    assert bench.said == []
    bench.now += 60
    bench.breaker.look()
    assert bench.breaker.recent == 0


@pytest.mark.parametrize(("failures", "errors"), [(0, [FAILED] * 100), (3, ["cancelled: nobody waits"] * 100)])
def test_what_is_not_counted(failures, errors):
    """With 0 nothing ever stops restores, and what nobody waited for any more is no failure."""
    bench = Bench(failures)
    bench.restores(*errors)
    assert bench.said == []


def test_a_restore_that_was_given_up_counts_once():
    """A read that hangs is counted when its time is over, and not again when it ends at last."""
    bench = Bench()
    bench.breaker.note(RestoreLate(7, 30))
    bench.breaker.note(RestoreDone(7, (FAILED,)))
    assert bench.breaker.recent == 1


def test_probes_come_one_after_the_other():
    """While restores have stopped a probe is asked for after each pause, never beside one that has no answer yet."""
    bench = Bench()
    bench.breaker.look()
    assert bench.said == []
    bench.open = True
    bench.breaker.look()
    bench.now += 60
    bench.breaker.look()
    assert bench.said == [ProbeDue()]
    bench.breaker.note(Probed(FAILED))
    bench.breaker.look()
    assert bench.said == [ProbeDue()] * 2
    bench.breaker.note(Probed(FAILED))
    bench.now += 4
    bench.breaker.look()
    assert len(bench.said) == 2


def test_a_probe_that_is_answered_begins_the_count_anew():
    """After a probe that the disk answered the failures of before count no more."""
    bench = Bench()
    bench.restores(FAILED, FAILED)
    bench.breaker.note(Probed(DAMAGED))
    bench.restores(FAILED, FAILED)
    assert bench.said == []
