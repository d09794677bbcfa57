"""Random histories in which the daemon works by itself as well: nothing promised is lost or left over."""

import pytest

from property.test_core_histories import STEPS
from property.tidy_history import TidyHistory

SEEDS = 8


@pytest.mark.parametrize("seed", [*range(SEEDS), *(pytest.param(n, marks=pytest.mark.slow) for n in range(SEEDS, 800))])
def test_no_history_of_a_tidy_daemon_breaks_an_invariant(seed):
    """After any history a replay makes the same state, every record is there and known, and no job or pin is left."""
    history = TidyHistory(seed)
    history.run(STEPS)
    history.due()
    history.world.release_effects()
    history.check_end()


@pytest.mark.slow
def test_tidy_histories_reach_what_they_are_about():
    """Over some seeds records are cleaned and lost, objects move, boundaries are converted, restores are late."""
    tags = dict.fromkeys(
        ("records_moved.1", "records_damaged.1", "relocated.1", "write_declined.1", "offloaded.1", "restore_overdue.1")
    )
    converted = 0
    for seed in range(50, 62):
        history = TidyHistory(seed)
        history.run(STEPS)
        for tag in tags:
            tags[tag] = (tags[tag] or 0) + len(history.world.events(tag))
        converted += sum(1 for event in history.world.events("unit_reserved.1") if event.sources)
    assert min(tags.values()) > 0, tags
    assert converted > 0
