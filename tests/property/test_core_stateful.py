"""Any sequence of requests of two engines, deaths and restarts, each reply compared with that of a plain model.

Memory and disk have room for everything, so that every reply is determined: nothing goes that nobody let go.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from kvledger.kinds import Kind
from kvledger.wire.replies import Acquired, Committed, Done, Evicted, Failed, Offloaded, Reserved, Restored
from kvledger.wire.requests import Abort, Acquire, Commit, Evict, Offload, Release, Reserve, Restore, Settle
from kvledgerd.core.config import CoreConfig
from property.plain_cache import BLOCK, Lease, PlainCache, Unit, blocks_of, end_of
from support.layouts import compressed, indexer, recurrent
from support.world import World, layout

STEM = list(range(16))
PROMPTS = [STEM + [100 * n + t for t in range(1, 21)] for n in (1, 2)]
ENDS = (20, 32, 36)
HELD_MOST = 2
CONFIG = CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, max_leases=HELD_MOST, max_units=HELD_MOST)
LAYOUT = layout(compressed("C", BLOCK), indexer("X", BLOCK), recurrent("M"), block_tokens=BLOCK)
KINDS = {"C": Kind.COMPRESSED_KV, "X": Kind.INDEXER_STATE, "M": Kind.UNCOMPRESSED_TAIL}
engines, prompts, ends = st.integers(0, 1), st.integers(0, len(PROMPTS) - 1), st.sampled_from(ENDS)


def cut(prompt: int, end: int) -> list[int]:
    """Return the first tokens of a prompt."""
    return PROMPTS[prompt][:end]


class CacheMachine(RuleBasedStateMachine):
    """The core beside a plain cache."""

    def __init__(self):
        super().__init__()
        self.world, self.plain = World(CONFIG), PlainCache()
        self.ended: list[tuple[str, int]] = []
        self.users = [self.world.engine("one"), self.world.engine("two")]
        self.number = self.users[0].register(LAYOUT)
        stored = {tuple(cut(p, e)) for p in range(len(PROMPTS)) for e in ENDS}
        self.by_hash = {(len(at), self.at(list(at)).hashes[-32:], self.at(list(at)).residue_hash): at for at in stored}

    def at(self, tokens):
        """The boundary behind tokens, as the wire names it."""
        return self.users[0].boundary(self.number, tokens)

    def refused(self, reply, *codes):
        """Check that a request was refused for one of these reasons."""
        assert isinstance(reply, Failed), reply
        assert reply.code in codes, reply

    # --- units --------------------------------------------------------------------------------------------------

    @rule(who=engines, prompt=prompts, end=ends, boundary=st.booleans(), seed=st.integers(0, 1))
    def reserve(self, who, prompt, end, boundary, seed):
        """A reservation says exactly what is there, and is refused beyond the cap."""
        self.reserved(who, cut(prompt, end if boundary else end - end % BLOCK), seed, boundary=boundary)

    def reserved(self, who, tokens, seed, *, boundary):
        """Reserve a unit and return its receipt, 0 if it is refused."""
        reply = self.users[who].ask(Reserve(self.number, self.at(tokens), boundary=boundary))
        if len(self.plain.units[who]) == HELD_MOST:
            self.refused(reply, "limit")
            return 0
        assert isinstance(reply, Reserved), reply
        objects = self.plain.parts(tokens, boundary=boundary)
        unit = Unit(objects, self.plain.bring(objects), seed)
        present = int.from_bytes(reply.present, "little")
        assert [name for i, name in enumerate(objects) if not present >> i & 1] == unit.brings
        self.plain.units[who][reply.unit] = unit
        return reply.unit

    @initialize(prompt=prompts, end=ends)
    def begin(self, prompt, end):
        """Nearly all that can happen needs something that is stored."""
        self.store(0, prompt, end, 0)

    @rule(who=engines, prompt=prompts, end=ends, seed=st.integers(0, 1))
    def store(self, who, prompt, end, seed):
        """A boundary is stored in one go."""
        number = self.reserved(who, cut(prompt, end), seed, boundary=True)
        if number:
            self.filled(who, number, ())
            self.committed(who, number)

    @rule(first=engines, prompt=prompts, end=ends, other=ends)
    def race(self, first, prompt, end, other):
        """Two engines bring what overlaps at the same time; the first commit wins, and the second is told."""
        ends = {first: end, 1 - first: other}
        numbers = {who: self.reserved(who, cut(prompt, ends[who]), who, boundary=True) for who in ends}
        for who, number in numbers.items():
            if number:
                self.filled(who, number, ())
        for who, number in numbers.items():
            if number:
                self.committed(who, number)

    @precondition(lambda self: any(self.plain.units))
    @rule(data=st.data(), skip=st.sampled_from([(), (), (), ("C",), ("M",)]))
    def fill(self, data, skip):
        """Bytes are handed in once, of all groups or of some."""
        who, number, _ = self.pick(data, self.plain.units)
        self.filled(who, number, skip)

    def filled(self, who, number, skip):
        """Hand in the bytes of a unit, if that was not done."""
        unit = self.plain.units[who][number]
        if not unit.filled:
            self.users[who].fill(Reserved(number, b""), skip, seed=unit.seed)
            unit.filled = {name for name in unit.brings if name[1] not in skip}

    @precondition(lambda self: any(self.plain.units))
    @rule(data=st.data())
    def commit(self, data):
        """A commit publishes what was brought and is not there yet, and is refused while something lacks."""
        who, number, _ = self.pick(data, self.plain.units)
        self.committed(who, number)

    def committed(self, who, number):
        """Commit a unit, or be refused."""
        unit = self.plain.units[who][number]
        reply = self.users[who].ask(Commit(number))
        if unit.filled != set(unit.brings):
            self.refused(reply, "commit_refused")
            return
        assert isinstance(reply, Committed), reply
        del self.plain.units[who][number]
        self.ended.append(("unit", number))
        assert (reply.stored, reply.duplicates, reply.differing) == self.plain.publish(unit)

    @precondition(lambda self: any(self.plain.units))
    @rule(data=st.data())
    def abort(self, data):
        """A unit that is given up leaves nothing."""
        who, number, _ = self.pick(data, self.plain.units)
        assert self.users[who].ask(Abort(number)) == Done()
        del self.plain.units[who][number]
        self.ended.append(("unit", number))

    # --- look-ups -----------------------------------------------------------------------------------------------

    @rule(who=engines, prompt=prompts, end=st.sampled_from((*ENDS, 21, 33, 36)), leave=st.integers(0, 1))
    def acquire(self, who, prompt, end, leave):
        """A look-up finds every boundary that is complete, and offers the best of them."""
        tokens = cut(prompt, end)
        reply = self.users[who].ask(Acquire(self.number, len(tokens), self.at(tokens).hashes, leave=leave))
        if len(self.plain.leases[who]) == HELD_MOST:
            self.refused(reply, "limit")
            return
        assert isinstance(reply, Acquired), reply
        usable = self.plain.usable(tokens, len(tokens) - leave)
        assert reply.hash_tokens == self.plain.claimed(tokens)
        assert reply.restorable == sorted(len(at) for at in usable if len(at) % BLOCK == 0)
        assert max((o.position for o in reply.offers), default=0) == max(map(len, usable), default=0)
        assert bool(reply.lease) == bool(usable)
        if reply.lease:
            self.plain.leases[who][reply.lease] = self.lease(tokens, reply)

    def lease(self, tokens, reply):
        """Compare the offers with what is stored, and return what their lease keeps."""
        offers = []
        for offer in reply.offers:
            depth = offer.position // BLOCK
            chain = self.at(tokens[: depth * BLOCK]).hashes[-32:]
            at = list(self.by_hash[offer.position, chain, offer.residue_hash])
            assert self.plain.complete(at)
            assert offer.ready == self.plain.ready(at)
            offers.append((depth, end_of(at) if offer.ready else None))
        deepest = max((depth for depth, place in offers if place is not None), default=0)
        return Lease(blocks_of(tokens)[:deepest], offers)

    @precondition(lambda self: any(self.plain.leases))
    @rule(data=st.data())
    def settle(self, data):
        """Of a settled lease only one offer is kept."""
        who, number, lease = self.pick(data, self.plain.leases)
        index = data.draw(st.integers(0, len(lease.offers)))
        reply = self.users[who].ask(Settle(number, index))
        if index == len(lease.offers):
            self.refused(reply, "caller")
            return
        assert reply == Done()
        lease.offers = [lease.offers[index]]
        lease.blocks = lease.blocks[: lease.offers[0][0]]

    @precondition(lambda self: any(self.plain.leases))
    @rule(data=st.data())
    def release(self, data):
        """A lease ends with its release."""
        who, number, _ = self.pick(data, self.plain.leases)
        assert self.users[who].ask(Release(number)) == Done()
        del self.plain.leases[who][number]
        self.ended.append(("lease", number))

    @precondition(lambda self: self.ended)
    @rule(who=engines, data=st.data())
    def use_what_ended(self, who, data):
        """Receipts that have ended are refused, whoever shows them."""
        what, number = data.draw(st.sampled_from(self.ended))
        asks = {"lease": Release(number), "unit": Commit(number)}
        self.refused(self.users[who].ask(asks[what]), "lease_lost", "generation")

    @precondition(lambda self: any(self.plain.leases) or any(self.plain.units))
    @rule(data=st.data())
    def use_what_is_another_s(self, data):
        """Receipts of another engine are refused as if they had never been."""
        held = self.plain.leases if any(self.plain.leases) else self.plain.units
        who, number, _ = self.pick(data, held)
        ask = Release(number) if held is self.plain.leases else Commit(number)
        self.refused(self.users[1 - who].ask(ask), "lease_lost", "generation")

    # --- copies -------------------------------------------------------------------------------------------------

    @rule(who=engines, prompt=prompts, end=ends, name=st.sampled_from(tuple(KINDS)), disk=st.booleans())
    def evict(self, who, prompt, end, name, disk):
        """An eviction drops the copies of one group that nobody keeps, and counts the others."""
        tokens = cut(prompt, end)
        reply = self.users[who].ask(Evict(KINDS[name], self.number, self.at(tokens), name, disk=disk))
        if not self.plain.is_known(tokens):
            self.refused(reply, "not_found")
            return
        places = [*blocks_of(tokens), end_of(tokens)]
        assert isinstance(reply, Evicted), reply
        assert (reply.dropped, reply.kept) == self.plain.evict([(place, name) for place in places], disk=disk)

    @rule(who=engines, prompt=prompts, end=ends, drop=st.booleans())
    def offload(self, who, prompt, end, drop):
        """An offload writes what is not on disk yet, and is refused where nothing could resume."""
        tokens = cut(prompt, end)
        reply = self.users[who].ask(Offload(self.number, self.at(tokens), drop))
        if not self.plain.complete(tokens):
            self.refused(reply, "commit_refused", "not_found")
            return
        assert isinstance(reply, Offloaded), reply
        assert (reply.objects, reply.already) == self.plain.offload(tokens, drop=drop)

    @rule(who=engines, prompt=prompts, end=ends)
    def restore(self, who, prompt, end):
        """A restore reads what lies on disk only, and is refused where nothing could resume."""
        tokens = cut(prompt, end)
        reply = self.users[who].ask(Restore(self.number, self.at(tokens)))
        if not self.plain.complete(tokens):
            self.refused(reply, "commit_refused", "not_found")
            return
        assert isinstance(reply, Restored), reply
        assert reply.objects == self.plain.restore(tokens)

    @rule(who=engines, prompt=prompts, end=ends)
    def forget(self, who, prompt, end):
        """A disk prefix is forgotten with what its boundary has on disk, unless somebody keeps it."""
        tokens = cut(prompt, end)
        reply = self.users[who].ask(Evict(Kind.DISK_PREFIX, self.number, self.at(tokens)))
        if not self.plain.is_known(tokens):
            self.refused(reply, "not_found")
            return
        assert isinstance(reply, Evicted), reply
        assert (reply.dropped, reply.kept) == self.plain.forget(tokens)

    # --- ends ---------------------------------------------------------------------------------------------------

    @rule(who=engines)
    def die(self, who):
        """What a dead engine held is free, and what it stored stays."""
        self.users[who].leave()
        self.end(who)
        self.users[who] = self.world.engine("one" if who == 0 else "two")

    @rule()
    def restart(self):
        """A restart ends what was held, and keeps what was stored."""
        self.world.restart()
        for who in (0, 1):
            self.end(who)
        self.users = [self.world.engine("one"), self.world.engine("two")]

    def end(self, who):
        """Forget what an engine held."""
        self.ended += [("lease", number) for number in self.plain.leases[who]]
        self.ended += [("unit", number) for number in self.plain.units[who]]
        self.plain.leases[who].clear()
        self.plain.units[who].clear()

    def pick(self, data, held):
        """Choose something that is held: engine, receipt, and what the model knows of it."""
        choices = [(who, number) for who, mine in enumerate(held) for number in sorted(mine)]
        who, number = data.draw(st.sampled_from(choices))
        return who, number, held[who][number]

    @invariant()
    def counts(self):
        """As many objects are counted as there are, those of open units included."""
        brought = sum(len(unit.brings) for units in self.plain.units for unit in units.values())
        assert self.world.state.objects == len(self.plain.things) + brought


@pytest.mark.parametrize("examples", [50, pytest.param(100, marks=pytest.mark.slow)])
def test_every_reply_is_that_of_dictionaries(examples):
    """Whatever is asked in whatever order, the core answers what a plain model of it answers."""
    limits = settings(
        max_examples=examples, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
    )
    run_state_machine_as_test(CacheMachine, settings=limits)
