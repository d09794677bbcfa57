"""Device pools: what an engine fills on its own pages is ready for it, for nobody else, and gone with it."""

from itertools import pairwise

import pytest

from kvledger.device_regions import regions
from kvledger.kinds import Kind
from kvledger.wire.replies import Failed, PagesGiven
from kvledger.wire.requests import Describe, DropPool, Fingerprints, GivePagesUp, Offload, Release, ReportFilled, Status
from kvledgerd.core.config import CoreConfig
from support.devices import set_aside, wish
from support.layouts import HYBRID, compressed, pick, window
from support.world import World, layout

PROMPT = list(range(600))
OTHER = list(range(1000, 1600))


def engine(letters=HYBRID, pages=64, *, caps=None, **fields):
    """A world, an engine with a device pool, and the number of its layout."""
    world = World(CoreConfig(**caps or {}))
    user = world.engine()
    number = user.register(pick(letters))
    return world, user, number, set_aside(user, number, pages, **fields)


def test_what_was_filled_is_ready_for_its_engine_and_a_miss_for_others():
    """After `ReportFilled` a look-up of this engine names the pool in every handle; one with another pool misses."""
    world, user, number, pages = engine()
    other = world.engine("other")
    set_aside(other, number, 64)

    pages.put(PROMPT, 512)

    hit = user.acquire(number, PROMPT)
    assert (hit.usable_tokens, hit.offers[0].ready) == (512, True)
    runs = [*hit.rows, *hit.offers[0].runs]
    assert {run.arena for run in runs} == {pages.number}
    assert all(len(run.prints) == 8 * run.count for run in runs)
    assert len(user.read(hit)) == 8
    missed = other.acquire(number, PROMPT)
    assert (missed.lease, missed.hash_tokens, missed.restorable, missed.coverage) == (0, 0, [], [0, 0, 0, 0])


def test_nothing_is_seen_before_it_is_filled():
    """Asked pages are no hit, for their own engine neither, and vanish when they are given up."""
    world, user, number, pages = engine()

    given = pages.ask(PROMPT, 512)

    assert user.acquire(number, PROMPT).lease == 0
    user.ok(GivePagesUp(given.unit))
    assert user.ask(ReportFilled(given.unit, bytes(64), 512)).code == "generation"
    assert (world.state.cells, world.state.nodes) == ({}, {})
    assert user.ok(Status()).counters["device_live_bytes.COMPRESSED_KV"] == 0


def test_memory_and_device_make_a_boundary_together():
    """Rows in memory and windows on the device carry a hit that neither place carries alone."""
    _, user, number, pages = engine()
    user.store(number, PROMPT, 512)
    user.evict(number, PROMPT, 512, "S")
    assert user.acquire(number, PROMPT).usable_tokens == 0

    pages.put(PROMPT, 512)
    for name in ("C", "T"):
        pages.free(PROMPT, 512, name, whole=True)

    hit = user.acquire(number, PROMPT)
    assert hit.usable_tokens == 512
    places = {run.group: run.arena == pages.number for run in (*hit.rows, *hit.offers[0].runs)}
    assert places == {0: False, 1: False, 2: True, 3: False}
    assert len(user.read(hit)) == 8


def test_a_copy_in_memory_joins_the_one_on_the_device():
    """A later `put` of the same prefix makes it everybody's; the engine's own handles stay on the device."""
    world, user, number, pages = engine()
    pages.put(PROMPT, 512)

    stored = user.store(number, PROMPT, 512)

    assert stored.stored == 8
    assert world.engine("other").acquire(number, PROMPT).usable_tokens == 512
    assert {run.arena for run in user.acquire(number, PROMPT).rows} == {pages.number}
    assert pages.put(PROMPT, 512).stored == 0


