"""Cleaning and scrubbing over power cuts: whatever was acknowledged is restored, byte for byte, within the quota."""

import random

import pytest

from kvledger.kinds import Kind
from kvledger.wire.replies import Offloaded, Restored
from kvledger.wire.requests import Evict, Offload, Restore
from kvledger_storage.blob_ref import BlobRef
from kvledgerd.core.commands import RecordsCopied
from kvledgerd.core.config import PAGE
from kvledgerd.loop.live_core import live_records
from support.disk_simulation import PowerCut
from support.layouts import pick
from support.store_world import InlineUpkeep, StoreWorld

QUOTA = 120 * PAGE
SEGMENT = 16 * PAGE
PROMPTS = 12
END = 512
LETTERS = "CM"


def prompt(number):
    """Return a prompt that shares nothing with the others."""
    return [number * 1000 + token for token in range(END)]


class History:
    """Engines that offload, evict and restore while the cleaner works and power is lost.

    Attributes:
        kept: Prompts whose offload was acknowledged and that nobody evicted.
        unsure: Prompts whose fate was being decided when the power went.
    """

    def __init__(self, seed):
        self.rng = random.Random(seed)
        self.world = StoreWorld(segment_bytes=SEGMENT, quota_bytes=QUOTA, reserve=SEGMENT, check=seed % 4 == 0)
        self.kept, self.unsure, self.cuts = set(), set(), 0
        self.join()

    def join(self):
        """Let an engine in."""
        self.user = self.world.engine()
        self.layout = self.user.register(pick(LETTERS))

    def offload(self, number):
        """Store a prompt and write it to disk alone."""
        self.unsure.add(number)
        self.user.store(self.layout, prompt(number), END)
        at = self.user.boundary(self.layout, prompt(number), END)
        reply = self.user.ask(Offload(self.layout, at, drop_memory=True))
        if isinstance(reply, Offloaded):
            self.kept.add(number)
        self.unsure.discard(number)

    def evict(self, number):
        """Drop a prompt from the disk."""
        self.kept.discard(number)
        at = self.user.boundary(self.layout, prompt(number), END)
        self.user.ask(Evict(Kind.DISK_PREFIX, self.layout, at))
        for kind in (Kind.COMPRESSED_KV, Kind.UNCOMPRESSED_TAIL):
            self.user.ask(Evict(kind, self.layout, at, disk=True))

    def step(self):
        """Do one thing."""
        number = self.rng.randrange(PROMPTS)
        if number in self.kept:
            self.evict(number)
        elif number not in self.unsure:
            self.offload(number)
        if self.rng.random() < 0.5:
            self.world.tidy()

    def live(self, steps):
        """Do some things, until power is lost."""
        self.world.device.cut_at = self.world.device.calls + self.rng.randrange(1, 600)
        try:
            for _ in range(steps):
                self.step()
                assert (self.files(), self.files() <= QUOTA) == (self.world.store.file_bytes, True)
        except PowerCut:
            self.cuts += 1
            self.world.power_cut(self.rng)
            self.join()
        self.world.device.cut_at = 0
        self.unsure.clear()

    def files(self):
        """Return the bytes of all files on the device."""
        return sum(len(file.now) for path, file in self.world.device.names.items() if path.endswith(".seg"))


def check(history):
    """Restore whatever was acknowledged and compare every byte."""
    assert history.world.store.file_bytes <= QUOTA
    for number in sorted(history.kept):
        reply = history.user.ask(Restore(history.layout, history.user.boundary(history.layout, prompt(number), END)))
        assert isinstance(reply, Restored), reply
        acquired = history.user.acquire(history.layout, prompt(number), leave=0)
        assert acquired.usable_tokens == END
        found = history.user.read(acquired)
        for (group, shard, first), data in found.items():
            name = history.world.state.layouts[history.layout].layout.groups[group].name
            mark = f"{name}/{shard}/{first}/0;".encode()
            assert bytes(data[: len(mark)]) == mark
        history.user.leave("checked")
        history.world.restart()
        history.join()


def lives(seed):
    """Run several lives of one disk, most of which end in the middle of something."""
    history = History(seed)
    for _ in range(4):
        history.live(12)
        check(history)
    return history


@pytest.mark.parametrize("seeds", [5, pytest.param(10, marks=pytest.mark.slow)])
def test_power_cuts_while_cleaning_lose_nothing(seeds):
    """After each of many power cuts all that was acknowledged is restored right, and the quota was never passed."""
    cuts = moved = 0
    for seed in range(seeds):
        history = lives(seed)
        cuts += history.cuts
        moved += len(history.world.events("records_moved.1"))
    assert cuts > seeds // 2
    assert moved > 5 * seeds


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_hundred_seeds_of_power_cuts_while_cleaning_lose_nothing():
    """The same with many more seeds."""
    for seed in range(1000, 1200):
        lives(seed)


def cleaned_until(cut, upkeep=InlineUpkeep):
    """Clean half-dead segments with power lost at call number `cut` of it; return whether it was."""
    history = History(1)
    history.world.upkeep = upkeep(history.world)
    history.world.open_store()
    history.join()
    for number in range(6):
        history.offload(number)
    for number in (0, 2, 3, 4):
        history.evict(number)
    device = history.world.device
    device.cut_at = device.calls + cut
    try:
        history.world.tidy()
    except PowerCut:
        history.world.power_cut(random.Random(cut))
        history.join()
        check(history)
        return True
    device.cut_at = 0
    assert history.world.events("records_moved.1")
    check(history)
    return False


def test_power_lost_at_each_call_of_cleaning_loses_nothing():
    """One cleaning is cut at every one of its calls and decisions in turn."""
    cut = 1
    while cleaned_until(cut):
        cut += 1
    assert cut > 40


class Hasty(InlineUpkeep):
    """An upkeep that removes what it copied before the event that names the copies."""

    async def ask(self, command):
        """Give the old places back at once."""
        if isinstance(command, RecordsCopied):
            self.store.drop(BlobRef(r.segment, r.offset, r.length) for r in (seen.ref for seen, _ in command.records))
            self.store.unlink_dead()
        return await super().ask(command)


def test_the_simulation_notices_a_file_that_goes_too_early():
    """A cleaner that removes a file before the event is there loses records here: the tests above can fail."""
    lost = 0
    for cut in range(1, 40):
        try:
            cleaned_until(cut, Hasty)
        except AssertionError:
            lost += 1
    assert lost


def test_what_others_do_meanwhile_is_respected():
    """Records that are evicted, or being restored, between reading and taking over are not moved, and none is lost."""
    for seed in range(4):
        history = History(seed)
        for number in range(PROMPTS):
            history.offload(number)
        for number in range(0, PROMPTS, 3):
            history.evict(number)
        pending = [number for number in history.kept if number % 3 == 1]

        def meddle(history=history, pending=pending):
            if pending:
                history.evict(pending.pop())

        history.world.upkeep.between = meddle
        history.world.tidy()
        history.world.upkeep.between = lambda: None
        history.world.restart()
        history.join()
        check(history)
        named = {(ref[0], ref[1]) for ref in live_records(history.world.state)}
        alive = {(i.number, at) for i in history.world.store.segments() for at in alive_in(history.world.store, i)}
        assert alive == named


def alive_in(store, info):
    """Return where the records of a segment begin that the store counts as alive."""
    return [held.ref.offset for held in store.read_part(info.number, 0, 1 << 30).records]
