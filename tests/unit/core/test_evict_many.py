"""Many copies dropped by an operator: what is meant goes, what is held stays and says by what, in bounded steps."""

import pytest
from msgspec.structs import replace

from kvledger.kinds import Kind
from kvledger.wire.evictions import EvictMany
from kvledger.wire.requests import Release, Warm
from kvledgerd.core.copies import decide_evict_many
from support.layouts import pick
from support.world import World

KINDS = (Kind.DISK_PREFIX, Kind.COMPRESSED_KV, Kind.UNCOMPRESSED_TAIL)


def prompt(number: int) -> list[int]:
    """A prompt that begins like no other."""
    return [10_000 * number + token for token in range(600)]


@pytest.fixture
def stored():
    """Three prompts of one layout, the third on disk as well."""
    world = World()
    user = world.engine()
    number = user.register(pick("CM"))
    for one in range(3):
        user.store(number, prompt(one), 512)
    user.offload(number, prompt(2), 512, drop=False)
    return world, user, number


def reach(user, number, one: int) -> int:
    """Return how far a prompt is usable."""
    found = user.acquire(number, prompt(one))
    if found.lease:
        user.ok(Release(found.lease))
    return found.usable_tokens


def test_everything_goes_and_nothing_else_is_left(stored):
    """With every kind in memory and on disk named, no object, block or record is left, and a replay agrees."""
    world, user, _ = stored
    for kind in KINDS:
        answer = user.ok(EvictMany(kind, memory=True, disk=True))
        assert answer.next == 0
    state = world.state
    assert (state.objects, len(state.cells), len(state.nodes), state.disk_bytes) == (0, 0, 0, 0)
    assert not world.records()
    assert world.replayed().digest() == state.digest()


def test_one_path_goes(stored):
    """A block names a path: its prompts are misses, the others stay usable to their last token."""
    _, user, number = stored
    block = user.boundary(number, prompt(1), 256).hashes
    answer = user.ok(EvictMany(Kind.COMPRESSED_KV, block=block))
    assert (answer.objects, answer.disk_bytes) == (2, 0)
    assert [reach(user, number, one) for one in range(3)] == [512, 0, 512]


def test_a_position_means_the_boundaries_there(stored):
    """The state at one position goes, and the rows on the way to it stay."""
    world, user, number = stored
    user.store(number, prompt(1), 600)
    assert user.ok(EvictMany(Kind.UNCOMPRESSED_TAIL, position=600)).objects == 1
    assert user.ok(EvictMany(Kind.COMPRESSED_KV, position=512)).objects == 0
    assert reach(user, number, 1) == 512
    assert world.replayed().digest() == world.state.digest()


@pytest.mark.parametrize("kind", list(Kind))
def test_only_the_kind_that_is_named_goes(stored, kind):
    """Of each kind that is named the pool is empty afterwards, and those of the others are as they were."""
    world, user, _ = stored
    before = {one: world.state.pool("default", one).entries for one in Kind}
    user.ok(EvictMany(kind))
    after = {one: world.state.pool("default", one).entries for one in Kind}
    assert after == before | {kind: 0}


def test_memory_alone_leaves_the_disk(stored):
    """What has a disk copy is a hit off the disk afterwards; of the others nothing is left."""
    world, user, _ = stored
    bytes_before = world.state.disk_bytes
    for kind in KINDS[1:]:
        user.ok(EvictMany(kind))
    assert user.ok(EvictMany(Kind.DISK_PREFIX)).objects == 0
    assert world.state.disk_bytes == bytes_before
    assert sum(cell.memory.bit_count() for cell in world.state.cells.values()) == 0


def test_a_dry_run_says_the_same_and_changes_nothing(stored):
    """What would go is what goes, and until then no event is written."""
    world, user, _ = stored
    asked = EvictMany(Kind.COMPRESSED_KV, memory=True, disk=True)
    events = len(world.log)
    told = user.ok(replace(asked, dry_run=True))
    assert len(world.log) == events
    assert user.ok(asked) == told
    assert told.objects == 6
    assert told.memory_bytes == 3 * told.disk_bytes > 0


def test_what_is_held_stays_and_says_by_what(stored):
    """A lease, a captured graph and an open reservation each keep what they name, and are counted apart."""
    world, user, number = stored
    user.acquire(number, prompt(0))
    graph = user.acquire(number, prompt(1))
    user.capture(graph)
    user.ok(Release(graph.lease))
    user.reserve(number, prompt(2), 600)
    answer = user.ok(EvictMany(Kind.COMPRESSED_KV))
    assert (answer.objects, answer.leased, answer.pinned, answer.busy) == (0, 2, 2, 2)
    assert world.replayed().digest() == world.state.digest()


def test_steps_are_bounded_and_meet_everything(stored, monkeypatch):
    """However few places one step looks at, all steps together drop what one step would have."""
    world, user, _ = stored
    monkeypatch.setattr(decide_evict_many, "LOOKED_AT", 1)
    asked, steps, went = EvictMany(Kind.COMPRESSED_KV), 0, 0
    while True:
        answer = user.ok(asked)
        steps, went = steps + 1, went + answer.objects
        if not answer.next:
            break
        asked = replace(asked, after=answer.next)
    assert (went, steps) == (6, world.state.next_cell - 1)


def test_another_tenant_keeps_its_own(stored):
    """An operator of one tenant neither drops nor counts what another one has."""
    world, _, _ = stored
    other = world.engine("other", tenant="other")
    assert other.ok(EvictMany(Kind.COMPRESSED_KV)).objects == 0


def test_a_digest_that_no_layout_has_is_an_error_that_names_those_there_are(stored):
    """Nothing dropped would look like nothing there: a wrong digest is refused, and another tenant's is not told."""
    world, user, number = stored
    digest = world.state.layouts[number].layout.digest
    wrong = digest[:2] + bytes([digest[2] ^ 1])
    for asked in (EvictMany(Kind.DISK_PREFIX, wrong), Warm(wrong)):
        refused = user.ask(asked)
        assert (refused.code, refused.field) == ("not_found", "layout")
        assert digest.hex()[:16] in refused.remedy
        assert "no layout yet" in world.engine("other", tenant="other").ask(asked).remedy
    assert user.ok(EvictMany(Kind.COMPRESSED_KV, digest[:2])).objects == 6


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        (EvictMany(Kind.SWA_WINDOW, memory=False), "memory"),
        (EvictMany(Kind.SWA_WINDOW, block=b"1"), "block"),
    ],
)
def test_a_request_that_means_nothing_is_refused(stored, asked, field):
    """A request without a place, or with half a hash, is an error that names the field."""
    _, user, _ = stored
    assert user.ask(asked).field == field
