"""What decides between two boundaries, where one token or one term makes the difference."""

from __future__ import annotations

import pytest

from kvledger.errors import CapacityError, LimitError
from kvledger.geometry import Geometry
from kvledger.kinds import Form, Kind
from kvledger.verdict import Exactness
from kvledger.wire.replies import Failed
from kvledger.wire.requests import Abort, Acquire, Release, Reserve
from kvledgerd.core.config import PAGE, CoreConfig
from support.layouts import compressed, pick, window
from support.world import World, group, layout

PROMPT = list(range(600))


@pytest.mark.parametrize(("span", "pages"), [(64, 1), (65, 1), (66, 2), (129, 2), (130, 3)])
def test_a_window_needs_one_token_less_than_its_length(span, pages):
    """The next query sees itself and W - 1 tokens before it, so W - 1 = 64 tokens are one page of 64."""
    geometry = Geometry(layout(compressed(), window("S", 64, span)))
    assert len(geometry.window_pages(1, 256)) == pages


def test_tokens_to_replay_are_tokens_to_compute():
    """A boundary at 512 that costs 300 tokens of replay saves less than an exact one at 256."""
    costly = group("S", Kind.SWA_WINDOW, Form.SNAPSHOT, window=64, exact_replay_tokens=300)
    world = World()
    user = world.engine()
    number = user.register(layout(compressed(), costly))
    user.store(number, PROMPT, 256)
    user.store(number, PROMPT, 512)
    user.evict(number, PROMPT, 512, "S", block=-1)
    best = user.acquire(number, PROMPT, replay=True).offers[0]
    assert (best.position, best.replay, best.exactness) == (256, 0, Exactness.EXACT)


def test_half_a_couple_is_replaced_whole():
    """Rows that lost their keys are brought again with new keys, so that both are of one commit and can be used."""
    world = World()
    user = world.engine()
    number = user.register(pick("CX"))
    user.store(number, PROMPT, 512)
    user.evict(number, PROMPT, 512, "X", block=1)
    assert user.acquire(number, PROMPT).usable_tokens == 256
    user.store(number, PROMPT, 512)
    assert user.acquire(number, PROMPT).usable_tokens == 512


@pytest.mark.parametrize(
    ("letters", "kind", "pages"),
    [("CM", Kind.UNCOMPRESSED_TAIL, 1), ("CS", Kind.SWA_WINDOW, 2)],
    ids=["snapshot", "window"],
)
def test_a_leased_state_makes_no_room(letters, kind, pages):
    """Where memory holds one state, a second is refused while somebody reads the first, and taken afterwards."""
    world = World(CoreConfig(memory_bytes=1 << 20, arena_bytes=1 << 16, kind_bytes={kind: pages * PAGE}))
    user = world.engine()
    number = user.register(pick(letters))
    user.store(number, PROMPT, 256)
    lease = user.acquire(number, PROMPT).lease
    refused = user.ask(Reserve(number, user.boundary(number, PROMPT, 512)))
    assert isinstance(refused, Failed)
    assert refused.code == CapacityError.code
    user.ok(Release(lease))
    user.store(number, PROMPT, 512)
    assert user.acquire(number, PROMPT).usable_tokens == 512


@pytest.mark.parametrize("what", ["leases", "units"])
def test_an_engine_holds_no_more_than_its_cap(what):
    """At the cap a further lease or reservation is refused, and granted once one was given back."""
    world = World(CoreConfig(memory_bytes=1 << 20, arena_bytes=1 << 16, max_leases=1, max_units=1))
    user = world.engine()
    number = user.register(pick("CX"))
    user.store(number, PROMPT, 256)
    asks = {
        "leases": Acquire(number, 257, user.boundary(number, PROMPT, 256).hashes),
        "units": Reserve(number, user.boundary(number, PROMPT, 512)),
    }
    held = user.ok(asks[what])
    refused = user.ask(asks[what])
    assert isinstance(refused, Failed)
    assert (refused.code, refused.field) == (LimitError.code, f"max_{what}")
    user.ok(Release(held.lease) if what == "leases" else Abort(held.unit))
    user.ok(asks[what])
