"""The transition table: what stands in it happens, what does not is refused and changes nothing."""

from itertools import product

import pytest

from kvledgerd.core.index import Cell, new_cell, new_node
from kvledgerd.core.transitions import (
    IN_MEMORY,
    ON_DISK_TOO,
    TRANSITIONS,
    Happening,
    ObjectState,
    TransitionError,
    follow,
)

PAIRS = list(product(ObjectState, Happening))
TERMINAL = (ObjectState.EVICTED, ObjectState.ABORTED, ObjectState.INVALID, ObjectState.QUARANTINED)


def cell_in(state: ObjectState) -> Cell:
    """A cell of three slots whose middle one is in `state`, its masks true."""
    cell = new_cell(1, new_node(1, None, b""), 1, 3)
    cell.states = bytes((0, state, 0))
    cell.memory = 0b010 if state in IN_MEMORY else 0
    cell.disk = 0b010 if state in ON_DISK_TOO else 0
    cell.unverified = cell.memory
    return cell


def facts(cell: Cell):
    """Everything that a transition may change."""
    return cell.states, cell.memory, cell.disk, cell.unverified


@pytest.mark.parametrize(("state", "happening"), PAIRS, ids=[f"{s.name}-{h.name}" for s, h in PAIRS])
def test_every_pair_is_in_the_table_or_refused_without_change(state, happening):
    """A pair of the table leads where it says, with true masks; every other pair raises and changes nothing."""
    cell, after = cell_in(state), TRANSITIONS[state].get(happening)
    before = facts(cell)
    if after is None:
        with pytest.raises(TransitionError, match=f"{happening.name} does not follow {state.name}"):
            cell.move(1, happening)
        assert facts(cell) == before
        return
    assert cell.move(1, happening) is after is follow(state, happening)
    assert cell.memory == (0b010 if after in IN_MEMORY else 0)
    assert cell.disk == (0b010 if after in ON_DISK_TOO else 0)
    assert not cell.unverified & ~cell.memory
    assert cell.state(1) is (after if cell.memory | cell.disk else ObjectState.VACANT)


def test_the_table_names_every_state():
    """Every state has a row, those that accept nothing an empty one."""
    assert set(TRANSITIONS) == set(ObjectState)
    assert [s for s in ObjectState if not TRANSITIONS[s]] == list(TERMINAL)


def test_every_happening_is_used():
    """No happening is named that never follows anything."""
    assert {h for row in TRANSITIONS.values() for h in row} == set(Happening)


def test_every_state_is_reached_from_a_vacant_slot():
    """Each state can be reached, and from each that is not terminal an end can be reached."""
    reached, todo = set(), [ObjectState.VACANT]
    while todo:
        state = todo.pop()
        if state not in reached:
            reached.add(state)
            todo += TRANSITIONS[state].values()
    assert reached == set(ObjectState)


def test_only_a_commit_makes_bytes_visible():
    """A copy comes to be by a commit, which follows a copy of the bytes, or by a rebuild that found it."""
    visible = IN_MEMORY | ON_DISK_TOO
    entries = [
        (state, happening)
        for state, row in TRANSITIONS.items()
        for happening, after in row.items()
        if state not in visible and after in visible
    ]
    assert entries == [(ObjectState.VACANT, Happening.FIND), (ObjectState.COPYING, Happening.COMMIT)]
    assert TRANSITIONS[ObjectState.VACANT][Happening.FIND] is ObjectState.ON_DISK


def test_a_move_touches_its_slot_only():
    """The slots beside the one that moves keep their state and their masks."""
    cell = cell_in(ObjectState.MIRRORED)
    cell.states = bytes((ObjectState.COMMITTED, cell.states[1], ObjectState.ON_DISK))
    cell.memory, cell.disk = 0b011, 0b110
    cell.move(1, Happening.DROP_MEMORY)
    assert (cell.memory, cell.disk) == (0b001, 0b110)
    assert (cell.state(0), cell.state(2)) == (ObjectState.COMMITTED, ObjectState.ON_DISK)
