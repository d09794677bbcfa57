"""Field cases about who holds what: reservations, leases, late answers, deaths and silence.

There is no time-to-live: what other caches let expire is here revoked, when its owner fell silent and its bytes are
wanted.
"""

import pytest

from kvledger.wire.replies import Failed
from kvledger.wire.requests import Abort, Commit, Fingerprints, Put, PutRange, Release, Renew, Settle
from kvledgerd.core.commands import Copied, EngineSilent
from kvledgerd.core.config import CoreConfig
from support.layouts import pick
from support.world import World

PROMPT = list(range(600))
OTHER = [t + 1000 for t in PROMPT]
THIRD = [t + 2000 for t in PROMPT]
LAYOUTS = ["CM", "CXST", "TSXC"]
NOTHING = (0, 0, [])


def tight(units: int, what, end: int = 512):
    """A world whose memory holds exactly `units` boundaries of a layout, each kind in one arena, and two engines."""
    world = World()
    user = world.engine()
    user.store(user.register(what), PROMPT, end)
    kinds = {kind: pool.live_bytes * units for (_, kind), pool in world.state.pools.items()}
    world = World(CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, disk_bytes=64 << 20, kind_bytes=kinds))
    one, two = world.engine("one"), world.engine("two")
    return world, one, two, one.register(what)


def found(user, number, tokens=PROMPT):
    """What a look-up shows: usable tokens, lease and offers."""
    acquired = user.acquire(number, tokens)
    return acquired.usable_tokens, acquired.lease, acquired.offers


def fill_part(user, reserved, count):
    """Hand in the first `count` objects of a unit only."""
    unit = user.world.state.units[reserved.unit]
    known = user.world.state.layouts[unit.layout]
    for index in unit.missing()[:count]:
        item = unit.objects[index]
        user.world.rings[user.caller.connection, index] = b"\xee" * item.length
        kind = known.layout.groups[item.group].kind
        user.ok(Put(reserved.unit, [PutRange(kind, index, 0, index, item.length)]))


def silence(world, user, *, silent=True):
    """The engine is not heard of any more."""
    world.do(EngineSilent(user.caller.engine, silent))


@pytest.mark.parametrize("letters", LAYOUTS)
def test_l01_a_reservation_is_never_readable(letters):
    """What is reserved and handed in but not committed is a miss, before and after its revocation."""
    world, one, two, number = tight(1, pick(letters))
    reserved = one.reserve(number, PROMPT, 512)
    one.fill(reserved)
    assert found(two, number) == NOTHING
    silence(world, one)
    two.store(number, OTHER, 512)
    assert found(two, number) == NOTHING
    late = one.ask(Commit(reserved.unit))
    assert (late.code, late.field) == ("generation", "unit")
    assert found(two, number) == NOTHING


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("handed_in", [0, 1, 2])
def test_l02_a_revoked_writer_can_not_publish_the_next_ones_bytes(letters, handed_in):
    """The second writer of revoked slots is half-way when the first commits: it fails, and nothing torn is read."""
    world, one, two, number = tight(1, pick(letters))
    first = one.reserve(number, PROMPT, 512)
    fill_part(one, first, handed_in)
    silence(world, one)
    second = two.reserve(number, PROMPT, 512)
    fill_part(two, second, handed_in)
    assert one.ask(Commit(first.unit)).code == "generation"
    assert found(two, number) == NOTHING
    two.ok(Abort(second.unit))
    two.store(number, PROMPT, 512, seed=7)
    acquired = two.acquire(number, PROMPT)
    assert all(b"/7;" in data for data in two.read(acquired).values())


@pytest.mark.parametrize("letters", LAYOUTS)
def test_l03_a_late_release_strips_nobody_else(letters):
    """The release of a revoked lease is refused and leaves the next holder's bytes where they are."""
    world, one, two, number = tight(1, pick(letters))
    one.store(number, PROMPT, 512)
    stale = one.acquire(number, PROMPT)
    silence(world, one)
    two.store(number, OTHER, 512)
    held = two.acquire(number, OTHER)
    assert held.usable_tokens == 512
    assert one.ask(Release(stale.lease)).code == "lease_lost"
    refused = one.ask_reserve(number, THIRD, 512)
    assert (refused.code, refused.field) == ("capacity", "kind_bytes")
    assert two.read(held) == two.read(two.acquire(number, OTHER))


