"""Tickets: several ranks bring one unit, each its own shards from its own connection, and it is published at once."""

import pytest

from kvledger.kinds import Kind
from kvledger.wire.replies import Committed, Failed, Joined, Waiting
from kvledger.wire.requests import Abort, Commit, Join, Put, PutRange
from kvledgerd.core.commands import EngineSilent
from kvledgerd.core.config import PAGE, CoreConfig
from support.layouts import compressed, indexer, recurrent, tail, window
from support.world import World, layout

PROMPT = list(range(600))
NOTHING = (0, 0, [])


def tensor(ranks, **fields):
    """Every form of group, each cut into a shard for every rank."""
    cut = {"shards": ranks}
    return layout(compressed(**cut), indexer(**cut), window(**cut), tail(**cut), recurrent(**cut), **fields)


def pipeline():
    """Two stages of two ranks: the second one's groups lie at ranks 2 and 3."""
    first, second = {"shards": 2}, {"shards": 2, "first_rank": 2, "layers": (1,)}
    return layout(
        compressed("C0", **first), window("S0", **first), compressed("C1", **second), recurrent("M1", **second)
    )


def shared():
    """Latents that one rank brings and all read, beside windows that each rank keeps its part of."""
    return layout(compressed("C"), window("S", shards=4), recurrent("M", shards=2))


def replicated():
    """Two heads on four ranks beside latents that all hold and a state cut in four: rank 1 brings of the state only."""
    return layout(compressed("C", shards=2, replicas=2), compressed("L", replicas=4), recurrent("M", shards=4))


LAYOUTS = {"tp2": tensor(2), "tp4": tensor(4), "tp2pp2": pipeline(), "shared": shared(), "replicated": replicated()}
RANKS = {"tp2": 2, "tp4": 4, "tp2pp2": 4, "shared": 4, "replicated": 4}


def begun(name, end=512):
    """A scheduler that reserved a unit, and one connection for each rank, none of which has joined."""
    scheduler = World().engine()
    number = scheduler.register(LAYOUTS[name])
    reserved = scheduler.reserve(number, PROMPT, end)
    return scheduler, number, reserved, [scheduler.beside() for _ in range(RANKS[name])]


def joined(name, end=512):
    """The same with every rank joined."""
    scheduler, number, reserved, ranks = begun(name, end)
    for rank, user in enumerate(ranks):
        assert isinstance(user.ok(Join(reserved.unit, rank)), Joined)
    return scheduler, number, reserved, ranks


def found(user, number):
    """What a look-up shows: usable tokens, lease and offers."""
    acquired = user.acquire(number, PROMPT)
    return acquired.usable_tokens, acquired.lease, acquired.offers


def refused(reply):
    """The code, field and message of a refusal."""
    assert isinstance(reply, Failed), reply
    return reply.code, reply.field, reply.message


@pytest.mark.parametrize("name", LAYOUTS)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_unit_is_published_with_its_last_ticket(name, backwards):
    """Before the last rank commits nothing is seen, and with it all of the unit is, whatever the order of ranks."""
    scheduler, number, reserved, ranks = joined(name)
    order = list(enumerate(ranks))[:: -1 if backwards else 1]
    for left, (rank, user) in zip(range(len(ranks) - 1, -1, -1), order, strict=True):
        assert found(scheduler, number) == NOTHING
        user.fill(reserved, rank=rank)
        answer = user.ok(Commit(reserved.unit, b"", rank))
        assert answer == Waiting(left) if left else isinstance(answer, Committed)
    acquired = scheduler.acquire(number, PROMPT)
    assert acquired.usable_tokens == 512
    bytes_of = scheduler.read(acquired)
    groups = LAYOUTS[name].groups
    assert all(data.startswith(f"{groups[g].name}/{shard}/".encode()) for (g, shard, _), data in bytes_of.items())
    assert {(g, shard) for g, shard, _ in bytes_of} == {(i, s) for i, g in enumerate(groups) for s in range(g.shards)}
    assert scheduler.world.state.units == {}


