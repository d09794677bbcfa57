"""The table of device copies: what stands in it happens, what does not is refused and changes nothing."""

from itertools import product

import pytest
from msgspec.structs import replace

from kvledger_storage.device_events import DeviceFreed, PagesFilled
from kvledgerd.core.apply import apply
from kvledgerd.core.transitions import (
    DEVICE_TRANSITIONS,
    DeviceHappening,
    DeviceState,
    TransitionError,
    follow_on_device,
)
from support.devices import set_aside
from support.layouts import pick
from support.world import World

PAIRS = list(product(DeviceState, DeviceHappening))
PROMPT = list(range(600))


@pytest.mark.parametrize(("state", "happening"), PAIRS, ids=[f"{s.name}-{h.name}" for s, h in PAIRS])
def test_every_pair_is_in_the_table_or_refused(state, happening):
    """A pair of the table leads where it says; every other pair raises and names both."""
    after = DEVICE_TRANSITIONS[state].get(happening)
    if after is not None:
        assert follow_on_device(state, happening) is after
        return
    with pytest.raises(TransitionError, match=f"{happening.name} does not follow {state.name} on a device"):
        follow_on_device(state, happening)


def test_the_table_is_complete():
    """Every state has a row, every happening leads somewhere, and what ends a copy accepts nothing."""
    assert set(DEVICE_TRANSITIONS) == set(DeviceState)
    assert {h for row in DEVICE_TRANSITIONS.values() for h in row} == set(DeviceHappening)
    ends = (DeviceState.FREED, DeviceState.GIVEN_UP, DeviceState.LOST)
    assert [state for state in DeviceState if not DEVICE_TRANSITIONS[state]] == list(ends)


def test_events_that_do_not_follow_are_refused_by_the_table():
    """A copy can not be freed twice, and what is resident can be neither filled nor asked for again."""
    world = World(check=False)
    user = world.engine()
    number = user.register(pick("C"))
    user.store(number, PROMPT, 256)  # so that the cell stays when nothing is left on the device
    pages = set_aside(user, number, 8)
    one, two = pages.ask(PROMPT, 256), pages.ask(PROMPT, 256)
    pages.fill(one)
    (name,) = pages.pool.copies

    with pytest.raises(TransitionError, match="FILL does not follow RESIDENT"):
        apply(world.state, PagesFilled(two.unit, world.state.serial, bytes(8), (), ()))
    (asked, _) = world.events("pages_asked.1")
    with pytest.raises(TransitionError, match="ASK does not follow RESIDENT"):
        apply(world.state, replace(asked, unit=world.state.serial, offsets=(4096,)))
    apply(world.state, DeviceFreed(pages.number, (name,), "asked for"))
    with pytest.raises(TransitionError, match="FREE does not follow VACANT"):
        apply(world.state, DeviceFreed(pages.number, (name,), "asked for"))
