"""Blocks that are not alike: a tail of rows that do not divide a block is empty at some ends of blocks, not at all."""

from kvledger.kinds import Form, Kind
from kvledger.verdict import Code
from support.world import World, group, layout

PROMPT = list(range(20))
UNLIKE = layout(
    group("R", Kind.COMPRESSED_KV),
    group("C", Kind.COMPRESSED_KV, tokens_per_row=3, cacheable=False),
    group("T", Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT, coupled_to="C"),
    block_tokens=4,
)


def stored():
    """A user of rows up to 16 without any tail."""
    user = World().engine()
    number = user.register(UNLIKE)
    user.store(number, PROMPT, 16, boundary=False)
    return user, number


def test_a_block_end_that_needs_no_tail_is_usable():
    """12 is a multiple of 3, so nothing of the tail lacks there, though it does at 4, 8 and 16."""
    user, number = stored()
    answer = user.acquire(number, PROMPT)
    assert (answer.restorable, answer.usable_tokens, answer.offers[0].position) == ([12], 12, 12)


def test_the_tail_alone_reaches_as_far():
    """Coverage says the same of the tail, and no snapshot had to be stored for it."""
    user, number = stored()
    assert user.acquire(number, PROMPT).coverage == [16, 16, 12]


def test_only_blocks_that_need_the_tail_are_said_to_lack_it():
    """The cut begins behind the last usable block and names the tail."""
    user, number = stored()
    cuts = [(c.start, c.end, c.group) for c in user.acquire(number, PROMPT).cuts if c.code is Code.TAIL_MISSING]
    assert cuts == [(12, 16, "T")]