@pytest.mark.parametrize("letters", LAYOUTS)
def test_p34_a_commit_completes_its_own_reservation_only(letters):
    """A receipt that was committed or aborted completes no newer reservation of the same tokens."""
    world = World()
    user = world.engine()
    number = user.register(pick(letters))
    stale = user.reserve(number, PROMPT, 512)
    user.fill(stale)
    user.ok(Abort(stale.unit))
    newer = user.reserve(number, PROMPT, 512)
    assert newer.unit != stale.unit
    assert user.ask(Commit(stale.unit)).code == "generation"
    assert user.ask(Commit(newer.unit)).code == "commit_refused"
    user.fill(newer)
    user.ok(Commit(newer.unit))
    for request in (Commit(newer.unit), Abort(newer.unit), Abort(stale.unit)):
        assert user.ask(request).code == "generation"
    assert user.acquire(number, PROMPT).usable_tokens == 512


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("death", ["gone", "restart"])
def test_v45_f01_what_a_dead_writer_handed_in_is_nowhere(letters, death):
    """A writer dies between hand-in and commit: nothing of its unit is visible, and its slots are free again."""
    world, one, two, number = tight(1, pick(letters))
    reserved = one.reserve(number, PROMPT, 512)
    fill_part(one, reserved, 1)
    if death == "gone":
        one.leave("killed")
    else:
        world.restart()
        two = world.engine("two")
    assert found(two, number) == NOTHING
    assert (world.state.objects, len(world.state.cells), len(world.state.nodes)) == (0, 0, 0)
    two.store(number, OTHER, 512)
    assert two.acquire(number, OTHER).usable_tokens == 512


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("leases", [1, 3])
def test_v45_l22_pins_end_with_their_owner(letters, leases):
    """The end of an engine releases all its leases at once, for others to use the room."""
    world, one, two, number = tight(1, pick(letters))
    one.store(number, PROMPT, 512)
    for _ in range(leases):
        one.acquire(number, PROMPT)
    assert two.ask_reserve(number, OTHER, 512).code == "capacity"
    assert sum(cell.pins for cell in world.state.cells.values()) > 0
    one.leave("killed")
    assert [cell.pins for cell in world.state.cells.values()] == [0] * len(world.state.cells)
    assert world.reasons("engine_left.1") == ["killed"]
    two.store(number, OTHER, 512)


@pytest.mark.parametrize("letters", LAYOUTS)
def test_v21_f02_a_leased_hit_stays_until_it_is_released(letters):
    """Pressure never takes what a heard engine leased, however long; of a silent one it does, and says so."""
    world, one, two, number = tight(1, pick(letters))
    one.store(number, PROMPT, 512)
    held = one.acquire(number, PROMPT)
    bytes_before = one.read(held)
    refused = two.ask_reserve(number, OTHER, 512)
    assert (refused.code, refused.field, bool(refused.remedy)) == ("capacity", "kind_bytes", True)
    assert one.read(held) == bytes_before
    silence(world, one)
    assert one.ok(Renew(held.lease))
    silence(world, one, silent=False)
    assert two.ask_reserve(number, OTHER, 512).code == "capacity"
    silence(world, one)
    two.store(number, OTHER, 512)
    assert world.reasons("lease_ended.1") == ["revoked: silent"]
    for request in (Renew(held.lease), Fingerprints(held.lease), Settle(held.lease, 0), Release(held.lease)):
        assert one.ask(request).code == "lease_lost"
    with pytest.raises(AssertionError):
        one.read(held)


def test_v16_hits_are_pinned_before_anything_is_placed():
    """A unit that needs more room than its own present objects leave is refused, and none of these is evicted."""
    world, one, _, number = tight(1, pick("CM"))
    one.store(number, PROMPT, 512)
    before = one.read(one.acquire(number, PROMPT))
    one.leave()
    user = world.engine("three")
    refused = user.ask_reserve(number, PROMPT + list(range(5000, 5500)), 1024)
    assert refused.code == "capacity"
    assert user.read(user.acquire(number, PROMPT)) == before


@pytest.mark.parametrize("letters", LAYOUTS)
def test_v20_nobody_else_fills_or_finishes_a_reservation(letters):
    """Slots that one engine fills can neither be filled, committed nor given up by another."""
    world = World()
    one, two = world.engine("one"), world.engine("two")
    number = one.register(pick(letters))
    reserved = one.reserve(number, PROMPT, 512)
    kind = world.state.layouts[number].layout.groups[0].kind
    for request in (Put(reserved.unit, [PutRange(kind, 0, 0, 0, 64)]), Commit(reserved.unit), Abort(reserved.unit)):
        foreign, unknown = two.ask(request), two.ask(type(request)(999, *_rest(request)))
        assert foreign.code == unknown.code == "generation"
        assert foreign.message.replace(str(reserved.unit), "999") == unknown.message
    one.fill(reserved)
    one.ok(Commit(reserved.unit))


