"""Memory follows the load: what each kind is sure of, what it may borrow, and when an arena changes hands."""

import pytest

from kvledger.kinds import Form, Kind
from kvledger.wire.quotas import Quotas, SetQuota
from kvledger.wire.replies import Reserved
from kvledger.wire.requests import Abort, Release
from kvledger_storage import events
from kvledgerd.core.config import PAGE, CoreConfig
from kvledgerd.core.placement.sureness import SHARES, held_bytes
from support.world import World, group, layout

BLOCK = 16
ARENA = 4
C, S, T = Kind.COMPRESSED_KV, Kind.SWA_WINDOW, Kind.UNCOMPRESSED_TAIL
ROWS = layout(group("C", C, rows_per_page=BLOCK), block_tokens=BLOCK, model="rows")
BOTH = layout(
    group("C", C, rows_per_page=BLOCK), group("T", T, Form.SNAPSHOT, page_bytes=PAGE), block_tokens=BLOCK, model="both"
)
WINDOWS = layout(
    group("C", C, rows_per_page=BLOCK),
    group("S", S, Form.PAGED_WINDOW, rows_per_page=BLOCK, window=BLOCK),
    block_tokens=BLOCK,
    model="windows",
)


def small(*layouts, arenas: int = SHARES):
    """Memory for so many arenas of four pages, an engine, and its layouts' numbers."""
    memory = arenas * ARENA * PAGE
    world = World(CoreConfig(memory_bytes=memory, arena_bytes=ARENA * PAGE, disk_bytes=1 << 20))
    user = world.engine()
    return world, user, [user.register(what) for what in layouts]


def prompt(number: int, blocks: int = 1) -> list[int]:
    """A prompt of its own."""
    return [1000 * number + token for token in range(BLOCK * blocks)]