def test_two_fills_of_the_same_keep_the_first():
    """Two workers that ask for the same pages and fill both: the second's are dropped, and named where they differ."""
    _, user, number, pages = engine("CX", 4)
    one, two = pages.ask(PROMPT, 512), pages.ask(PROMPT, 512)
    assert (one.present, two.present) == (b"\x00", b"\x00")

    assert (pages.fill(one).stored, pages.fill(two, seed=1).differing) == (4, 4)

    assert user.world.events("pages_filled.1")[-1].dropped == (0, 1, 2, 3)
    assert len(pages.pool.copies) == 4
    assert user.read(user.acquire(number, PROMPT))[0, 0, 0].startswith(b"C/0/0/0;")


def test_a_lease_keeps_device_copies_where_they_are():
    """Leased copies are neither freed nor make room, whoever asks; released, they do."""
    _, user, number, pages = engine("C", 2)
    pages.put(PROMPT, 512)
    hit = user.acquire(number, PROMPT)

    refused = pages.ask(OTHER, 512)
    kept = pages.free(PROMPT, 512, "C", whole=True)

    assert (refused.code, refused.field) == ("capacity", "pages")
    assert (kept.dropped, kept.kept) == (0, 2)
    assert user.ask(DropPool(pages.number)).code == "service"
    user.ok(Release(hit.lease))
    assert isinstance(pages.ask(OTHER, 512), PagesGiven)


@pytest.mark.parametrize("name", ["C", "X"])
def test_coupled_partners_are_freed_together(name):
    """Rows never stay without their keys, nor keys without their rows, whichever of them is freed."""
    _, _, _, pages = engine("CXS")
    pages.put(PROMPT, 512)

    freed = pages.free(PROMPT, 512, name, whole=True)

    assert freed.dropped == 4
    assert pages.resident() == {"S": 2}


def test_eviction_takes_the_least_recently_used_leaf_and_names_what_lies_nowhere_else():
    """Room is made by the oldest block on which nothing stands; its bytes can still be saved, so the reply names it."""
    _, user, number, pages = engine("C", 4)
    pages.put(PROMPT, 512)
    pages.put(OTHER, 512)
    user.ok(Release(user.acquire(number, PROMPT).lease))
    user.store(number, OTHER, 256)

    given = pages.ask(list(range(5000, 5512)), 512)

    # of OTHER both blocks go, the second alone is named: the first lies in memory too
    (victim,) = given.victims
    assert (victim.hash, victim.residue, victim.length) == (user.boundary(number, OTHER, 512).hashes[32:], -1, 1024)
    (freed,) = user.world.events("device_freed.1")
    assert (len(freed.objects), freed.reason) == (2, "room")
    assert user.acquire(number, PROMPT).usable_tokens == 512


def test_generations_are_never_repeated():
    """Pages that are reused bear another generation, in arenas and on devices from one counter."""
    _, user, number, pages = engine("C", 2)
    seen = []
    for start in range(3):
        pages.put(range(5000 * start, 5000 * start + 512), 512)
        user.store(number, range(5000 * start, 5000 * start + 512), 512)
        seen += [copy.generation for copy in pages.pool.copies.values()]
        seen += [unit.unit for unit in user.world.events("unit_reserved.1")[-1:]]

    assert len(dict.fromkeys(seen)) == 6


def test_the_number_of_a_pool_is_that_of_no_arena():
    """Pools and arenas draw their numbers from one counter, so a handle's place never means two things."""
    world, user, number, pages = engine("C")
    user.store(number, PROMPT, 512)
    later = set_aside(user, number, 4, memory=b"more", address=1 << 41)

    assert pages.number not in world.state.arenas
    assert later.number not in world.state.arenas
    assert world.state.next_arena == later.number + 1


def test_a_boundary_that_is_being_written_for_the_first_time_may_be_leased():
    """Where all windows lie in blocks its cell is empty until the manifest is there, which breaks nothing."""
    world, user, number, _ = engine("CS", 8)
    user.store(number, PROMPT, 512)
    world.held = []
    user.ask(Offload(number, user.boundary(number, PROMPT, 512)))
    lease = user.acquire(number, PROMPT)
    assert lease.usable_tokens == 512
    world.release_effects()
    assert user.read(lease)