@pytest.mark.parametrize("name", LAYOUTS)
def test_who_reserved_may_bring_everything(name):
    """An engine of one process needs no tickets: the connection that reserved holds all of them."""
    scheduler, number, reserved, _ = begun(name)
    scheduler.fill(reserved)
    assert isinstance(scheduler.ok(Commit(reserved.unit)), Committed)
    assert found(scheduler, number)[0] == 512


def test_who_reserved_brings_what_nobody_joined():
    """A commit without a ticket is about all that the connection holds; asked again it tells how many are to come."""
    scheduler, number, reserved, ranks = begun("tp4")
    ranks[3].ok(Join(reserved.unit, 3))
    for rank in range(3):
        scheduler.fill(reserved, rank=rank)
    for _ in range(2):
        assert scheduler.ok(Commit(reserved.unit)) == Waiting(1)
    ranks[3].fill(reserved, rank=3)
    assert isinstance(ranks[3].ok(Commit(reserved.unit)), Committed)
    assert found(scheduler, number)[0] == 512


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_ticket_is_complete_or_refused(name):
    """A rank that left something out is refused and may go on; what the others committed stays."""
    scheduler, number, reserved, ranks = joined(name)
    for rank, user in enumerate(ranks[:-1]):
        user.fill(reserved, rank=rank)
        user.ok(Commit(reserved.unit))
    code, _, message = refused(ranks[-1].ask(Commit(reserved.unit)))
    assert code == "commit_refused"
    assert "are incomplete" in message
    ranks[-1].fill(reserved, rank=len(ranks) - 1)
    assert isinstance(ranks[-1].ok(Commit(reserved.unit)), Committed)
    assert found(scheduler, number)[0] == 512


@pytest.mark.parametrize("gone", [0, 1, 3])
@pytest.mark.parametrize("filled", [False, True])
def test_a_rank_that_ends_before_its_commit_ends_the_unit(gone, filled):
    """The others are told which rank ended and why; nothing is visible, and the slots are free again."""
    scheduler, number, reserved, ranks = joined("tp4")
    for rank, user in enumerate(ranks):
        if rank != gone or filled:
            user.fill(reserved, rank=rank)
        if rank != gone and rank < 2:
            user.ok(Commit(reserved.unit))
    ranks[gone].hang_up("process ended")
    told = f"reservation {reserved.unit} is not held: rank {gone} ended before its commit: process ended"
    for user in (scheduler, *ranks):
        assert refused(user.ask(Commit(reserved.unit))) == ("generation", "unit", told)
    state = scheduler.world.state
    assert found(scheduler, number) == NOTHING
    assert (state.objects, len(state.cells), len(state.units)) == (0, 0, 0)
    scheduler.store(number, PROMPT, 512)
    assert found(scheduler, number)[0] == 512


def test_a_rank_that_ends_after_its_commit_costs_nothing():
    """What a rank committed is there, though the rank is gone before the others are done."""
    scheduler, number, reserved, ranks = joined("tp2")
    ranks[0].fill(reserved, rank=0)
    assert ranks[0].ok(Commit(reserved.unit)) == Waiting(1)
    ranks[0].hang_up()
    ranks[1].fill(reserved, rank=1)
    assert isinstance(ranks[1].ok(Commit(reserved.unit)), Committed)
    assert found(scheduler, number)[0] == 512


@pytest.mark.parametrize("taken", [0, 1, 2])
def test_the_end_of_who_reserved_ends_what_nobody_took(taken):
    """Tickets that were joined do without the one that reserved; one that nobody has joined yet will never come."""
    scheduler, number, reserved, ranks = begun("tp2")
    for rank in range(taken):
        ranks[rank].ok(Join(reserved.unit, rank))
        ranks[rank].fill(reserved, rank=rank)
    scheduler.hang_up()
    if taken < 2:
        why = "the connection that reserved it ended before its commit: connection closed"
        assert refused(ranks[0].ask(Commit(reserved.unit)))[2].endswith(why)
        assert scheduler.world.state.objects == 0
        return
    assert ranks[0].ok(Commit(reserved.unit)) == Waiting(1)
    assert isinstance(ranks[1].ok(Commit(reserved.unit)), Committed)
    assert found(ranks[0], number)[0] == 512


