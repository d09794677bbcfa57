"""Random histories of engines with several ranks against a plain model of units and tickets.

The model knows of each unit which connection holds which ticket, what is filled and what is committed. It says which
requests are granted, when a unit is published, and when it has ended; after every event the invariants hold, and in the
end nothing is left that nobody holds.
"""

import random
from functools import cache

import pytest

from kvledger.wire.replies import Committed, Failed, Joined, Reserved, Waiting
from kvledger.wire.requests import Abort, Commit, Join, Release
from kvledgerd.core.commands import EngineSilent
from kvledgerd.core.config import CoreConfig
from kvledgerd.snapshots.decode import decode_state
from kvledgerd.snapshots.encode import encode_state
from support.layouts import compressed, indexer, recurrent, window
from support.world import World, layout

SEEDS = 40
STEPS = 150
BLOCK = 16
RANKS = 3
PROMPTS = [[1000 * n + t for t in range(40)] for n in range(3)]
LAYOUT = layout(
    compressed("C", BLOCK, shards=3),
    indexer("X", BLOCK, shards=3),
    window("S", 8, 12, replicas=3),
    recurrent("M", shards=2, first_rank=1),
    block_tokens=BLOCK,
)
CONFIG = CoreConfig(memory_bytes=96 << 12, arena_bytes=24 << 12, disk_bytes=1 << 20, max_objects=70)


class Plain:
    """A unit as the model knows it: who holds each of its tickets, and how far each is."""

    def __init__(self, engine, holder, prompt, reserved, tickets):
        self.engine, self.holder, self.prompt, self.reserved = engine, holder, prompt, reserved
        self.holders = dict.fromkeys(tickets, holder)
        self.joined, self.filled, self.done = set(), set(), set()

    @property
    def left(self):
        """Tickets that are not committed."""
        return set(self.holders) - self.done

    def members(self):
        """Connections that hold something, the one that reserved included."""
        return {self.holder, *(self.holders[ticket] for ticket in self.joined)}