def _rest(request):
    return (request.ranges,) if isinstance(request, Put) else ()


@pytest.mark.parametrize("sent", [1, 16, 31, 160])
def test_v44_a_commit_with_another_count_is_refused_and_can_be_repeated(sent):
    """A list of fingerprints that is shorter or longer than the objects put is refused; the unit is unharmed."""
    user = World().engine()
    number = user.register(pick("CX"))
    reserved = user.reserve(number, PROMPT, 512)
    user.fill(reserved)
    refused = user.ask(Commit(reserved.unit, bytes(sent)))
    assert (refused.code, refused.field) == ("caller", "fingerprints")
    assert user.ok(Commit(reserved.unit)).stored == 4


def test_v44_wrong_fingerprints_are_refused():
    """Bytes that changed on their way do not become an object."""
    user = World().engine()
    number = user.register(pick("CX"))
    reserved = user.reserve(number, PROMPT, 512)
    user.fill(reserved)
    refused = user.ask(Commit(reserved.unit, bytes(64)))
    assert (refused.code, refused.field) == ("commit_refused", "fingerprints")
    assert found(user, number) == NOTHING


@pytest.mark.parametrize("letters", LAYOUTS)
def test_p24_l25_a_second_release_is_refused(letters):
    """A receipt is returned once: the second time is a typed error, and the pins of others stay."""
    world = World()
    one, two = world.engine("one"), world.engine("two")
    number = one.register(pick(letters))
    one.store(number, PROMPT, 512)
    mine, theirs = one.acquire(number, PROMPT), two.acquire(number, PROMPT)
    pins = [cell.pins for cell in world.state.cells.values()]
    assert one.ask(Release(theirs.lease)).code == "lease_lost"
    assert [cell.pins for cell in world.state.cells.values()] == pins
    one.ok(Release(mine.lease))
    again = one.ask(Release(mine.lease))
    assert (again.code, again.field) == ("lease_lost", "lease")
    assert [cell.pins for cell in world.state.cells.values()] == [n // 2 for n in pins]


def test_l21_a_release_needs_nothing_but_the_lease():
    """A lease taken under extra keys is released by its number, without the keys."""
    world = World()
    user = world.engine()
    number = user.register(pick("CX"))
    user.store(number, PROMPT, 512)
    lease = user.acquire(number, PROMPT).lease
    user.ok(Release(lease))
    assert not world.state.leases
    assert not any(cell.pins for cell in world.state.cells.values())


@pytest.mark.parametrize("letters", LAYOUTS)
def test_p36_eviction_never_cascades_into_what_is_leased(letters):
    """Room for one prompt is made of unleased prompts only, with all their kinds, and a leased one stays whole."""
    world, one, two, number = tight(2, pick(letters))
    one.store(number, PROMPT, 512)
    one.store(number, OTHER, 512)
    held = two.acquire(number, PROMPT)
    before = two.read(held)
    one.store(number, THIRD, 512)
    assert two.read(held) == before
    assert two.acquire(number, OTHER).usable_tokens == 0
    assert two.acquire(number, THIRD).usable_tokens == 512
    assert {name for name, _ in world.evicted()} == set(letters)


def test_l34_one_of_two_engines_leaves():
    """Two engines registered one layout; after one has left the other looks up as before."""
    world = World()
    one, two = world.engine("one"), world.engine("two")
    number = one.register(pick("CXST"))
    assert two.register(pick("CXST")) == number
    one.store(number, PROMPT, 512)
    one.leave()
    assert two.acquire(number, PROMPT).usable_tokens == 512


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("first", ["one", "two"])
def test_f05_two_reservations_of_one_key_are_both_true(letters, first):
    """Whoever of two writers commits first stores; the other is told that its objects were there and whether equal."""
    world = World()
    users = {name: world.engine(name) for name in ("one", "two")}
    number = users["one"].register(pick(letters))
    units = {name: user.reserve(number, PROMPT, 512) for name, user in users.items()}
    for name, user in users.items():
        user.fill(units[name], seed=1 if name == first else 2)
    loser = "two" if first == "one" else "one"
    won = users[first].ok(Commit(units[first].unit))
    lost = users[loser].ok(Commit(units[loser].unit))
    assert (won.duplicates, lost.stored) == (0, 0)
    assert lost.duplicates == lost.differing == won.stored > 0
    acquired = users[loser].acquire(number, PROMPT)
    assert all(b"/1;" in data for data in users[loser].read(acquired).values())


@pytest.mark.parametrize("letters", LAYOUTS)
@pytest.mark.parametrize("end", ["abort", "gone"])
def test_f04_f05_a_second_writer_stores_when_the_first_ends(letters, end):
    """A reservation beside another one succeeds at once, and stores all when the first is given up or dies."""
    world = World()
    one, two = world.engine("one"), world.engine("two")
    number = one.register(pick(letters))
    first, second = one.reserve(number, PROMPT, 512), two.reserve(number, PROMPT, 512)
    assert not any(second.present)
    if end == "abort":
        one.ok(Abort(first.unit))
    else:
        one.leave("killed")
    two.fill(second)
    committed = two.ok(Commit(second.unit))
    assert (committed.stored > 0, committed.duplicates) == (True, 0)
    assert two.acquire(number, PROMPT).usable_tokens == 512


@pytest.mark.parametrize("share", [1, 2, 3])
def test_f03_v47_more_than_is_free_evicts_or_is_refused_with_numbers(share):
    """An idle, nearly full pool makes room; a leased one refuses and says how much; ok is never said of nothing."""
    what = pick("CX")
    _, one, two, number = tight(3, what)
    for prompt in (PROMPT, OTHER, THIRD)[:share]:
        one.store(number, prompt, 512)
        two.acquire(number, prompt)
    fourth = [t + 9000 for t in PROMPT]
    wanted = one.ask_reserve(number, fourth, 512)
    if share < 3:
        assert not isinstance(wanted, Failed)
        one.fill(wanted)
        assert one.ok(Commit(wanted.unit)).stored == 4
        return
    assert (wanted.code, wanted.field) == ("capacity", "kind_bytes")
    assert any(word.isdigit() for word in wanted.message.split())
    two.leave()
    committed = one.store(number, fourth, 512)
    assert committed.stored == 4
    assert one.acquire(number, fourth).usable_tokens == 512


@pytest.mark.parametrize("letters", LAYOUTS)
def test_v47_what_is_admitted_is_what_is_placed(letters):
    """Sizing and admission use one formula: a pool of exactly n units takes n and refuses the next."""
    world, one, _, number = tight(2, pick(letters))
    one.reserve(number, PROMPT, 512)
    one.reserve(number, OTHER, 512)
    for (_, kind), pool in world.state.pools.items():
        assert pool.live_bytes == world.config.kind_bytes[kind]
    assert one.ask_reserve(number, THIRD, 512).code == "capacity"


def test_p27_l05_a_failed_copy_ends_its_unit_whole():
    """One object of a batch can not be copied: the unit is given up, nothing of it is visible, its slots are free."""
    world = World()
    user = world.engine()
    number = user.register(pick("CX"))
    reserved = user.reserve(number, PROMPT, 512)
    fill_part(user, reserved, 2)
    world.held = []
    unit = world.state.units[reserved.unit]
    index = unit.missing()[2]
    user.ask(Put(reserved.unit, [PutRange(pick("CX").groups[unit.objects[index].group].kind, index, 0, 0, 64)]))
    (copy,) = world.held
    world.held = None
    world.do(Copied(copy.job, (), "the ring ends at 0"))
    assert user.ask(Commit(reserved.unit)).code == "generation"
    assert (world.state.objects, world.state.units) == (0, {})
    assert found(user, number) == NOTHING


@pytest.mark.parametrize("kept", [0, 1])
def test_v17_blocks_are_free_for_others_only_when_settled(kept):
    """Until its owner settles, a lease keeps the blocks of every offer; then those of the offer that was kept."""
    world = World()
    user = world.engine()
    number = user.register(pick("CM", block=32))
    tokens = list(range(200))
    user.store(number, tokens, 64)
    user.store(number, tokens, 132)
    held = user.acquire(number, tokens)
    assert [offer.position for offer in held.offers] == [132, 64]
    assert user.evict(number, tokens, 132, "C").kept == 5
    user.ok(Settle(held.lease, kept))
    dropped = user.evict(number, tokens, 132, "C")
    assert (dropped.dropped, dropped.kept) == ((0, 5) if kept == 0 else (3, 2))
    assert user.ask(Settle(held.lease, 1)).code == "caller"