@pytest.mark.parametrize("end", ["leave", "restart"])
def test_the_end_of_engine_or_incarnation_drops_the_pool(end):
    """What lay in the pool is gone with its engine and with the daemon's incarnation; what was in memory stays."""
    world, user, number, pages = engine()
    pages.put(PROMPT, 512)
    user.store(number, PROMPT, 256)
    pages.ask(OTHER, 512)

    user.leave() if end == "leave" else world.restart()

    assert (world.state.device_pools, world.state.asked) == ({}, {})
    again = world.engine("engine")
    assert again.acquire(again.register(pick(HYBRID)), PROMPT).usable_tokens == 256


def test_fingerprints_of_device_copies_are_what_the_engine_reported():
    """`Fingerprints` gives XXH3-128 for memory, and eight zero bytes with `fp64` for a device, as the lease has it."""
    _, user, number, pages = engine("C")
    user.store(number, PROMPT, 512)
    before = user.acquire(number, PROMPT)
    in_memory = user.ok(Fingerprints(before.lease)).fingerprints

    pages.put(PROMPT, 512)

    assert user.ok(Fingerprints(before.lease)).fingerprints == in_memory
    after = user.acquire(number, PROMPT)
    found = user.ok(Fingerprints(after.lease)).fingerprints
    (run,) = after.rows
    assert found == b"".join(bytes(8) + run.prints[8 * i : 8 * i + 8] for i in range(2))


def test_describe_shows_device_copies_to_their_engine_only():
    """An object that lies on a device alone is RESIDENT for its engine, and not there for another."""
    world, user, number, pages = engine("C")
    pages.put(PROMPT, 512)
    other = world.engine("other")

    mine = user.ok(Describe(number, user.boundary(number, PROMPT, 512))).objects
    theirs = other.ok(Describe(number, other.boundary(number, PROMPT, 512))).objects

    assert [(info.state, info.pool) for info in mine] == [("RESIDENT", pages.number)] * 2
    assert theirs == []


def test_a_pool_of_one_rank_holds_its_shards():
    """A rank's pool brings only its own shard; together two pools of one engine make the boundary."""
    world = World()
    user = world.engine()
    number = user.register(layout(compressed("C", shards=2), window(shards=2)))
    ranks = [set_aside(user, number, 16, rank=shard, device=f"gpu:{shard}", memory=b"%d" % shard) for shard in range(2)]

    ranks[0].put(PROMPT, 512)
    assert user.acquire(number, PROMPT).usable_tokens == 0
    ranks[1].put(PROMPT, 512)

    hit = user.acquire(number, PROMPT)
    assert hit.usable_tokens == 512
    assert {(run.shard, run.arena) for run in hit.rows} == {(0, ranks[0].number), (1, ranks[1].number)}


