"""What decides between two boundaries, where one token or one term makes the difference."""

from __future__ import annotations

import pytest

from kvledger.geometry import Geometry
from kvledger.kinds import Form, Kind
from kvledger.verdict import Exactness
from support.layouts import compressed, window
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
