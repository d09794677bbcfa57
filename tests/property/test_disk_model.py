"""Any sequence of calls, restarts and flipped bits against a plain dictionary."""

import random

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kvledger_storage.disk import QuotaExceededError, RecordMissError, ScannedRecord, record_bytes
from kvledger_storage.disk.pages import PAGE
from support.disk_faults import open_store, read, record
from support.disk_simulation import SimulatedDisk

SEGMENT = 8 * PAGE
QUOTA = 60 * PAGE


class StoreMachine(RuleBasedStateMachine):
    """The store beside a dictionary of what it should hold."""

    def __init__(self):
        super().__init__()
        self.disk = SimulatedDisk()
        self.alive = {}
        self.ruined = set()
        self.generation = 0
        self.store = self.open()

    def open(self):
        """Open a store on the same disk."""
        return open_store("store", self.disk, segment_bytes=SEGMENT, quota_bytes=QUOTA)

    @rule(sizes=st.lists(st.sampled_from([0, 1, 4095, 4096, 4097, 9000, 40_000]), max_size=4))
    def append(self, sizes):
        """Store a batch; it is refused exactly when it does not fit."""
        items = []
        for size in sizes:
            self.generation += 1
            items.append(record(self.generation % 5, size, generation=self.generation))
        before = self.store.file_bytes
        try:
            refs = self.store.append(items)
        except QuotaExceededError as error:
            self.check_refusal(error, before)
            return
        assert not set(refs) & set(self.alive)
        self.ruined -= set(refs)
        self.alive.update(zip(refs, items, strict=True))

    def check_refusal(self, error, before):
        """A refused batch really does not fit, and changed nothing."""
        assert error.needed > error.free == QUOTA - before
        assert self.store.file_bytes == before

    @precondition(lambda self: self.alive)
    @rule(seed=st.integers(0, 1 << 16))
    def drop(self, seed):
        """Drop one record, twice; it counts once."""
        ref = random.Random(seed).choice(sorted(self.alive))
        del self.alive[ref]
        assert self.store.drop([ref, ref]) == record_bytes(ref.length)

    @rule()
    def clean(self):
        """Remove dead segments; none of them held a live record."""
        removed = self.store.unlink_dead()
        assert not {ref.segment for ref in self.alive} & set(removed)

    @rule()
    def restart(self):
        """Open anew and say what is alive."""
        self.store = self.open()
        assert self.store.adopt(self.alive) == []

    @rule(seed=st.integers(0, 1 << 16))
    def power_cut(self, seed):
        """Lose power between two calls."""
        self.disk.power_cut(random.Random(seed))
        self.restart()

    @precondition(lambda self: self.alive)
    @rule(seed=st.integers(0, 1 << 16))
    def flip(self, seed):
        """Flip one bit of a live record on the disk; a second flip may not undo the first."""
        rng = random.Random(seed)
        ref = rng.choice(sorted(self.alive))
        if ref in self.ruined:
            return
        file = next(f for name, f in self.disk.names.items() if name.endswith(f"{ref.segment:010d}.seg"))
        at = ref.offset + rng.randrange(record_bytes(ref.length))
        file.now[at] ^= 1 << rng.randrange(8)
        file.sync()
        self.ruined.add(ref)

    @invariant()
    def every_record_is_right_or_a_miss(self):
        """Whole records are read byte for byte, ruined ones never."""
        for ref, item in self.alive.items():
            try:
                assert read(self.store, ref, item.key) == bytes(item.payload)
                assert ref not in self.ruined
            except RecordMissError:
                assert ref in self.ruined

    @invariant()
    def the_books_agree(self):
        """Live bytes, file bytes and the quota agree with the model and the files."""
        live = sum(record_bytes(ref.length) for ref in self.alive)
        assert sum(info.live_bytes for info in self.store.segments()) == live
        sizes = sum(len(file.now) for name, file in self.disk.names.items() if name.endswith(".seg"))
        assert self.store.file_bytes == sizes <= QUOTA

    @invariant()
    def a_scan_finds_what_is_whole(self):
        """Every live record that was not ruined is found by its header."""
        found = {step.ref: step.key for step in self.store.scan() if isinstance(step, ScannedRecord)}
        for ref, item in self.alive.items():
            if ref not in self.ruined:
                assert found[ref] == item.key


TestStore = StoreMachine.TestCase
TestStore.settings = settings(
    max_examples=40, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)
