"""What a caller may not do, what another tenant has, and what is not there: one answer, found on one way.

Frames are compared byte for byte and the ways as lists of the functions that were called, so that neither shape nor
work tells one case from another. No time is measured: that work is the same is what can be promised.
"""

from __future__ import annotations

import sys

import pytest

from kvledger.kinds import Kind
from kvledger.wire.commands import COMMANDS
from kvledger.wire.framing import encode_frame
from kvledger.wire.replies import Failed
from kvledger.wire.requests import (
    Abort,
    Acquire,
    AskPages,
    Commit,
    DropPool,
    Evict,
    FreePages,
    GivePagesUp,
    Offload,
    Put,
    PutRange,
    RegisterPool,
    ReportFilled,
    Reserve,
    SetQuota,
)
from kvledgerd.core.commands import Ask
from kvledgerd.core.decide import decide
from kvledgerd.core.decision import Decision
from support.layouts import pick
from support.world import User, World

PROMPT = list(range(600))


def world_of(owner: str) -> tuple[User, dict[str, int]]:
    """Return the red tenant's user in a world in which an owner has stored things, and their numbers.

    Args:
        owner: `red`, `blue`, or `nobody`: then the numbers are those that the things of others would have.
    """
    world = World()
    red, blue = world.engine("red", "red"), world.engine("blue", "blue")
    numbers = {"layout": 1, "unit": 0}
    for user in () if owner == "nobody" else (red if owner == "red" else blue,):
        layout = user.register(pick("CXST"))
        user.store(layout, PROMPT, 512)
        numbers = {"layout": layout, "unit": user.reserve(layout, [t + 1000 for t in PROMPT], 512).unit}
    return red, numbers


OWNER, NUMBERS = world_of("blue")
LAYOUT, UNIT = NUMBERS["layout"], NUMBERS["unit"]
AT = OWNER.world.engine("blue again", "blue").boundary(LAYOUT, PROMPT, 512)

REQUESTS = {
    "reserve": Reserve(LAYOUT, AT),
    "put": Put(UNIT, [PutRange(Kind.COMPRESSED_KV, 0, 0, 0, 16)]),
    "commit": Commit(UNIT),
    "abort": Abort(UNIT),
    "evict": Evict(Kind.COMPRESSED_KV, LAYOUT, AT, "C"),
    "offload": Offload(LAYOUT, AT),
    "register_pool": RegisterPool(LAYOUT, "cuda:0", b"m", 4096, 1 << 20, [1, 1, 1, 1]),
    "drop_pool": DropPool(7),
    "ask_pages": AskPages(7, AT),
    "report_filled": ReportFilled(7, b"", settled=0),
    "give_pages_up": GivePagesUp(7),
    "free_pages": FreePages(Kind.COMPRESSED_KV, 7, AT),
}
"""Requests that need more than the right to read, about the things of `world_of`."""


def on_its_way(user: User, request, *, permitted: bool = True) -> tuple[Decision, list[str]]:
    """Return what is decided, and the functions that were called to find it."""
    way: list[str] = []
    sys.setprofile(lambda frame, event, _: way.append(frame.f_code.co_qualname) if event == "call" else None)
    try:
        decision = decide(user.world.state, Ask(user.caller, request, permitted=permitted))
    finally:
        sys.setprofile(None)
    return decision, way


def refused(user: User, request, *, permitted: bool) -> tuple[bytes, list[str]]:
    """Return the frame of a refusal, which changes nothing, and the way to it."""
    decision, way = on_its_way(user, request, permitted=permitted)
    assert isinstance(decision.reply, Failed)
    assert (decision.events, decision.effects) == ((), ())
    return encode_frame(9, decision.reply), way


@pytest.mark.hostile("ID01")
@pytest.mark.parametrize("name", REQUESTS)
def test_denied_foreign_and_never_there_are_one_answer_on_one_way(name):
    """Whoever lacks the right, names what is another's, or what never was, gets the same bytes; none is told apart."""
    found = {
        (owner, permitted): refused(world_of(owner)[0], REQUESTS[name], permitted=permitted)
        for owner in ("red", "blue", "nobody")
        for permitted in (True, False)
        if (owner, permitted) != ("red", True)
    }
    assert len({frame for frame, _ in found.values()}) == 1
    assert found["blue", True][1] == found["nobody", True][1]
    assert found["red", False][1] == found["blue", False][1] == found["nobody", False][1]


def test_every_command_beyond_reading_is_refused_to_a_reader():
    """Of each command in the table that needs a right there is a refusal, whether it names anything or not."""
    red = world_of("red")[0]
    others = {"set_quota": SetQuota(Kind.SWA_WINDOW, 4096)}
    tried = REQUESTS | others
    for name, request in tried.items():
        frame, _ = refused(red, request, permitted=False)
        assert b"failed" in frame, name
    # The rest name nothing, so they are all refused like a quota; the server answers `ring` by the same way.
    rest = {c.name for c in COMMANDS if c.right != "reader"} - set(tried)
    assert rest == {"ring", "join", "evict_many", "set_scrub", "warm", "set_epoch", "tenants"}


@pytest.mark.hostile("ID01")
def test_a_look_up_of_what_a_neighbour_has_goes_the_way_of_a_miss():
    """Another tenant's prompt is answered like one that nobody stored: same bytes, same functions called."""
    answers = []
    for owner in ("blue", "nobody"):
        red = world_of(owner)[0]
        number = red.register(pick("CXST"))
        request = Acquire(number, len(PROMPT), red.boundary(number, PROMPT).hashes)
        decision, way = on_its_way(red, request)
        answers.append((encode_frame(1, decision.reply), way))
    assert answers[0] == answers[1]
