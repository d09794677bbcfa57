"""Faults put into the core on purpose: each must be seen by the tests that are there to see it.

A test that no fault makes fail proves nothing. The table names the fault and how it is put in; the verdict's faults are
shown to the oracle, those of leases, units and disk to random histories.
"""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from kvledger.geometry import Geometry
from kvledger_storage import events
from kvledgerd.core import apply as applying
from kvledgerd.core.decide import decide
from kvledgerd.core.decision import DropBlobs, SetGenerations
from kvledgerd.core.lookup.apply_leases import looked_up
from kvledgerd.core.lookup.choice import Choice, Judged
from kvledgerd.core.lookup.court import Court
from kvledgerd.core.lookup.look import Look
from kvledgerd.core.units.apply_units import put_finished
from property import test_core_verdict
from property.test_core_histories import STEPS, History
from property.test_core_verdict import deeds, layouts, requests
from property.tidy_history import TidyHistory
from support import world

pytestmark = pytest.mark.slow  # each fault needs its own search

EXAMPLES = 12000
SEEDS = 40


def _window_one_short(geometry, group, position):
    spec = geometry.groups[group]
    return max(0, position - (spec.window - 2) - spec.speculative_units * spec.page_tokens)


def _speculation_twice(geometry, group, position):
    spec = geometry.groups[group]
    return max(0, position - (spec.window - 1) - 2 * spec.speculative_units * spec.page_tokens)


def _halo_forgotten(geometry, group, position):
    spec = geometry.groups[group]
    return not spec.coupled_to or position % geometry.layout.group(spec.coupled_to).tokens_per_row != 0


def _limit_one_too_far(court, *values):
    _JUDGE(court, *values)
    court.limit += 1


def _one_page_too_many(look, group, have):
    return min(_TRAILING(look, group, have) + 1, look.geometry.pages(group))


def _rows_there(look):
    mask = look.known.rows_mask
    return all(cell is not None and look.has(cell) & mask == mask for cell in look.cells)


_JUDGE, _TRAILING = Court.__init__, Look.trailing_pages

VERDICT = {
    "the window is one token short": [(Geometry, "window_start", _window_one_short)],
    "speculation is applied twice": [(Geometry, "window_start", _speculation_twice)],
    "the halo is forgotten": [(Geometry, "needs_snapshot", _halo_forgotten)],
    "gaps in rows are ignored": [(Look, "_covered", lambda look, _: len(look.cells))],
    "uneven boundaries pass": [(Geometry, "uneven_group", lambda *_: None)],
    "nothing is left to compute": [(Court, "__init__", _limit_one_too_far)],
    "coupling is ignored": [(Look, "_coupled", lambda look, _: len(look.cells)), (Look, "_whole", _rows_there)],
    "rates are ignored": [(Choice, "gain", lambda _, judged: judged.saved)],
    "a replay costs nothing": [(Judged, "saved", property(lambda judged: judged.position))],
    "a page more is counted than is there": [(Look, "trailing_pages", _one_page_too_many)],
}


def _unpinned(state, event):
    looked_up(state, event)
    for cell in state.leases[event.lease].cells() if event.lease else ():
        cell.pins -= 1


def _published_anyway(state, event):
    unit = state.units[event.unit]
    unit.prints = [found or b"\1" * 16 for found in unit.prints]
    put_finished(state, event)


def _records_kept(state, command):
    decision = decide(state, command)
    return replace(decision, effects=tuple(e for e in decision.effects if not isinstance(e[1], DropBlobs)))


def _reused_too_early(state, command):
    decision = decide(state, command)
    return replace(decision, effects=tuple(e for e in decision.effects if not isinstance(e[1], SetGenerations)))


APPLIED = {
    "leases pin nothing": (events.LookedUp, _unpinned),
    "objects are complete before their bytes came": (events.PutFinished, _published_anyway),
}
DECIDED = {
    "records on disk are never given back": _records_kept,
    "generations do not move": _reused_too_early,
}


@settings(
    max_examples=EXAMPLES, phases=[Phase.generate], database=None, derandomize=True, deadline=None,
    suppress_health_check=list(HealthCheck), report_multiple_bugs=False,
)  # fmt: skip
@given(layouts(), deeds(), st.lists(requests, min_size=3, max_size=3))
def hold_against_the_oracle(what, done, asked):
    """One round of the oracle's test, the same at every run and without looking for a smaller example."""
    test_core_verdict.test_the_verdict_is_what_the_oracle_says.hypothesis.inner_test(what, done, asked)


def live_through_histories():
    """Random histories until one fails."""
    for seed in range(SEEDS):
        History(seed).run(STEPS)


def live_through_tidy_histories():
    """Random histories of a daemon that looks after its disk by itself, until one fails."""
    for seed in range(SEEDS):
        history = TidyHistory(seed)
        history.run(STEPS)
        history.due()
        history.world.release_effects()
        history.check_end()


@pytest.mark.parametrize("fault", VERDICT)
def test_the_oracle_sees_a_fault_of_the_verdict(fault, monkeypatch):
    """With this fault in the verdict its answers differ from the oracle's."""
    for where, name, what in VERDICT[fault]:
        monkeypatch.setattr(where, name, what)
    with pytest.raises((AssertionError, KeyError)):
        hold_against_the_oracle()


@pytest.mark.parametrize("fault", APPLIED)
def test_a_history_sees_a_fault_in_applying(fault, monkeypatch):
    """With this fault in `apply` a random history breaks an invariant, a reader's bytes or the replay."""
    event, handler = APPLIED[fault]
    monkeypatch.setitem(applying._HANDLERS, event, handler)
    with pytest.raises((AssertionError, KeyError, ValueError)):
        live_through_histories()


@pytest.mark.parametrize("fault", DECIDED)
def test_a_history_sees_a_fault_in_deciding(fault, monkeypatch):
    """With this fault in `decide` a random history leaves records behind or reads under a foreign generation."""
    monkeypatch.setattr(world, "decide", DECIDED[fault])
    with pytest.raises((AssertionError, KeyError)):
        live_through_tidy_histories()
