"""Field cases about what is committed: bytes under way, windows that an engine freed, planes of unlike types, ranks.

Each test carries the id of its case and runs over its kind: every form of group, other orders, sizes, and ranks.
"""

import pytest

from kvledger.kinds import Form, Kind
from kvledger.verdict import Code, Layer
from kvledger.wire.replies import Committed, Failed, Waiting
from kvledger.wire.requests import Commit, Describe, Join, Offload, Put, PutRange, Restore
from kvledgerd.core.commands import RestoreDone
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.decision import DiskRead
from kvledgerd.core.index import ARENA, OFFSET
from support.layouts import compressed, indexer, pick, recurrent, tail, window
from support.world import World, content, group, layout

PROMPT = list(range(1300))
OTHER = [token + 5000 for token in PROMPT]
LETTERS = ["CXST", "TSXC", "CM", "MC"]
RANKS = 3


def fresh(what, config=None):
    """A user with a registered layout."""
    user = World(config).engine()
    return user, user.register(what)


def cut(letters, ranks=RANKS):
    """A layout of groups of which every rank holds a shard."""
    made = {"C": compressed, "X": indexer, "S": window, "T": tail, "M": recurrent}
    return layout(*(made[letter](shards=ranks) for letter in letters))


def reserved_by_ranks(user, number, prompt=PROMPT, end=512, ranks=RANKS):
    """A unit that one connection reserved and each rank joined."""
    reserved = user.reserve(number, prompt, end)
    members = [user.beside() for _ in range(ranks)]
    for rank, member in enumerate(members):
        member.ok(Join(reserved.unit, rank))
    return reserved, members


def commit_all(reserved, members, seed=0):
    """Let each rank fill and commit its part, the last one last; return its answer."""
    for rank, member in enumerate(members):
        member.fill(reserved, rank=rank, seed=seed)
    return [member.ask(Commit(reserved.unit)) for member in members][-1]


def nothing(user, number, prompt=PROMPT):
    """Whether a look-up shows nothing at all."""
    acquired = user.acquire(number, prompt[:600])
    return (acquired.usable_tokens, acquired.lease, acquired.offers) == (0, 0, [])


@pytest.mark.parametrize("letters", LETTERS)
def test_v19_bytes_under_way_are_no_commit(letters):
    """As long as one copy has not been answered nothing is published: a commit waits, and publishes what arrived."""
    user, number = fresh(pick(letters))
    user.store(number, OTHER, 512)
    reserved = user.reserve(number, PROMPT, 512)
    last = max(user.world.state.units[reserved.unit].missing())
    user.world.held = []
    user.fill(reserved)
    early = user.ask(Commit(reserved.unit))
    assert early.park.jobs == tuple(user.world.state.units[reserved.unit].jobs)
    assert nothing(user, number)
    user.world.release_effects()
    assert user.ok(Commit(reserved.unit)).stored == last + 1
    assert user.acquire(number, PROMPT[:600]).usable_tokens == 512


@pytest.mark.parametrize("letters", LETTERS)
@pytest.mark.parametrize("victim", [0, 1, -1])
def test_v19_the_fingerprint_is_that_of_what_was_stored(letters, victim):
    """What changed in the ring after the writer hashed it is refused by its fingerprint, whichever object it is."""
    user, number = fresh(pick(letters))
    reserved = user.reserve(number, PROMPT, 512)
    user.fill(reserved, seed=1)
    meant = user.world.state.units[reserved.unit].prints.copy()
    user.ok(Commit(reserved.unit))
    other = user.reserve(number, OTHER, 512)
    unit = user.world.state.units[other.unit]
    fill_changed(user, other, unit.missing()[victim])
    refused = user.ask(Commit(other.unit, b"".join(meant)))
    assert (refused.code, refused.field) == ("commit_refused", "fingerprints")
    assert nothing(user, number, OTHER)