@pytest.mark.parametrize("alignment", [128, 256, 576])
@pytest.mark.parametrize("address", [0x7F00_0000_0000, 0x7F00_0000_0040, 0x1001])
def test_places_are_aligned_for_their_group(alignment, address):
    """Whatever the pool's address, every object lies where its group's alignment holds, 576 bytes as well."""
    world = World()
    user = world.engine()
    spec = compressed("C", alignment=alignment, page_bytes=-(-1024 // alignment) * alignment)
    number = user.register(layout(compressed("D"), spec, window(alignment=64)))
    pages = set_aside(user, number, 8, address=address)

    pages.put(PROMPT, 512)

    hit = user.acquire(number, PROMPT)
    runs = [run for run in hit.rows if run.group == 1]
    assert all((address + run.offset + i * run.stride) % alignment == 0 for run in runs for i in range(run.count))


CAPS = [
    ({"device_bytes": 2048}, "device_bytes"),
    ({"device_tenant_bytes": 2048}, "device_tenant_bytes"),
    ({"device_kind_bytes": {Kind.SWA_WINDOW: 1024}}, "device_kind_bytes"),
    ({"device_entries": 3}, "device_entries"),
    ({"device_tenant_entries": 3}, "device_tenant_entries"),
    ({"device_kind_entries": {Kind.COMPRESSED_KV: 1}}, "device_kind_entries"),
]


@pytest.mark.parametrize(("caps", "field"), CAPS, ids=[field for _, field in CAPS])
def test_caps_hold_in_the_decision_that_takes_places(caps, field):
    """A unit that would pass a cap by itself is refused with the cap's name, and nothing is taken or evicted."""
    world, user, number, pages = engine("CS", caps=caps)
    before = len(world.log)

    refused = pages.ask(PROMPT, 512)

    assert isinstance(refused, Failed)
    assert (refused.code, refused.field) == ("capacity", field)
    assert len(world.log) == before
    assert user.acquire(number, PROMPT).lease == 0


@pytest.mark.parametrize(
    "caps", [{"device_bytes": 2048}, {"device_kind_entries": {Kind.COMPRESSED_KV: 2}}], ids=["bytes", "entries"]
)
def test_what_is_old_makes_room_under_a_cap(caps):
    """Where the pool has pages and a cap is reached, older copies go until it holds."""
    _, user, number, pages = engine("C", 64, caps=caps)
    pages.put(PROMPT, 512)

    pages.put(OTHER, 512)

    assert user.acquire(number, PROMPT).usable_tokens == 0
    assert user.acquire(number, OTHER).usable_tokens == 512


def test_a_group_without_pages_is_refused_by_name():
    """A pool that has no pages for a group says so, and what to do."""
    _, _, _, pages = engine("CS", {"C": 8})

    refused = pages.ask(PROMPT, 512)

    assert refused.message == f"device pool {pages.number} has no pages for S (SWA_WINDOW)"


def test_regions_that_do_not_fit_are_refused():
    """A registration whose pages pass its bytes names the bytes that it takes."""
    world = World()
    user = world.engine()
    number = user.register(pick("C"))

    refused = user.ask(wish(user, number, 64, size=1000))

    assert (refused.code, refused.field) == ("caller", "bytes")
    assert "give the pool 65536 bytes" in refused.remedy


def test_regions_follow_each_other_without_overlap():
    """Each group has a region of its own, so pages never change their kind."""
    found = regions(pick(HYBRID), 0x1001, [4, 4, 4, 4], 1 << 20)

    assert all(one.end <= other.start for one, other in pairwise(found))
    assert [region.group for region in found] == [0, 1, 2, 3]


def test_only_settled_units_are_filled():
    """A report whose settled tokens end before the unit does is refused; once they are settled it is taken."""
    _, user, number, pages = engine("C")
    given = pages.ask(PROMPT, 512)

    refused = pages.fill(given, settled=511)

    assert (refused.code, refused.field) == ("commit_refused", "settled")
    assert user.acquire(number, PROMPT).lease == 0
    assert pages.fill(given, settled=512).stored == 2


def test_prints_are_counted():
    """A report that has not one `fp64` for each object is refused."""
    _, user, _, pages = engine("C")
    given = pages.ask(PROMPT, 512)

    refused = user.ask(ReportFilled(given.unit, bytes(8), 512))

    assert (refused.field, refused.message) == ("prints", "fp64s of 2 objects are asked for")


@pytest.mark.hostile("ID01")
def test_another_engine_can_not_use_a_pool():
    """Pool and asked pages of another engine look like none at all."""
    world, _, _, pages = engine("C")
    given = pages.ask(PROMPT, 512)
    other = world.engine("other")

    assert other.ask(DropPool(pages.number)).code == "not_found"
    assert other.ask(GivePagesUp(given.unit)).code == "generation"
    assert other.ask(ReportFilled(given.unit, bytes(16), 512)).code == "generation"