def test_a_unit_that_brings_nothing_ends_with_who_reserved():
    """Where everything is there already no ticket is given, and the reservation is its connection's alone."""
    scheduler = World().engine()
    number = scheduler.register(tensor(2))
    scheduler.store(number, PROMPT, 512)
    reserved, other = scheduler.reserve(number, PROMPT, 512), scheduler.beside()
    code, field, message = refused(other.ask(Join(reserved.unit, 0)))
    assert (code, field) == ("caller", "ticket")
    assert "rank 0 brings nothing" in message
    other.hang_up()
    assert list(scheduler.world.state.units) == [reserved.unit]
    scheduler.hang_up()
    assert scheduler.world.state.units == {}
    assert [cell.pins for cell in scheduler.world.state.cells.values()] == [0, 0, 0]


@pytest.mark.parametrize("who", ["rank", "scheduler"])
def test_one_abort_is_an_abort_of_all(who):
    """Whoever holds a part of a unit may give it up, and the others are told who did."""
    scheduler, number, reserved, ranks = joined("tp4")
    ranks[0].fill(reserved, rank=0)
    ranks[0].ok(Commit(reserved.unit))
    (ranks[2] if who == "rank" else scheduler).ok(Abort(reserved.unit))
    by = "rank 2" if who == "rank" else "its owner"
    assert refused(ranks[1].ask(Commit(reserved.unit)))[2].endswith(f"given up by {by}")
    assert found(scheduler, number) == NOTHING
    assert scheduler.world.state.objects == 0


def put_one(user, reserved, rank):
    """Ask to put the first object of a rank."""
    unit = user.world.state.units[reserved.unit]
    known = user.world.state.layouts[unit.layout]
    index = next(i for i in unit.missing() if known.geometry.rank(unit.objects[i].group, unit.objects[i].shard) == rank)
    user.world.rings[user.caller.connection, 0] = b"x" * unit.objects[index].length
    kind = known.layout.groups[unit.objects[index].group].kind
    return user.ask(Put(reserved.unit, [PutRange(kind, index, 0, 0, unit.objects[index].length)]))


def test_a_ticket_is_one_connections():
    """Only the connection that holds a ticket puts, commits or gives up what it stands for, and it is joined once."""
    _, _, reserved, ranks = joined("tp2")
    stranger = ranks[0].beside()
    wrong = [
        stranger.ask(Abort(reserved.unit)),
        stranger.ask(Commit(reserved.unit)),
        stranger.ask(Join(reserved.unit, 1)),
        ranks[0].ask(Join(reserved.unit, 1)),
        ranks[0].ask(Commit(reserved.unit, b"", 1)),
        put_one(ranks[0], reserved, 1),
        put_one(stranger, reserved, 0),
    ]
    assert {refused(reply)[0] for reply in wrong} == {"caller"}
    assert {refused(reply)[1] for reply in wrong} == {"unit", "ticket"}


def test_a_committed_ticket_takes_nothing_more():
    """After its commit a rank can neither put, commit nor join again."""
    _, _, reserved, ranks = joined("tp2")
    ranks[0].fill(reserved, rank=0)
    ranks[0].ok(Commit(reserved.unit))
    for reply in (put_one(ranks[0], reserved, 0), ranks[0].ask(Commit(reserved.unit, b"", 0))):
        assert refused(reply) == ("caller", "ticket", "the ticket of rank 0 is committed")
    assert refused(ranks[0].ask(Join(reserved.unit, 0)))[2] == "the ticket of rank 0 was joined already"


def test_another_engine_holds_no_ticket():
    """A ticket of another engine is answered like one that never was."""
    scheduler, _, reserved, _ = begun("tp2")
    other = scheduler.world.engine("other")
    mine, never = (other.ask(Join(unit, 0)) for unit in (reserved.unit, 999))
    assert refused(mine)[:2] == refused(never)[:2] == ("generation", "unit")
    assert refused(mine)[2].replace(str(reserved.unit), "999") == refused(never)[2]


