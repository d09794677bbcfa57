"""A description is cut to what a reply may hold, and what is cut off is counted without being made."""

from unittest.mock import patch

from kvledger.kinds import Kind
from kvledger.wire.replies import ObjectInfo
from kvledger.wire.requests import Describe
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.lookup import decide_lookup
from kvledgerd.core.lookup.decide_lookup import DESCRIBED_MAX
from support.world import World, group, layout

ROWS = layout(group("R", Kind.COMPRESSED_KV, shards=8), block_tokens=4)
BLOCKS = 1000
ROOM = CoreConfig(memory_bytes=512 << 20, arena_bytes=256 << 20)


def described(blocks):
    """Describe a prompt of that many blocks; returns the reply and how many descriptions were made for it."""
    user = World(ROOM, check=False).engine()
    number = user.register(ROWS)
    prompt = list(range(4 * blocks))
    user.store(number, prompt)
    at = user.boundary(number, prompt)
    with patch.object(decide_lookup, "ObjectInfo", wraps=ObjectInfo) as made:
        return user.ok(Describe(number, at)), made.call_count


def test_a_short_path_is_described_whole():
    """Every object is listed, and none is counted besides."""
    reply, made = described(3)
    assert [(item.block, item.shard) for item in reply.objects] == [(b, s) for b in range(3) for s in range(8)]
    assert (reply.more, made) == (0, 24)


def test_a_long_path_is_cut_and_the_rest_only_counted():
    """The first objects are listed, how many more there are is right, and nobody waits for what is cut off."""
    reply, made = described(BLOCKS)
    assert len(reply.objects) == made == DESCRIBED_MAX
    assert reply.more == 8 * BLOCKS - DESCRIBED_MAX