def fill_changed(user, reserved, victim):
    """Hand in what another unit had, but for one object whose bytes are others by now."""
    unit = user.world.state.units[reserved.unit]
    known = user.world.state.layouts[unit.layout]
    ranges = []
    for index in unit.missing():
        item = unit.objects[index]
        spec = known.layout.groups[item.group]
        at = len(user.world.rings)
        user.world.rings[user.caller.connection, at] = content(spec.name, item, 1 + (index == victim))
        ranges.append(PutRange(spec.kind, index, 0, at, item.length))
    user.ok(Put(reserved.unit, ranges))


@pytest.mark.parametrize("letters", LETTERS)
def test_v19_what_is_loaded_is_verified_again(letters):
    """Bytes that changed where they lay are found when they are adopted or read back, for every kind of object."""
    for group_name in letters:
        user, number = fresh(pick(letters))
        user.store(number, PROMPT, 512)
        known = user.world.state.layouts[number]
        wanted = known.layout.groups.index(known.layout.group(group_name))
        cell, slot = next(
            (cell, slot)
            for cell in user.world.state.cells.values()
            for slot in range(len(cell.states))
            if cell.memory >> slot & 1 and known.slot_groups[slot] == wanted
        )
        user.world.memory[cell.word(slot, ARENA), cell.word(slot, OFFSET)] = b"written over"
        user.world.restart()
        found = user.world.engine("again").acquire(number, PROMPT[:600])
        assert found.usable_tokens == 0
        assert (Layer.BYTES, group_name, Code.BYTES_DAMAGED) in {(c.layer, c.group, c.code) for c in found.cuts}


