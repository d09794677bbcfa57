"""How measurements become a row."""

import pytest

from kvledgerd.bench.figures import Goal, Measured, Pair, Sense, figure_of, spread_of
from kvledgerd.bench.rounds import in_turns, speeds


def _row(pairs, goal=None):
    return Measured("row", "us", "peer", goal, [Pair(*pair) for pair in pairs])


def test_ratio_is_the_median_of_the_ratios_of_neighbours():
    """A disturbance that hits both sides of one pair moves neither the ratio nor its extremes."""
    row = _row([(2, 1), (200, 100), (2, 1)])
    assert figure_of(row).ratio == 2
    assert (spread_of(row).ratio_min, spread_of(row).ratio_max) == (2, 2)


@pytest.mark.parametrize(("sense", "met"), [(Sense.AT_MOST, True), (Sense.AT_LEAST, False)])
def test_goal_tells_on_which_side_a_ratio_lies(sense, met):
    """The same ratio meets a goal from one side and misses it from the other."""
    figure = figure_of(_row([(1, 2)], Goal(sense, 0.7)))
    assert (figure.goal, figure.met) == (f"{sense} 0.7", met)


def test_row_without_goal_is_neither_met_nor_missed():
    """A row that only informs says so by None."""
    figure = figure_of(_row([(1, 2)]))
    assert (figure.goal, figure.met) == (None, None)


def test_both_sides_are_measured_in_turns_after_one_warm_up():
    """The cache and its peer alternate, and the first pair is thrown away."""
    calls = []

    def side(name):
        return lambda: calls.append(name) or float(len(calls))

    assert in_turns(side("a"), side("b"), 2) == [Pair(3, 4), Pair(5, 6)]
    assert calls == ["a", "b"] * 3


def test_seconds_become_speeds():
    """Half the time is twice the speed."""
    assert speeds([Pair(0.5, 0.25)], 2) == [Pair(4, 8)]
