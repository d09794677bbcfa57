"""Every request for room comes to an end: a grant, or a refusal that has changed nothing."""

import random

import pytest

from kvledger.kinds import Form, Kind
from kvledger.wire.quotas import Quotas, SetQuota
from kvledger.wire.replies import Failed, Reserved
from kvledger.wire.requests import Abort, Release
from kvledger_storage import events
from kvledgerd.core.config import PAGE, CoreConfig
from support.world import World, group, layout

BLOCK = 16
C, S, T = Kind.COMPRESSED_KV, Kind.SWA_WINDOW, Kind.UNCOMPRESSED_TAIL


def rows(name: str = "C", shards: int = 1):
    """A group of rows, a page a block."""
    return group(name, C, rows_per_page=BLOCK, shards=shards)


def window(rows_per_page: int = BLOCK):
    """A group of windows."""
    return group("S", S, Form.PAGED_WINDOW, rows_per_page=rows_per_page, window=BLOCK)


def small(pages: int, **caps) -> World:
    """A world with so many pages of memory, in arenas of two."""
    return World(CoreConfig(memory_bytes=pages * PAGE, arena_bytes=2 * PAGE, disk_bytes=1 << 20, **caps))


def prompt(number: int, blocks: int = 1) -> list[int]:
    """A prompt of its own."""
    return [1000 * number + token for token in range(BLOCK * blocks)]


def hits(user, number: int, count: int) -> int:
    """How many of the first prompts are usable; nothing stays leased."""
    found = 0
    for one in range(count):
        acquired = user.acquire(number, [*prompt(one), 1])
        found += acquired.usable_tokens == BLOCK
        if acquired.lease:
            user.ok(Release(acquired.lease))
    return found


def test_one_empty_arena_does_not_go_to_and_fro_between_two_kinds_of_a_request():
    """Rows and windows that both fit by eviction are granted, though each could take the one empty arena."""
    world = small(64)
    user = world.engine()
    double = user.register(layout(rows("C", 2), rows("D", 2), block_tokens=BLOCK, model="double"))
    pair = user.register(layout(rows("C", 2), block_tokens=BLOCK, model="pair"))
    windows = user.register(layout(window(), block_tokens=BLOCK, model="windows"))
    both = user.register(layout(rows("C", 2), window(4), block_tokens=BLOCK, model="both"))
    for one in range(6):
        user.store(double, prompt(one))
    user.store(pair, prompt(6))
    for one in range(38):
        user.store(windows, prompt(100 + one))
        if one < 36:
            user.acquire(windows, prompt(100 + one), leave=0)
    for one in (36, 37):
        user.evict(windows, prompt(100 + one), BLOCK, "S")
    for number, what, name in ((double, 5, "C"), (double, 5, "D"), (pair, 6, "C")):
        user.evict(number, prompt(what), BLOCK, name)
    user.ok(SetQuota(C, 24 * PAGE))
    user.ok(SetQuota(S, 38 * PAGE))
    free = {kind: world.state.pool("default", kind).free_bytes // PAGE for kind in (C, S)}
    assert free == {C: 6, S: 2}
    assert isinstance(user.ask_reserve(both, prompt(900, 4)), Reserved)


@pytest.mark.parametrize("seed", range(50))
def test_every_reservation_ends_after_few_turns(seed):
    """Whatever was stored, leased, dropped and fixed before, a request takes fewer turns than there are arenas."""
    chance, world = random.Random(seed), small(48)
    world.check = False
    user = world.engine()
    layouts = [
        layout(rows("C", 2), rows("D", 2), block_tokens=BLOCK, model="double"),
        layout(window(), block_tokens=BLOCK, model="windows"),
        layout(rows(), window(4), group("T", T, Form.SNAPSHOT, page_bytes=PAGE), block_tokens=BLOCK, model="three"),
    ]
    numbers = [user.register(what) for what in layouts]
    leases: list[int] = []
    for _ in range(60):
        number, tokens = chance.choice(numbers), prompt(chance.randrange(12), chance.choice((1, 1, 2, 4)))
        deed = chance.random()
        if deed < 0.6:
            reserved = user.ask_reserve(number, tokens)  # `World.do` fails what is not answered after 50 turns
            assert isinstance(reserved, Reserved | Failed)
            if isinstance(reserved, Reserved):
                user.ok(Abort(reserved.unit))
                user.store(number, tokens)
        elif deed < 0.8:
            leases += [lease for lease in (user.acquire(number, tokens, leave=0).lease,) if lease]
        elif deed < 0.9 and leases:
            user.ok(Release(leases.pop(chance.randrange(len(leases)))))
        else:
            user.ask(SetQuota(chance.choice((C, S, T)), chance.choice((0, 0, 8, 20)) * PAGE))
    assert world.replayed().digest() == world.state.digest()


def test_what_could_never_fit_drops_nothing():
    """A prompt longer than memory is refused at once, and everything that was stored is there as before."""
    world = small(32)
    user = world.engine()
    number = user.register(layout(rows(), window(), block_tokens=BLOCK))
    for one in range(14):
        user.store(number, prompt(one))
    assert hits(user, number, 14) == 14
    before, log = world.state.digest(), len(world.log)
    refused = user.ask_reserve(number, prompt(5000, 40), boundary=False)
    assert (refused.code, refused.field, bool(refused.remedy)) == ("capacity", "memory_bytes", True)
    assert (world.state.digest(), len(world.log)) == (before, log)
    assert hits(user, number, 14) == 14


def test_what_does_not_fit_beside_leases_drops_nothing():
    """Where leased windows keep more than can be lent, long rows are refused and no other copy goes."""
    world = small(32)
    user = world.engine()
    number = user.register(layout(rows(), window(), block_tokens=BLOCK))
    for one in range(14):
        user.store(number, prompt(one))
    leases = [user.acquire(number, [*prompt(one), 1]).lease for one in range(10)]
    refused = user.ask_reserve(number, prompt(5000, 20), boundary=False)
    assert refused.code == "capacity"
    assert not world.reasons("objects_evicted.1")
    for lease in leases:
        user.ok(Release(lease))
    assert hits(user, number, 14) == 14


def test_a_quota_that_an_operator_fixed_stays_fixed_under_pressure():
    """Rows with a fixed quota borrow from windows whose quota has moved to them, and theirs stays."""
    world = small(32)
    user = world.engine()
    number = user.register(layout(rows(), window(), block_tokens=BLOCK))
    for one in range(15):
        user.store(number, prompt(one))
    world.record([events.QuotaMoved("default", C, S, 2 * PAGE)])
    user.ok(SetQuota(C, 4 * PAGE))
    before = world.state.quotas["default", int(S)].bytes
    assert isinstance(user.ask_reserve(number, prompt(500, 20), boundary=False), Reserved)
    rows_now = next(one for one in user.ok(Quotas()).quotas if one.kind is C)
    assert (rows_now.sure_bytes, rows_now.fixed) == (4 * PAGE, True)
    assert rows_now.held_bytes > 4 * PAGE
    assert world.state.quotas["default", int(S)].bytes < before
    assert world.replayed().digest() == world.state.digest()