@pytest.mark.parametrize("chunk", [64, 128, 192, 512])
@pytest.mark.parametrize(("page", "span"), [(64, 128), (32, 64), (16, 100), (64, 65)])
def test_p09_a_chunk_brings_only_pages_that_its_window_still_has(chunk, page, span):
    """Of a prefill in chunks each boundary takes the pages of its own window: what the engine freed is never asked."""
    user, number = fresh(layout(compressed("C", 64, 4), window("S", page, span), block_tokens=64))
    for end in range(chunk, 1025, chunk):
        reserved = user.reserve(number, PROMPT, end, first_block=(end - chunk) // 64)
        unit = user.world.state.units[reserved.unit]
        pages = [unit.objects[i] for i in unit.missing() if unit.objects[i].group == 1]
        freed = end - (span - 1) - (end - (span - 1)) % page  # no page below holds a token of this window
        assert pages
        assert min(item.first_token for item in pages) >= max(freed, 0)
        user.fill(reserved)
        assert isinstance(user.ask(Commit(reserved.unit)), Committed)
    restorable = user.acquire(number, PROMPT[:1025]).restorable
    assert set(range(chunk, 1025, chunk)) <= set(restorable)


@pytest.mark.parametrize("block", [0, 3, 6])
def test_p09_pages_that_were_dropped_are_not_live_again(block):
    """A later chunk makes no page live that was dropped meanwhile, so boundaries that need it stay none."""
    user, number = fresh(layout(compressed("C", 64, 4), window("S", 32, 128), block_tokens=64))
    for end in range(64, 513, 64):
        user.store(number, PROMPT, end, first_block=end // 64 - 1)
    user.evict(number, PROMPT, 512, "S", block=block)
    before = user.acquire(number, PROMPT[:513]).restorable
    needing = [end for end in range(64, 513, 64) if end - 127 < 64 * (block + 1) and end > 64 * block]
    assert before == [end for end in range(64, 513, 64) if end not in needing]
    user.store(number, PROMPT, 1024, first_block=8)
    after = user.acquire(number, PROMPT[:1025]).restorable
    assert [end for end in after if end <= 512] == before
    assert 1024 in after


@pytest.mark.parametrize("letters", LETTERS)
@pytest.mark.parametrize("error", ["damaged: another fingerprint", "failed: I/O error"])
@pytest.mark.parametrize("victim", [0, 1, -1])
def test_l04_a_load_that_fails_in_the_middle_leaves_nothing_to_be_seen(letters, error, victim):
    """While it runs and after it failed nobody sees, and nothing stores, the slot of an object that was not read."""
    user, number = fresh(pick(letters))
    user.store(number, PROMPT, 512)
    user.offload(number, PROMPT, 512)
    world, reader = user.world, user.world.engine("reader")
    world.held = []
    at = user.boundary(number, PROMPT, 512)
    user.ask(Restore(number, at, wait_ms=0))
    (read,) = [effect for effect in world.held if isinstance(effect, DiskRead)]
    seen = reader.acquire(number, PROMPT[:600])
    assert not any(offer.ready for offer in seen.offers)
    assert in_memory(reader, number) == set()
    names = [(cell.id, slot) for cell, slot in next(iter(world.state.jobs.values())).objects]
    others, world.held = [effect for effect in world.held if effect is not read], None
    for effect in others:
        world.run(effect)
    errors = [world._read(record) for record in read.records]
    errors[victim] = error
    world.do(RestoreDone(read.job, tuple(errors)))
    assert in_memory(reader, number) == set(names) - {names[victim]}
    assert reader.acquire(number, PROMPT[:600], restore=False).usable_tokens == 0
    again = user.ask(Offload(number, at))
    lost = error.startswith("damaged")
    assert isinstance(again, Failed) == lost
    assert (in_memory(reader, number) & {names[victim]}) == set()
    if not lost:
        assert not isinstance(user.restore(number, PROMPT, 512), Failed)
        groups = world.state.layouts[number].layout.groups
        found = reader.read(reader.acquire(number, PROMPT[:600]))
        assert all(data.startswith(f"{groups[g].name}/{shard}/".encode()) for (g, shard, _), data in found.items())


def in_memory(user, number):
    """Names of all objects of the prompt with bytes in memory that somebody could be handed."""
    described = user.ok(Describe(number, user.boundary(number, PROMPT, 512))).objects
    return {(o.cell, o.slot) for o in described if o.state in {"COMMITTED", "MIRRORED", "OFFLOADING"}}


PLANES = {
    "latents and keys": [
        group(
            "mla", Kind.COMPRESSED_KV, rows_per_page=64, row_bytes=1152, page_bytes=73728, alignment=576, dtype="bf16"
        ),
        group("keys", Kind.INDEXER_STATE, rows_per_page=64, row_bytes=132, coupled_to="mla", dtype="u8"),
    ],
    "keys of four": [
        group("mla", Kind.COMPRESSED_KV, rows_per_page=64, row_bytes=656, dtype="fp8"),
        group("keys", Kind.INDEXER_STATE, tokens_per_row=4, rows_per_page=16, row_bytes=66, coupled_to="mla"),
    ],
    "fp32 state": [
        group("full", Kind.COMPRESSED_KV, rows_per_page=64, row_bytes=100, dtype="fp8"),
        group("state", Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT, page_bytes=4100, layers=(1, 2, 3), dtype="fp32"),
    ],
    "odd window": [
        group("full", Kind.COMPRESSED_KV, rows_per_page=64, row_bytes=7, page_bytes=449, dtype="int4"),
        group("swa", Kind.SWA_WINDOW, Form.PAGED_WINDOW, window=100, rows_per_page=32, row_bytes=513, dtype="bf16"),
    ],
}


@pytest.mark.parametrize("name", PLANES)
@pytest.mark.parametrize("turned", [False, True])
def test_l13_planes_of_unlike_types_come_back_byte_by_byte(name, turned):
    """Groups of other widths, paddings and types keep to themselves: every byte comes back, from memory and disk."""
    groups = PLANES[name][:: -1 if turned else 1]
    user, number = fresh(layout(*groups, block_tokens=64))
    user.store(number, PROMPT, 256)
    stored = user.read(user.acquire(number, PROMPT[:300]))
    geometry = user.world.state.layouts[number].geometry
    expected = {
        (item.group, item.shard, item.first_token): content(groups[item.group].name, item)
        for item in geometry.unit_objects(0, 256, boundary=True)
    }
    assert stored == expected
    user.offload(number, PROMPT, 256)
    user.restore(number, PROMPT, 256)
    assert user.read(user.acquire(number, PROMPT[:300])) == expected


@pytest.mark.parametrize("letters", LETTERS)
def test_v14_l01_what_some_ranks_committed_counts_as_nothing(letters):
    """Placeholders of ranks that are not done make no hash hit, no coverage and no handle, however many are done."""
    user, number = fresh(cut(letters))
    reserved, members = reserved_by_ranks(user, number)
    for rank, member in enumerate(members[:-1]):
        member.fill(reserved, rank=rank)
        assert member.ok(Commit(reserved.unit)) == Waiting(RANKS - 1 - rank)
        acquired = user.acquire(number, PROMPT[:600])
        assert (acquired.hash_tokens, acquired.lease, set(acquired.coverage)) == (0, 0, {0})


@pytest.mark.parametrize("letters", LETTERS)
@pytest.mark.parametrize("death", ["rank", "engine", "daemon"])
def test_f01_v45_a_rank_dies_between_hand_in_and_commit(letters, death):
    """Nothing of the unit is visible afterwards, whoever died and whatever was handed in, and its slots are free."""
    user, number = fresh(cut(letters))
    reserved, members = reserved_by_ranks(user, number)
    for rank, member in enumerate(members):
        member.fill(reserved, rank=rank, skip=letters[:1] if rank == 1 else ())
    members[0].ok(Commit(reserved.unit))
    world = user.world
    if death == "rank":
        members[1].hang_up("process ended")
    elif death == "engine":
        user.leave("killed")
    else:
        world.restart()
    user = user if death == "rank" else world.engine("next")
    assert nothing(user, number)
    assert (world.state.objects, len(world.state.cells), len(world.state.units)) == (0, 0, 0)
    user.store(number, PROMPT, 512)
    assert user.acquire(number, PROMPT[:600]).usable_tokens == 512


@pytest.mark.parametrize("letters", LETTERS)
@pytest.mark.parametrize("first", [0, 1])
def test_f04_f05_two_engines_of_several_ranks_bring_one_prefix(letters, first):
    """The engine whose last rank commits first wins whole; the other is told that all of its own were duplicates."""
    world = World()
    engines = [world.engine(name) for name in ("one", "two")]
    number = engines[0].register(cut(letters))
    units = [reserved_by_ranks(engine, number) for engine in engines]
    early, late = units[first], units[1 - first]
    for rank, member in enumerate(late[1][:-1]):
        member.fill(late[0], rank=rank, seed=5)
        member.ok(Commit(late[0].unit))
    won = commit_all(*early, seed=9)
    late[1][-1].fill(late[0], rank=RANKS - 1, seed=5)
    lost = late[1][-1].ok(Commit(late[0].unit))
    assert (won.duplicates, lost.stored, lost.duplicates) == (0, 0, won.stored)
    assert lost.differing == lost.duplicates
    acquired = engines[0].acquire(number, PROMPT[:600])
    assert all(b"/9;" in data for data in engines[0].read(acquired).values())
    assert world.state.objects == won.stored


@pytest.mark.parametrize("letters", LETTERS)
def test_f04_the_next_writer_needs_not_wait_for_a_unit_that_lost_a_rank(letters):
    """Where memory holds one boundary the second writer stores at once when a rank of the first has died."""
    user, number = fresh(cut(letters))
    user.store(number, PROMPT, 512)
    kinds = {kind: pool.live_bytes for (_, kind), pool in user.world.state.pools.items()}
    world = World(CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, kind_bytes=kinds))
    one, two = world.engine("one"), world.engine("two")
    number = one.register(cut(letters))
    reserved, members = reserved_by_ranks(one, number)
    assert two.ask_reserve(number, OTHER, 512).code == "capacity"
    members[2].hang_up("process ended")
    two.store(number, OTHER, 512)
    assert two.acquire(number, OTHER[:600]).usable_tokens == 512
    assert members[0].ask(Commit(reserved.unit)).code == "generation"


@pytest.mark.parametrize("letters", LETTERS)
def test_p34_l02_a_ticket_completes_no_newer_unit_of_its_tokens(letters):
    """Ranks that come back late with tickets of a unit that was given up change nothing of the next one."""
    user, number = fresh(cut(letters))
    stale, old = reserved_by_ranks(user, number)
    for rank, member in enumerate(old):
        member.fill(stale, rank=rank, seed=1)
    old[0].ok(Commit(stale.unit))
    old[1].hang_up()
    newer, members = reserved_by_ranks(user, number)
    for rank, member in enumerate(members[:-1]):
        member.fill(newer, rank=rank, seed=2)
        member.ok(Commit(newer.unit))
    for late in (old[0], old[2]):
        for request in (Commit(stale.unit), Join(stale.unit, 1)):
            assert late.ask(request).code == "generation"
        assert late.ask(Commit(newer.unit)).code == "caller"
    assert nothing(user, number)
    members[-1].fill(newer, rank=RANKS - 1, seed=2)
    members[-1].ok(Commit(newer.unit))
    found = user.read(user.acquire(number, PROMPT[:600]))
    assert all(b"/2;" in data for data in found.values())


@pytest.mark.parametrize("letters", ["CXS", "XCS", "SXC"])
@pytest.mark.parametrize("lacking", ["C", "X", "S"])
def test_v37_p18_a_rank_that_forgets_a_group_ends_no_unit_well(letters, lacking):
    """Keys, rows or windows of one rank alone that are not brought keep the whole unit from being published."""
    user, number = fresh(cut(letters))
    reserved, members = reserved_by_ranks(user, number)
    for rank, member in enumerate(members):
        member.fill(reserved, rank=rank, skip=[lacking] if rank == 1 else ())
    answers = [member.ask(Commit(reserved.unit)) for member in members]
    assert [type(answer) for answer in answers] == [Waiting, Failed, Waiting]
    assert f"{lacking} (" in answers[1].message
    assert "shard 1" in answers[1].message
    assert nothing(user, number)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("sent", [-1, 1])
def test_v44_a_rank_with_another_count_is_refused_and_goes_on(ranks, sent):
    """Fingerprints of too few or too many objects are refused for this rank alone, and its commit can be repeated."""
    user, number = fresh(cut("CXS", ranks))
    reserved, members = reserved_by_ranks(user, number, ranks=ranks)
    for rank, member in enumerate(members):
        member.fill(reserved, rank=rank)
        unit = user.world.state.units[reserved.unit]
        prints = [unit.prints[i] for i in unit.missing() if unit.objects[i].shard == rank]
        wrong = b"".join([*prints, *prints][: len(prints) + sent])
        refused = member.ask(Commit(reserved.unit, wrong, rank))
        assert (refused.code, refused.field) == ("caller", "fingerprints")
        answer = member.ok(Commit(reserved.unit, b"".join(prints), rank))
        assert isinstance(answer, Committed if rank == ranks - 1 else Waiting)
    assert user.acquire(number, PROMPT[:600]).usable_tokens == 512


@pytest.mark.parametrize("units", [0, 1, 2, 3])
@pytest.mark.parametrize("page", [16, 32, 64])
def test_v10_v03_ranks_bring_what_readers_of_a_speculative_layout_need(units, page):
    """Writer and reader count the same window pages for every rank, whatever the engine speculates."""
    what = layout(compressed(shards=2), window("S", page, 128, speculative_units=units, shards=2))
    user, number = fresh(what)
    reserved, members = reserved_by_ranks(user, number, end=1024, ranks=2)
    assert isinstance(commit_all(reserved, members), Committed)
    acquired = user.acquire(number, PROMPT[:1025])
    assert acquired.usable_tokens == 1024
    counts = {s: sum(r.count for r in acquired.offers[0].runs if (r.group, r.shard) == (1, s)) for s in (0, 1)}
    assert counts == dict.fromkeys((0, 1), -(-127 // page) + units)