def held(world) -> dict[Kind, int]:
    """Arenas of each kind."""
    sizes = {kind: held_bytes(world.state, "default", kind) // (ARENA * PAGE) for kind in Kind}
    return {kind: count for kind, count in sizes.items() if count}


def told(world, kind: type) -> list:
    """Events of one sort, in the order of the log."""
    found = [events.decode(raw).event for raw in world.log]
    return [event for event in found if isinstance(event, kind)]


def fill(user, number: int, count: int, first: int = 0) -> None:
    """Store so many prompts of one block."""
    for one in range(first, first + count):
        user.store(number, prompt(one))


def test_the_first_kind_to_come_leaves_one_arena_to_each_that_is_known():
    """Rows take all memory but one arena for the tails that a registered layout brings; those find it at once."""
    world, user, (rows, both) = small(ROWS, BOTH)
    fill(user, rows, 100)
    assert held(world) == {C: SHARES - 1}
    user.store(both, prompt(500))
    assert held(world) == {C: SHARES - 1, T: 1}


def test_a_kind_that_comes_late_takes_back_what_it_is_sure_of():
    """Where rows had all memory to themselves, the first window takes one arena of theirs, zeroed, and no more."""
    world, user, (rows,) = small(ROWS)
    fill(user, rows, 100)
    assert held(world) == {C: SHARES}
    windows = user.register(WINDOWS)
    old = user.acquire(rows, prompt(99), leave=0)
    user.store(windows, prompt(200))
    assert held(world) == {C: SHARES - 1, S: 1}
    assert [event.kind for event in told(world, events.ArenaRekinded)] == [S]
    assert user.read(old) == user.read(user.acquire(rows, prompt(99), leave=0))
    assert world.replayed().digest() == world.state.digest()


def test_every_handle_into_an_arena_that_changes_kind_is_stale():
    """No generation that was given out before fits a page of the arena afterwards, written to or not."""
    world, user, (rows,) = small(ROWS)
    fill(user, rows, 100)
    before = dict(world.generations)
    windows = user.register(WINDOWS)
    user.store(windows, prompt(200))
    (moved,) = told(world, events.ArenaRekinded)
    pages = [(moved.arena, PAGE * page) for page in range(ARENA)]
    assert all(world.generations[page] > max(before.values()) for page in pages)


def test_an_arena_in_which_something_is_leased_stays():
    """A kind that is owed memory is refused while all of it is leased, and gets an arena whose leases have ended."""
    world, user, (rows,) = small(ROWS)
    fill(user, rows, SHARES * ARENA)
    leases = [user.acquire(rows, prompt(one), leave=0).lease for one in range(SHARES * ARENA)]
    windows = user.register(WINDOWS)
    asked = user.ask_reserve(windows, prompt(200))
    assert (asked.code, asked.field) == ("capacity", "memory_bytes")
    assert not told(world, events.ArenaRekinded)
    for lease in leases[: 2 * ARENA]:  # one for the window, one for the rows that come with it
        user.ok(Release(lease))
    assert isinstance(user.ask_reserve(windows, prompt(200)), Reserved)


def test_an_empty_arena_goes_to_whoever_needs_it():
    """After rows were dropped on request their memory becomes that of tails, and nothing is evicted for it."""
    world, user, (rows, both) = small(ROWS, BOTH)
    fill(user, rows, (SHARES - 1) * ARENA)
    for one in range(40):
        user.evict(rows, prompt(one), BLOCK, "C")
    fill(user, both, 20, first=500)
    assert held(world)[T] > 1
    assert world.reasons("objects_evicted.1") == ["asked for"] * 40


def test_memory_moves_to_the_kind_whose_evicted_copies_are_asked_for_again():
    """Tails that are evicted and stored again and again win arenas from rows that nobody asks for, until they fit."""
    world, user, (rows, both) = small(ROWS, BOTH)
    fill(user, rows, 100)
    user.store(both, prompt(300))
    for _ in range(12):
        for end in range(1, 15):
            user.store(both, prompt(900, 15), BLOCK * end)
    moves = told(world, events.QuotaMoved)
    assert {(move.source, move.target) for move in moves} == {(C, T)}
    assert held(world)[T] >= 4
    evictions = len(told(world, events.ObjectsEvicted))
    for end in range(1, 15):
        user.store(both, prompt(900, 15), BLOCK * end)
    assert len(told(world, events.ObjectsEvicted)) == evictions
    assert world.replayed().digest() == world.state.digest()


def test_kinds_that_are_missed_alike_leave_each_other_alone():
    """Two kinds under the same pressure evict their own, and no quota moves to and fro."""
    world, user, (both,) = small(BOTH)
    for round_ in range(6):
        for one in range(60):
            user.store(both, prompt(one + 1000 * (round_ % 2)))
    assert len(told(world, events.QuotaMoved)) <= 1


def test_an_operator_fixes_a_quota_and_the_load_leaves_it_alone():
    """A fixed quota is kept free for its kind, told as fixed, taken back on demand, and left to the load by 0."""
    world, user, (rows, both) = small(ROWS, BOTH)
    told_now = user.ok(SetQuota(T, 6 * ARENA * PAGE)).quotas
    assert [(one.sure_bytes, one.fixed) for one in told_now if one.kind is T] == [(6 * ARENA * PAGE, True)]
    fill(user, rows, 100)
    assert held(world) == {C: SHARES - 6}
    fill(user, both, 40, first=500)
    assert held(world) == {C: SHARES - 6, T: 6}
    user.ok(SetQuota(T, 0))
    shares = {one.kind: one for one in user.ok(Quotas()).quotas}
    assert (shares[T].fixed, shares[T].sure_bytes, shares[T].held_bytes) == (False, ARENA * PAGE, 6 * ARENA * PAGE)
    assert [event.bytes for event in told(world, events.QuotaSet)] == [6 * ARENA * PAGE, 0]


@pytest.mark.parametrize(
    ("kind", "size", "code", "field"),
    [
        (Kind.DISK_PREFIX, PAGE, "routing", "kind"),
        (S, SHARES * ARENA * PAGE + PAGE, "capacity", "bytes"),
        (S, (SHARES - 5) * ARENA * PAGE, "capacity", "bytes"),
    ],
)
def test_a_quota_that_can_not_be_is_refused(kind, size, code, field):
    """Disk prefixes have no memory to share, and fixed quotas are never more than there is; nothing is changed."""
    world, user, _ = small(BOTH)
    user.ok(SetQuota(T, 6 * ARENA * PAGE))
    before = world.state.digest()
    refused = user.ask(SetQuota(kind, size))
    assert (refused.code, refused.field, bool(refused.remedy)) == (code, field, True)
    assert world.state.digest() == before


@pytest.mark.parametrize(("tenants", "left"), [(1, SHARES - 3), (2, SHARES - 3), (3, SHARES - 7)])
def test_a_quota_leaves_all_others_what_they_are_sure_of(tenants, left):
    """What other kinds, tenants and tenants yet to come are sure of is not promised twice; what is left is told."""
    size = ARENA * PAGE
    world = World(CoreConfig(memory_bytes=SHARES * size, arena_bytes=size, tenants=tenants, disk_bytes=1 << 20))
    one, other = world.engine("one", "a"), world.engine("two", "b")
    mine, theirs = one.register(WINDOWS), other.register(WINDOWS)
    refused = one.ask(SetQuota(S, (left + 1) * size))
    assert (refused.code, refused.field) == ("capacity", "bytes")
    assert f"{left * size} are left" in refused.message
    one.ok(SetQuota(S, left * size))
    one.store(mine, prompt(1))
    other.store(theirs, prompt(2))
    assert other.ask(SetQuota(C, 2 * size)).code == "capacity"


def test_what_an_operator_fixes_goes_before_what_the_load_moved():
    """A quota that has moved to another kind ends where it does not fit beside a fixed one, in the same decision."""
    world, user, (both,) = small(BOTH)
    fill(user, both, 20)
    world.record([events.QuotaMoved("default", T, C, ARENA * PAGE)])
    moved = world.state.quotas["default", int(C)].bytes
    assert moved > ARENA * PAGE
    shares = {one.kind: one for one in user.ok(SetQuota(T, (SHARES - 1) * ARENA * PAGE)).quotas}
    assert [(shares[kind].sure_bytes, shares[kind].fixed) for kind in (C, T)] == [
        (ARENA * PAGE, False),
        ((SHARES - 1) * ARENA * PAGE, True),
    ]
    assert user.ok(Quotas()).quotas == list(shares.values())
    assert world.replayed().digest() == world.state.digest()


@pytest.mark.parametrize(("asked", "pages"), [(1, 1), (PAGE - 1, 1), (PAGE, 1), (PAGE + 1, 2)])
def test_a_quota_is_rounded_up_to_whole_pages(asked, pages):
    """What is smaller than a page does not end a fixed quota: only 0 does."""
    _, user, _ = small(BOTH)
    user.ok(SetQuota(T, 6 * ARENA * PAGE))
    (tails,) = [one for one in user.ok(SetQuota(T, asked)).quotas if one.kind is T]
    assert (tails.sure_bytes, tails.fixed) == (pages * PAGE, True)


def test_what_was_set_twice_is_logged_once():
    """Setting a quota to what it is changes nothing."""
    world, user, _ = small(BOTH)
    user.ok(SetQuota(T, ARENA * PAGE))
    user.ok(SetQuota(T, ARENA * PAGE))
    user.ok(SetQuota(C, 0))
    assert len(told(world, events.QuotaSet)) == 1


def test_a_restart_in_the_middle_of_a_change_costs_the_arena():
    """An arena that was being cleared when the daemon died is gone; its kind finds memory again."""
    world, user, (rows,) = small(ROWS)
    fill(user, rows, 100)
    windows = user.register(WINDOWS)
    world.held = []
    user.ask_reserve(windows, prompt(200))
    assert held(world) == {C: SHARES - 1, S: 1}
    world.restart()
    assert held(world) == {C: SHARES - 1}
    again = world.engine("again")
    again.store(again.register(WINDOWS), prompt(200))
    assert held(world) == {C: SHARES - 1, S: 1}


def test_two_tenants_are_each_sure_of_their_own():
    """What one tenant takes leaves the other, known or still to come, one arena of each kind."""
    world = World(CoreConfig(memory_bytes=SHARES * ARENA * PAGE, arena_bytes=ARENA * PAGE, tenants=2))
    one, other = world.engine("one", "a"), world.engine("two", "b")
    fill(one, one.register(ROWS), 100)
    assert held_bytes(world.state, "a", C) == (SHARES - 4) * ARENA * PAGE
    number = other.register(WINDOWS)
    reserved = other.ask_reserve(number, prompt(1))
    assert isinstance(reserved, Reserved)
    other.ok(Abort(reserved.unit))
    assert not world.reasons("objects_evicted.1") or set(world.reasons("objects_evicted.1")) == {"room"}