@pytest.mark.parametrize("sent", [0, 16, 48])
def test_fingerprints_of_a_ticket_are_counted(sent):
    """A rank may send the fingerprints of what its ticket brings, of all of it or of nothing."""
    _, _, reserved, ranks = joined("tp2")
    ranks[0].fill(reserved, rank=0)
    unit = ranks[0].world.state.units[reserved.unit]
    own = [i for i in unit.missing() if unit.objects[i].shard == 0]
    prints = b"".join(unit.prints[i] for i in own)
    assert ranks[0].ok(Commit(reserved.unit, prints, 0)) == Waiting(1)
    ranks[1].fill(reserved, rank=1)
    reply = ranks[1].ask(Commit(reserved.unit, bytes(sent), 1))
    assert isinstance(reply, Failed if sent else Committed)


def test_a_late_rank_is_refused_by_generation():
    """The tickets of a unit whose silent engine was robbed of it complete nothing, and no newer unit of its tokens."""
    cap = {Kind.COMPRESSED_KV: 4 * PAGE}
    world = World(CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, kind_bytes=cap))
    scheduler, robber = world.engine("one"), world.engine("two")
    number = scheduler.register(tensor(2))
    stale, ranks = scheduler.reserve(number, PROMPT, 512), [scheduler.beside(), scheduler.beside()]
    for rank, user in enumerate(ranks):
        user.ok(Join(stale.unit, rank))
        user.fill(stale, rank=rank)
    ranks[0].ok(Commit(stale.unit))
    world.do(EngineSilent(scheduler.caller.engine, silent=True))
    robber.store(number, PROMPT, 512, seed=7)
    for user in ranks:
        assert refused(user.ask(Commit(stale.unit)))[0] == "generation"
        assert refused(put_stale(user, stale))[0] == "generation"
    assert all(b"/7;" in data for data in robber.read(robber.acquire(number, PROMPT)).values())


def put_stale(user, reserved):
    """Ask to put something into a unit that is gone."""
    return user.ask(Put(reserved.unit, [PutRange(Kind.COMPRESSED_KV, 0, 0, 0, 16)]))


@pytest.mark.parametrize("name", LAYOUTS)
def test_tickets_end_with_the_incarnation(name):
    """After a restart no ticket of before completes anything, and nothing of its unit is there."""
    scheduler, number, reserved, ranks = joined(name)
    for rank, user in enumerate(ranks):
        user.fill(reserved, rank=rank)
    ranks[0].ok(Commit(reserved.unit))
    scheduler.world.restart()
    again = scheduler.world.engine("again")
    assert refused(again.ask(Join(reserved.unit, 1)))[0] == "generation"
    assert found(again, number) == NOTHING
    assert scheduler.world.state.objects == 0


@pytest.mark.parametrize("letter", ["C", "X", "S", "T", "M"])
@pytest.mark.parametrize("ranks", [2, 3])
def test_a_boundary_needs_every_shard_of_every_form(letter, ranks):
    """With any one shard of any group gone, whatever its form, the boundary is none, and the group is named."""
    user = World().engine()
    number = user.register(tensor(ranks))
    user.store(number, PROMPT, 512)
    state = user.world.state
    known = state.layouts[number]
    group = next(i for i, spec in enumerate(known.layout.groups) if spec.name == letter)
    block = letter in "CXST"
    cell = next(c for c in state.cells.values() if c.is_block == block and c.node.depth == 2)
    for shard in range(ranks):
        slot = known.geometry.slot(group, shard, known.geometry.pages(group) - 1)
        user.world.drop(cell, slot)
        acquired = user.acquire(number, PROMPT)
        assert acquired.usable_tokens == 0
        assert letter in {cut.group for cut in acquired.cuts}
        user.store(number, PROMPT, 512)
        assert user.acquire(number, PROMPT).usable_tokens == 512
