"""Where a state is worth keeping while a prompt is computed, on the shapes of real models."""

import pytest

from kvledger.kinds import Form, Kind
from kvledger.wire.replies import Reserved
from support.layouts import compressed, indexer, pick, recurrent, tail, window
from support.world import World, group, layout

PROMPT = list(range(2000))


def flash(**fields):
    """DeepSeek-V4 Flash as vLLM pages it: rows of 4 and of 128 tokens, keys, a window of pages, paged tails."""
    groups = (
        compressed("csa"),
        compressed("hca", per_row=128),
        indexer("index", to="csa"),
        window("swa", 64, 128),
        tail("tail4", 4, 8),
        tail("tail128", 8, 128),
    )
    return layout(*groups, block_tokens=256, **fields)


def gemma(**fields):
    """Gemma 3: full attention in pages of 16 tokens, beside windows of 1,024."""
    full = group("full", Kind.COMPRESSED_KV, tokens_per_row=1, rows_per_page=16)
    return layout(full, window("swa", 16, 1024), block_tokens=16, **fields)


def qwen(**fields):
    """Qwen3-Next: full attention beside a recurrent state, which is true at one token only."""
    full = group("full", Kind.COMPRESSED_KV, tokens_per_row=1, rows_per_page=64)
    return layout(full, recurrent("gdn"), block_tokens=64, **fields)


def state_only(**fields):
    """A purely recurrent model: nothing but a snapshot."""
    return layout(group("state", Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT), block_tokens=64, **fields)


SHAPES = {"flash": (flash, 128), "gemma": (gemma, 16), "qwen": (qwen, 1), "state": (state_only, 1)}
"""Each with the distance of the boundaries at which it can resume."""


def looked_up(made, tokens, **fields):
    """A fresh cache, and what it wants of a prompt of so many tokens."""
    user = World().engine()
    number = user.register(made)
    return user, number, user.acquire(number, PROMPT[:tokens], **fields).wanted


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("tokens", [1000, 1024, 1025, 1999])
def test_the_end_and_what_the_same_prompt_can_use(shape, tokens):
    """The last boundary is wanted, and the last one that leaves a token to compute; often they are one."""
    make, step = SHAPES[shape]
    _, _, wanted = looked_up(make(), tokens)
    assert wanted == sorted({tokens // step * step, (tokens - 1) // step * step})


@pytest.mark.parametrize("shape", SHAPES)
def test_checkpoints_stand_where_the_layout_can_resume(shape):
    """A checkpoint at every 300 tokens stands at the last boundary up to it, and none goes missing."""
    make, step = SHAPES[shape]
    _, _, wanted = looked_up(make(checkpoint_tokens=300), 1900)
    marks = [*range(300, 1900, 300), 1899, 1900]
    assert wanted == sorted({mark // step * step for mark in marks})


@pytest.mark.parametrize("shape", ["flash", "gemma", "qwen"])
def test_a_junction_is_wanted(shape):
    """Where a prompt parts from one that is stored, the next ones may part too: the last common block is wanted."""
    make, _ = SHAPES[shape]
    user = World().engine()
    number = user.register(make())
    size = user.world.state.layouts[number].layout.block_tokens
    user.store(number, PROMPT[:1536], 1536)
    common = 1024 // size * size
    other = [*PROMPT[:common], *range(5000, 5600)]
    assert common in user.acquire(number, other).wanted


@pytest.mark.parametrize("shape", SHAPES)
def test_all_that_is_wanted_can_be_stored(shape):
    """A state may be kept at every boundary that is wanted, and a prompt that goes on resumes there."""
    make, _ = SHAPES[shape]
    user, number, wanted = looked_up(make(checkpoint_tokens=512), 1900)
    assert len(wanted) >= 4
    for end in wanted:
        assert isinstance(user.ask_reserve(number, PROMPT, end, boundary=True), Reserved)
        user.store(number, PROMPT, end)
        offers = user.acquire(number, PROMPT[: end + 1]).offers
        assert end in [offer.position for offer in offers]


@pytest.mark.parametrize("align", [16, 48, 256])
def test_the_callers_alignment_holds_for_all(align):
    """An engine that can only cut at multiples of its own finds only such boundaries, checkpoints included."""
    _, _, wanted = looked_up(qwen(checkpoint_tokens=300), 1900, align=align)
    assert wanted
    assert all(position % align == 0 for position in wanted)


def test_what_is_there_is_not_wanted_again():
    """Only boundaries behind the chosen one are wanted."""
    user = World().engine()
    number = user.register(pick("CXST", checkpoint_tokens=256))
    user.store(number, PROMPT, 1024)
    assert user.acquire(number, PROMPT[:1600]).wanted == [1280, 1536, 1600]


def test_a_million_tokens_want_the_last_checkpoints():
    """A prompt with more checkpoints than an answer holds is told the deepest of them."""
    user = World().engine()
    number = user.register(qwen(checkpoint_tokens=64))
    wanted = user.acquire(number, range(200_000)).wanted
    assert len(wanted) == 256
    assert wanted == [*range(200_000 - 254 * 64, 200_000, 64), 199_999, 200_000]
