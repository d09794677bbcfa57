"""What a writer may get wrong about the bytes that it hands in: refused by field, and the unit is as it was."""

import pytest

from kvledger.kinds import Kind
from kvledger.wire.replies import Failed
from kvledger.wire.requests import Commit, Put, PutRange
from support.layouts import pick
from support.world import World

PROMPT = list(range(600))
LENGTH = 1024
"""Bytes of a block of the group C."""


def reserved():
    """A user with an open reservation of two blocks of rows, and its receipt."""
    user = World().engine()
    number = user.register(pick("C"))
    unit = user.reserve(number, PROMPT, 512).unit
    assert {item.length for item in user.world.state.units[unit].objects} == {LENGTH}
    user.world.rings[user.caller.connection, 0] = bytes(LENGTH)
    return user, number, unit


def ranges(*parts):
    """Ranges of C as (index, offset, length), all from the start of the ring."""
    return [PutRange(Kind.COMPRESSED_KV, index, offset, 0, length) for index, offset, length in parts]


WRONG = {
    "twice in one request": ([], ranges((0, 0, LENGTH), (0, 0, LENGTH)), "ranges[1].offset"),
    "again when it is whole": (ranges((0, 0, LENGTH)), ranges((0, 0, LENGTH)), "ranges[0].offset"),
    "a gap": ([], ranges((0, 0, 512), (0, 600, 100)), "ranges[1].offset"),
    "an overlap": ([], ranges((0, 0, 512), (0, 500, 524)), "ranges[1].offset"),
    "from the middle": ([], ranges((0, 512, 512)), "ranges[0].offset"),
    "one byte more": ([], ranges((0, 0, LENGTH + 1)), "ranges[0].length"),
    "one byte more in two": (ranges((0, 0, 512)), ranges((0, 512, 513)), "ranges[0].length"),
    "two GiB": ([], ranges((0, 0, 2**31)), "ranges[0].length"),
    "an object too many": ([], ranges((2, 0, LENGTH)), "ranges[0].index"),
    "an object far away": ([], ranges((2**31, 0, LENGTH)), "ranges[0].index"),
    "a wrong one behind right ones": ([], ranges((0, 0, LENGTH), (1, 0, 512), (7, 0, 1)), "ranges[2].index"),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_ranges_that_do_not_follow_each_other_are_refused(wrong):
    """Of a request with one wrong range nothing is taken, and the unit can still be filled and committed."""
    before, put, field = WRONG[wrong]
    user, number, unit = reserved()
    if before:
        user.ok(Put(unit, before))
    filled = list(user.world.state.units[unit].filled)
    refused = user.ask(Put(unit, put))
    assert isinstance(refused, Failed)
    assert (refused.code, refused.field, bool(refused.remedy)) == ("caller", field, True)
    assert user.world.state.units[unit].filled == filled
    assert user.ask(Commit(unit)).code == "commit_refused"
    user.ok(Put(unit, ranges(*((i, have, LENGTH - have) for i, have in enumerate(filled) if have < LENGTH))))
    assert user.ok(Commit(unit)).stored == 2
    assert user.acquire(number, PROMPT).usable_tokens == 512


@pytest.mark.parametrize("late", ["put", "commit"])
def test_nothing_is_written_after_a_commit(late):
    """A receipt ends with its commit: bytes that come later go nowhere, and what was stored stays."""
    user, number, unit = reserved()
    user.ok(Put(unit, ranges((0, 0, LENGTH), (1, 0, LENGTH))))
    user.ok(Commit(unit))
    acquired = user.acquire(number, PROMPT)
    before = user.read(acquired)
    user.world.rings[user.caller.connection, 0] = b"\xff" * LENGTH
    refused = user.ask(Put(unit, ranges((0, 0, LENGTH))) if late == "put" else Commit(unit))
    assert (refused.code, refused.field) == ("generation", "unit")
    assert user.read(acquired) == before


def test_what_was_there_already_can_not_be_written():
    """Objects that a reservation found stored are not the unit's to fill."""
    user, number, unit = reserved()
    user.ok(Put(unit, ranges((0, 0, LENGTH), (1, 0, LENGTH))))
    user.ok(Commit(unit))
    again = user.reserve(number, [*PROMPT, *range(9000, 9200)], 768)
    refused = user.ask(Put(again.unit, ranges((0, 0, LENGTH))))
    assert (refused.code, refused.field) == ("caller", "ranges[0].index")
    user.ok(Put(again.unit, ranges((2, 0, LENGTH))))
    committed = user.ok(Commit(again.unit))
    assert (committed.stored, committed.duplicates) == (1, 0)
