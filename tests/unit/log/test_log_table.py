"""The recovery table decides every combination of its conditions, once, and as the promises demand."""

import itertools

import pytest

from kvledger_storage.log.recovery import TABLE, Decision, Facts, judge
from kvledger_storage.log.segment import End

FLAGS = (False, True)
COMBINATIONS = [Facts(*values) for values in itertools.product(End, FLAGS, FLAGS, FLAGS, FLAGS)]


def expected(facts):
    """Say in plain code what DESIGN says in prose."""
    if facts.end is End.BREAK:
        return Decision.REFUSE
    if facts.sealed:
        return Decision.CLEAN if facts.end is End.ZEROS else Decision.REFUSE
    if facts.covered or (facts.end is End.BAD and facts.behind and facts.same_boot):
        return Decision.REFUSE
    return Decision.CLEAN if facts.end is End.ZEROS else Decision.REPAIR_TAIL


@pytest.mark.parametrize("facts", COMBINATIONS)
def test_exactly_one_row_fits(facts):
    """Each of the 48 combinations is decided by one row and no other, as the prose says."""
    fitting = [row for row in TABLE if row.fits(facts)]
    assert len(fitting) == 1
    assert judge(facts) is fitting[0]
    assert fitting[0].decision is expected(facts)


def test_every_row_is_needed():
    """No row is dead, and names and reasons are its own."""
    assert {judge(facts) for facts in COMBINATIONS} == set(TABLE)
    assert len({row.name for row in TABLE}) == len({row.because for row in TABLE}) == len(TABLE)
