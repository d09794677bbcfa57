"""Material: blocks that were committed without a boundary, until one stands on them or a look-up hands them out."""

import pytest

from kvledger.kinds import Form, Kind
from kvledger.wire.requests import Evict
from kvledgerd.core.config import PAGE, CoreConfig
from support.layouts import compressed, pick, recurrent, window
from support.world import World, group, layout

PROMPT = list(range(700))
OTHER = [token + 5000 for token in PROMPT]
STATES = ["CM", "MC", "CXST", "TSXC"]


def fresh(what, config=None):
    """A user with a registered layout."""
    user = World(config).engine()
    return user, user.register(what)


def blocks(user):
    """Depth of each block that is kept, and whether it is used."""
    cells = user.world.state.cells.values()
    return {cell.node.depth: cell.used for cell in cells if cell.is_block}


def unused(user):
    """The counter, as a status and as a replay of the log tell it."""
    assert user.world.replayed().material_unused == user.world.state.material_unused
    return user.world.state.material_unused


@pytest.mark.parametrize("letters", STATES)
def test_blocks_without_a_boundary_are_material_until_one_stands_on_them(letters):
    """Blocks alone are nobody's use; a boundary that is committed later uses those it stands on and no others."""
    user, number = fresh(pick(letters))
    user.store(number, PROMPT, 512, boundary=False)
    assert blocks(user) == {1: False, 2: False}
    assert user.acquire(number, PROMPT).usable_tokens == 0
    user.store(number, PROMPT, 256)
    assert blocks(user) == {1: True, 2: False}
    user.store(number, PROMPT, 512, first_block=2)
    assert blocks(user) == {1: True, 2: True}


def test_a_boundary_inside_a_block_uses_the_blocks_before_it():
    """A residue stands on all whole blocks before it."""
    user, number = fresh(layout(compressed(), recurrent(coupled_to="C", halo_rows=4)))
    user.store(number, PROMPT, 512, boundary=False)
    user.store(number, PROMPT, 300)
    assert blocks(user) == {1: True, 2: False}


@pytest.mark.parametrize("what", [layout(compressed()), layout(compressed(), recurrent(coupled_to="C"))])
def test_where_rows_suffice_every_whole_block_is_a_boundary(what):
    """A layout whose rows are all that a block's end needs has no material, once no block before lacks."""
    user, number = fresh(what)
    user.store(number, PROMPT, 512, boundary=False, first_block=1)
    assert blocks(user) == {2: False}
    assert user.acquire(number, PROMPT).usable_tokens == 0
    user.store(number, PROMPT, 256, boundary=False)
    assert blocks(user) == {1: True, 2: False}
    user.store(number, PROMPT + list(range(900, 1000)), 768, boundary=False)
    assert blocks(user) == {1: True, 2: True, 3: True}


def test_a_look_up_that_hands_blocks_out_uses_them():
    """With every window page kept, blocks can be resumed from without a boundary of their own; a hit says so."""
    user, number = fresh(layout(compressed(), window()))
    user.store(number, PROMPT, 512, boundary=False, all_pages=True)
    assert blocks(user) == {1: False, 2: False}
    assert user.acquire(number, PROMPT[:300]).usable_tokens == 256
    assert blocks(user) == {1: True, 2: False}


def test_a_replay_that_stands_on_blocks_uses_them():
    """Who rebuilds a window by recomputation stands on the rows alone."""
    ring = group("S", Kind.SWA_WINDOW, Form.SNAPSHOT, window=64, exact_replay_tokens=64)
    user, number = fresh(layout(compressed(), ring))
    user.store(number, PROMPT, 512, boundary=False)
    assert user.acquire(number, PROMPT).usable_tokens == 0
    assert blocks(user) == {1: False, 2: False}
    assert user.acquire(number, PROMPT, replay=True).usable_tokens == 512
    assert blocks(user) == {1: True, 2: True}


def test_a_block_that_comes_back_below_its_boundaries_is_used():
    """A hole in a path is filled without a boundary: the ones behind it stand on it again."""
    user, number = fresh(pick("CM"))
    user.store(number, PROMPT, 512)
    user.evict(number, PROMPT, 512, "C", block=0)
    user.store(number, PROMPT, 256, boundary=False)
    assert blocks(user) == {1: True, 2: True}
    assert user.acquire(number, PROMPT).usable_tokens == 512


@pytest.mark.parametrize("letters", STATES)
def test_material_that_dies_unused_is_counted(letters):
    """Blocks that were dropped before anything used them count; those that a boundary used do not."""
    user, number = fresh(pick(letters))
    user.store(number, PROMPT, 512, boundary=False)
    user.store(number, OTHER, 512)
    for prompt in (PROMPT, OTHER):
        for name in letters:
            kind = user.world.state.layouts[number].layout.group(name).kind
            user.ask(Evict(kind, number, user.boundary(number, prompt, 512)))
    assert unused(user) == 2
    assert user.counters()["material_unused"] == 2


def test_material_counts_when_it_makes_room():
    """What is displaced by newer objects counts as well as what is dropped on request."""
    config = CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, kind_bytes={Kind.COMPRESSED_KV: 2 * PAGE})
    user, number = fresh(pick("CM"), config)
    user.store(number, PROMPT, 512, boundary=False)
    user.store(number, OTHER, 512)
    assert blocks(user) == {1: True, 2: True}
    assert unused(user) == 2
