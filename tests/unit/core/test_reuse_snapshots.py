"""What was learnt about reuse goes through a snapshot whole, or a start would end at the next checkpoint."""

import random

from msgspec.structs import replace

from kvledger.wire.requests import Register
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.placement.reuse import RING, Reuse
from kvledgerd.snapshots import proof
from support.layouts import pick
from support.world import World


def _see(reuse: Reuse, name: int) -> None:
    reuse.now += 1
    reuse.see(name << 8)


def _again(reuse: Reuse) -> Reuse:
    found = Reuse()
    found.unpack(*reuse.packed())
    return found


def test_a_sample_that_went_through_a_snapshot_forgets_at_the_same_moment():
    """A daemon that began with a snapshot learns what one that never stopped learns, also past the sample's bound."""
    reuse, chosen = Reuse(), random.Random(1)
    reuse.active, reuse.span = True, RING // 8
    for name in range(RING, RING + 500):
        _see(reuse, name)
    for _ in range(RING - 1000):
        _see(reuse, chosen.randrange(300))
    made = _again(reuse)
    for step in range(RING // 4):
        name = chosen.randrange(300 if step % 3 else RING)
        _see(reuse, name)
        _see(made, name)
        if step % 512 == 0:
            assert made.digest() == reuse.digest(), step
            made = _again(made)
    assert made.digest() == reuse.digest()


def test_a_tenant_whose_layouts_are_all_forgotten_does_not_end_snapshots():
    """Engines with unnamed weights of one tenant came and went; the state with the others is read back as it is."""
    world = World(CoreConfig(allow_unpinned=True))
    unnamed = replace(pick("C"), weights_digest="")
    for number in range(2):
        engine = world.engine(f"first {number}", tenant="first")
        engine.ok(Register(unnamed))
        engine.leave()
    other = world.engine("other", tenant="other")
    other.store(other.register(pick("C")), range(512))
    other.register(unnamed)
    assert {known.tenant for known in world.state.layouts.values()} == {"other"}
    assert proof.proven(world.state)[1] == world.state.digest()
