"""The verdict over two places: an engine is told the same whether objects lie in memory or on its own device."""

import random

import pytest

from kvledger.wire.replies import Failed
from kvledger.wire.requests import Abort, Evict
from kvledgerd.core.config import CoreConfig
from property.test_core_histories import LAYOUTS, PROMPTS
from support.devices import set_aside
from support.world import World

ROOM = CoreConfig(memory_bytes=64 << 20, arena_bytes=1 << 20, disk_bytes=1 << 20)
COUPLED = {"C": ("C", "X"), "X": ("C", "X")}
SEEDS = 40


class Twins:
    """Two worlds: in one everything is stored in memory, in the other each unit in memory or on the device."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.plain, self.mixed = World(ROOM).engine(), World(ROOM).engine()
        what = self.random.choice(LAYOUTS[:2])  # those that any engine may share
        self.names = [spec.name for spec in what.groups]
        self.number = self.plain.register(what)
        assert self.mixed.register(what) == self.number
        self.pages = set_aside(self.mixed, self.number, 4096)

    def store(self) -> None:
        """Store a boundary."""
        prompt = self.random.choice(PROMPTS)
        end = self.random.choice([16, 32, 48, 20, 36, len(prompt)])
        reserved = self.plain.ask_reserve(self.number, prompt, end)
        if isinstance(reserved, Failed):
            return
        self.plain.ok(Abort(reserved.unit))  # it would keep in place what the device may drop
        self.plain.store(self.number, prompt, end)
        if self.random.random() < 0.7:
            self.pages.put(prompt, end)
        else:
            self.mixed.store(self.number, prompt, end)

    def drop(self) -> None:
        """Drop the copies of a group along a path, with those of the group that is coupled to it."""
        prompt, name = self.random.choice(PROMPTS), self.random.choice(self.names)
        end = self.random.choice([16, 32, 48, len(prompt)])
        for one in (one for one in COUPLED.get(name, (name,)) if one in self.names):
            kind = self.plain.world.state.layouts[self.number].layout.group(one).kind
            if isinstance(
                self.plain.ask(Evict(kind, self.number, self.plain.boundary(self.number, prompt, end), one)), Failed
            ):
                continue
            self.mixed.evict(self.number, prompt, end, one)
            self.pages.free(prompt, end, one, whole=True)

    def look(self) -> int:
        """Look every prompt up in both worlds; return how many tokens were usable."""
        found = 0
        for prompt in PROMPTS:
            leave = self.random.choice([0, 1, 5])
            one = self.plain.acquire(self.number, prompt, leave=leave)
            other = self.mixed.acquire(self.number, prompt, leave=leave)
            assert told(other) == told(one)
            for index, offer in enumerate(other.offers):
                assert bool(offer.position) == bool(self.mixed.read(other, index))
            found += one.usable_tokens
        return found


def told(answer):
    """What a verdict says, but for the places."""
    offers = [(o.position, o.residue, o.residue_hash, o.exactness, o.replay, o.ready) for o in answer.offers]
    cuts = [(cut.start, cut.end, cut.layer, cut.group, cut.code) for cut in answer.cuts]
    runs = [sum(run.count for run in (*answer.rows, *offer.runs)) for offer in answer.offers]
    return (
        offers,
        cuts,
        runs,
        answer.hash_tokens,
        answer.usable_tokens,
        answer.restorable,
        answer.coverage,
        answer.wanted,
    )


@pytest.mark.parametrize("seed", [*range(SEEDS), *(pytest.param(n, marks=pytest.mark.slow) for n in range(SEEDS, 800))])
def test_a_device_counts_as_memory_does(seed):
    """Offers, cuts, coverage and the number of handles are equal after any stores and drops, wherever things lie."""
    twins = Twins(seed)
    for _ in range(12):
        twins.random.choice([twins.store, twins.store, twins.drop])()
        twins.look()


def test_the_twins_meet_hits_on_both_places():
    """Some seeds lead to hits, and to copies that lie on the device alone."""
    hits = alone = 0
    for seed in range(8):
        twins = Twins(seed)
        for _ in range(8):
            twins.store()
        hits += twins.look()
        cells = twins.mixed.world.state.cells
        alone += sum(not cells[number].memory >> slot & 1 for number, slot in twins.pages.pool.copies)
    assert min(hits, alone) > 50
