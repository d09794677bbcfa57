"""Warm-up: what was hot comes back first, into memory that is free, and pushes out nothing."""

import pytest

from kvledger.wire.requests import Release, Warm
from kvledgerd.core.commands import DegradeDue, WarmDue
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.decision import DiskRead, WarmUp
from support.layouts import pick
from support.world import World

MIB = 1 << 20
ALL = WarmUp("", b"", b"", 64 * MIB)


def prompt(number: int) -> list[int]:
    """A prompt that begins like no other."""
    return [10_000 * number + token for token in range(513)]


def cold(count: int, **config):
    """A world whose prompts lie on disk alone after a boot; the first one was used last."""
    fields = {"memory_bytes": 8 * MIB, "arena_bytes": MIB // 2, "disk_bytes": 64 * MIB} | config
    world = World(CoreConfig(**fields), check=False)
    user = world.engine()
    number = user.register(pick("CM"))
    for one in range(count):
        user.store(number, prompt(one), 512)
        user.offload(number, prompt(one), 512)
    user.ok(Release(user.acquire(number, prompt(0)).lease))
    world.restart(arenas=False, boot=b"c" * 16)
    user = world.engine("again")
    return world, user, user.register(pick("CM"))


def ready(user, number, one: int) -> bool:
    """Whether a prompt is usable without the disk."""
    return user.acquire(number, prompt(one), restore=False).usable_tokens == 512


def test_the_hottest_prefix_comes_back_first():
    """Restores are begun in the order of use that the log holds, the last used first, and are promotions."""
    world, user, number = cold(4)
    world.held = []
    hottest = user.boundary(number, prompt(0), 512).hashes[-32:]
    said = world.do(WarmDue("", b"", b"", 0, MIB))
    while not said.objects:  # an arena is made first
        world.release_effects()
        world.held = []
        said = world.do(WarmDue("", b"", b"", 0, MIB))
    (read,) = (effect for effect in world.held if isinstance(effect, DiskRead))
    assert read.promotion
    assert world.state.nodes[world.state.cells[read.records[0].cell].node.id] in _path(world, number, hottest)
    assert (said.job, said.seen, said.total) == (read.job, 1, 4)


def _path(world, number, block):
    return list(world.state.layouts[number].tree.nodes[block].upwards())


def test_all_that_fits_is_ready_afterwards():
    """After a warm-up every prefix that fits is a hit without the disk, and doing it again brings nothing."""
    world, user, number = cold(5)
    world.warm(ALL)
    assert all(ready(user, number, one) for one in range(5))
    assert sum(step.objects for step in world.warm(ALL)) == 0


def test_bytes_and_choice_are_kept_to():
    """No more bytes are brought than allowed; another layout, another tenant and another path bring nothing."""
    world, user, number = cold(5)
    digest = world.state.layouts[number].layout.digest
    others = [WarmUp("nobody", b"", b"", MIB), WarmUp("", bytes(4), b"", MIB), WarmUp("", b"", bytes(32), MIB)]
    for run in others:
        assert sum(step.objects for step in world.warm(run)) == 0
    one = user.boundary(number, prompt(3), 256).hashes
    assert sum(step.objects for step in world.warm(WarmUp("default", digest[:3], one, MIB))) == 3
    assert ready(user, number, 3)
    size = sum(step.bytes for step in world.warm(WarmUp("", b"", b"", 5000)))
    assert 0 < size <= 5000


def test_a_path_is_walked_for_the_prefixes_of_one_step():
    """However many prefixes lie on disk, one step looks along the paths of sixteen, and begins none elsewhere."""
    world, user, number = cold(20)
    one = user.boundary(number, prompt(2), 256).hashes  # the nineteenth: the first was used last
    first, second = (world.do(WarmDue("", b"", one, seen, MIB)) for seen in (0, 16))
    assert (first.seen, first.total, first.job) == (16, 20, 0)
    assert second.job
    assert (second.seen, second.total) == (18, 20)  # it is looked at again when its arena is there


def test_a_warm_up_evicts_nothing():
    """With memory full of other prompts a warm-up ends at once, and everything in memory stays."""
    world, user, number = cold(30, memory_bytes=MIB // 4, arena_bytes=MIB // 16)
    for one in range(100, 140):
        user.store(number, prompt(one), 512)
    before = world.reasons("objects_evicted.1").count("room")
    world.warm(ALL)
    assert world.reasons("objects_evicted.1").count("room") == before


def test_a_disk_that_fails_is_not_warmed_from():
    """While restores have stopped a warm-up brings nothing and ends."""
    world, _, _ = cold(3)
    world.do(DegradeDue("5 restores failed within 60 s"))
    (said,) = world.warm(ALL)
    assert (said.job, said.seen) == (0, 3)


@pytest.mark.parametrize("size", [0, MIB])
def test_an_operator_asks_for_it(size):
    """The request answers at once with how many prefixes there are, and the warm-up runs behind it."""
    world, user, number = cold(3)
    answer = user.ok(Warm(b"", b"", size))
    assert (answer.total, answer.job) == (3, 0)
    assert all(ready(user, number, one) for one in range(3))
    assert world.replayed().digest() == world.state.digest()
