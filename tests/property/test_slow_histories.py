"""Random histories on a slow disk: whatever happens to objects that are at work, nothing is lost or left over."""

import pytest

from kvledgerd.core.transitions import TransitionError
from kvledgerd.core.units import decide_commits
from property.slow_history import SlowHistory
from property.test_core_histories import STEPS

SEEDS = 400
SEARCHED = 60

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_history_of_a_slow_disk_breaks_an_invariant(seed):
    """After any history a replay makes the same state, every record is there and known, and no job or pin is left."""
    history = SlowHistory(seed)
    history.run(STEPS)
    history.due()
    history.run(0)
    history.check_end()


def live_through_histories():
    """Random histories until one fails."""
    for seed in range(SEARCHED):
        SlowHistory(seed).run(STEPS)


def test_a_slow_history_sees_a_commit_that_waits_for_nothing(monkeypatch):
    """Rows that lost their keys while they are written come to be dropped, which fails unless the commit waits."""
    monkeypatch.setattr(decide_commits, "_at_work", lambda _state, _copies: ())
    with pytest.raises(TransitionError):
        live_through_histories()