class History:
    """Two engines, each a scheduler and three ranks, in a memory that holds a few units."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.world = World(CONFIG)
        self.units, self.ended, self.leases = [], [], []
        self.outcomes = {}
        self.enter()

    def enter(self):
        """Let the engines in with all their connections."""
        self.engines = []
        for name in ("one", "two"):
            scheduler = self.world.engine(name)
            self.number = scheduler.register(LAYOUT)
            self.engines.append([scheduler, *(scheduler.beside() for _ in range(RANKS))])

    def count(self, what):
        """Note that something happened."""
        self.outcomes[what] = self.outcomes.get(what, 0) + 1

    def step(self):
        """Do one thing."""
        deeds = [self.reserve] * 3 + [self.join] * 5 + [self.fill] * 6 + [self.commit] * 6
        deeds += (
            [self.acquire] * 2 + [self.release] * 2 + [self.abort, self.hang_up, self.late, self.silence, self.restart]
        )
        self.random.choice(deeds)()

    def pick(self):
        """A unit that is open, or None."""
        return self.random.choice(self.units) if self.units else None

    def reserve(self):
        """A scheduler reserves; the model learns which tickets bring something."""
        engine = self.random.randrange(2)
        scheduler, prompt = self.engines[engine][0], self.random.randrange(len(PROMPTS))
        reply = scheduler.ask_reserve(self.number, PROMPTS[prompt], self.random.choice([16, 32]))
        if isinstance(reply, Failed):
            assert reply.code == "capacity"
            self.drop_revoked()
            return
        assert isinstance(reply, Reserved)
        self.drop_revoked()
        unit = self.world.state.units[reply.unit]
        tickets = {LAYOUT.groups[unit.objects[i].group].rank_of(unit.objects[i].shard) for i in unit.missing()}
        self.units.append(Plain(engine, scheduler, prompt, reply, tickets))

    def drop_revoked(self):
        """Forget units that making room took from silent engines."""
        for plain in [p for p in self.units if p.reserved.unit not in self.world.state.units]:
            assert self.world.state.engines[plain.holder.caller.engine].silent
            self.end(plain, "revoked")

    def end(self, plain, how):
        """A unit is over."""
        self.units.remove(plain)
        self.ended.append(plain)
        self.count(how)

    def join(self):
        """A rank takes a ticket: granted once, if the ticket brings something."""
        if (plain := self.pick()) is None:
            return
        rank, member = self.random.randrange(RANKS), self.random.choice(self.engines[plain.engine])
        reply = member.ask(Join(plain.reserved.unit, rank))
        again = rank in plain.joined and plain.holders[rank] is not member
        if rank not in plain.left or again:
            assert reply.code == "caller"
            return
        assert isinstance(reply, Joined)
        plain.holders[rank] = member
        plain.joined.add(rank)
        self.count("joined")

    def fill(self):
        """Whoever holds a ticket hands everything in."""
        if (plain := self.pick()) is None or not plain.left - plain.filled:
            return
        rank = self.random.choice(sorted(plain.left - plain.filled))
        plain.holders[rank].fill(plain.reserved, rank=rank, seed=plain.reserved.unit)
        plain.filled.add(rank)

    def commit(self):
        """A connection commits all that it holds, or one ticket."""
        if (plain := self.pick()) is None:
            return
        member = self.random.choice(self.engines[plain.engine])
        ticket = self.random.choice([-1, -1, *range(RANKS)])
        reply = member.ask(Commit(plain.reserved.unit, b"", ticket))
        if ticket < 0:
            allowed = member in plain.members()
            about = {one for one in plain.left if plain.holders[one] is member}
        else:
            allowed = ticket in plain.left and plain.holders[ticket] is member
            about = {ticket}
        if not allowed:
            assert reply.code == "caller"
        elif not about <= plain.filled:
            assert reply.code == "commit_refused"
        elif plain.left - about:
            plain.done |= about
            assert reply == Waiting(len(plain.left))
            self.count("waiting")
        else:
            assert isinstance(reply, Committed), reply
            self.end(plain, "published" if reply.stored else "duplicates")

    def abort(self):
        """Whoever holds something may give the unit up, others may not."""
        if (plain := self.pick()) is None:
            return
        member = self.random.choice(self.engines[plain.engine])
        reply = member.ask(Abort(plain.reserved.unit))
        if member in plain.members():
            assert not isinstance(reply, Failed)
            self.end(plain, "aborted")
        else:
            assert reply.code == "caller"

    def hang_up(self):
        """A connection ends, and another takes its place in the engine."""
        engine, at = self.random.randrange(2), self.random.randrange(RANKS + 1)
        gone = self.engines[engine][at]
        gone.hang_up("process ended")
        for plain in list(self.units):
            if any(plain.holders[ticket] is gone for ticket in plain.left) or (not plain.left and plain.holder is gone):
                self.end(plain, "lost a rank")
        self.engines[engine][at] = gone.beside()

    def late(self):
        """Whatever is asked of a unit that has ended is refused by generation."""
        if self.ended:
            plain = self.random.choice(self.ended)
            member = self.random.choice(self.engines[plain.engine])
            request = self.random.choice([Commit, Abort, lambda unit: Join(unit, 0)])
            assert member.ask(request(plain.reserved.unit)).code == "generation"

    def silence(self):
        """An engine falls silent, or is heard again."""
        engine = self.random.choice(self.engines)[0].caller.engine
        self.world.do(EngineSilent(engine, self.random.random() < 0.5))

    def restart(self):
        """The daemon is killed: all units are over."""
        if self.random.random() < 0.8:
            return
        self.world.restart()
        for plain in list(self.units):
            self.end(plain, "restarted")
        self.leases.clear()
        self.enter()

    def acquire(self):
        """What a look-up hands out is whole: each object has the bytes that its own unit brought."""
        user, prompt = self.random.choice(self.engines)[0], self.random.choice(PROMPTS)
        acquired = user.acquire(self.number, prompt)
        if not acquired.lease:
            return
        self.leases.append((user, acquired.lease))
        names = [spec.name for spec in LAYOUT.groups]
        for (group, shard, first), data in user.read(acquired).items():
            assert data.startswith(f"{names[group]}/{shard}/{first}/".encode())
        self.count("read")

    def release(self):
        """A lease goes back; one that was revoked is lost."""
        if self.leases:
            user, lease = self.leases.pop(self.random.randrange(len(self.leases)))
            user.ask(Release(lease))


def finish(history):
    """End everything that is open; nothing may be left."""
    for engine in history.engines:
        engine[0].leave()
    state = history.world.state
    assert (state.units, state.leases, state.jobs) == ({}, {}, {})
    assert not any(cell.pins for cell in state.cells.values())


@cache
def told(seed):
    """A history from its beginning to its end."""
    history = History(seed)
    for _ in range(STEPS):
        history.step()
    finish(history)
    return history


@pytest.mark.parametrize("seed", range(SEEDS))
def test_ranks_keep_to_the_model(seed):
    """Whatever ranks do, in whatever order they come and go, each answer is the one that the model gives."""
    told(seed)


def test_histories_survive_snapshots():
    """A state with tickets in every stage is the same after a replay of its log and after a snapshot."""
    for seed in range(SEEDS, SEEDS + 5):
        history = History(seed)
        for _ in range(STEPS):
            history.step()
        image = encode_state(history.world.state)
        assert encode_state(history.world.replayed()) == image
        assert encode_state(decode_state(image, CONFIG)) == image


def test_histories_bring_everything_about():
    """Together the histories see units published, doubled, aborted, revoked, robbed of a rank and restarted."""
    seen = {what for seed in range(SEEDS) for what in told(seed).outcomes}
    assert seen >= {"published", "duplicates", "aborted", "revoked", "lost a rank", "restarted", "waiting", "read"}
