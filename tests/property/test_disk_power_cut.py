"""Power is lost at any call, again and again: what was reported is there, and nothing wrong is ever read."""

import random

import pytest

from kvledger_storage.disk import DamagedError, RecordMissError, ScannedRecord
from kvledger_storage.disk.pages import PAGE
from support.disk_faults import open_store, read, record
from support.disk_simulation import PowerCut, SimulatedDisk

SEGMENT = 10 * PAGE
LIVES = 4


def live(disk, known, written, rng):
    """Run one life of the store; `known` is what the log holds, `written` every payload ever handed in."""
    store = open_store("store", disk, segment_bytes=SEGMENT)
    assert store.direct
    assert store.adopt(list(known)) == []
    for _ in range(rng.randrange(3, 9)):
        batch = []
        for _ in range(rng.randrange(1, 4)):
            item = record(len(written), rng.choice([0, 100, PAGE, 5000, 9 * PAGE]), generation=len(written) + 1)
            written[item.key] = bytes(item.payload)
            batch.append(item)
        for ref, item in zip(store.append(batch), batch, strict=True):
            known[ref] = item.key
        for ref in rng.sample(sorted(known), len(known) // 3):
            del known[ref]
            store.drop([ref])
        if rng.random() < 0.5:
            store.unlink_dead()


def check(disk, known, written):
    """Read everything known, then everything a scan finds, against what was handed in."""
    store = open_store("store", disk, segment_bytes=SEGMENT)
    for ref, key in known.items():
        assert read(store, ref, key) == written[key]
    found = [step for step in store.scan() if isinstance(step, ScannedRecord)]
    assert {step.ref for step in found} >= set(known)
    for step in found:
        try:
            assert read(store, step.ref, step.key) == written[step.key]
        except DamagedError:
            assert step.ref not in known


def lives_between_power_cuts(seed):
    """Run a store through several lives, most of which end in the middle of a call, and check it after each."""
    rng = random.Random(seed)
    disk, known, written = SimulatedDisk(), {}, {}
    for _ in range(LIVES):
        disk.cut_at = disk.calls + rng.randrange(1, 160)
        try:
            live(disk, known, written, rng)
        except PowerCut:
            disk.power_cut(rng)
        disk.cut_at = 0
        check(disk, known, written)


def test_power_cuts_lose_nothing_that_was_reported():
    """After each of many power cuts all reported records are read back, and no record has another's bytes."""
    for seed in range(150):
        lives_between_power_cuts(seed)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_thousand_seeds_of_power_cuts_lose_nothing():
    """The same with the number of seeds that the design asks for."""
    for seed in range(1000, 3000):
        lives_between_power_cuts(seed)


def test_l41_a_power_cut_at_each_single_call_loses_nothing():
    """One workload is cut at every one of its calls in turn (L41)."""
    cut = 0
    while True:
        cut += 1
        rng = random.Random(7)
        disk, known, written = SimulatedDisk(), {}, {}
        disk.cut_at = cut
        try:
            live(disk, known, written, rng)
        except PowerCut:
            disk.power_cut(random.Random(cut))
            check(disk, known, written)
        else:
            break
    assert cut > 60


def test_a_removed_segment_does_not_come_back():
    """After dead segments were reported as removed, no power cut brings their files, and their bytes, back."""
    for seed in range(20):
        disk = SimulatedDisk()
        store = open_store("store", disk, segment_bytes=SEGMENT)
        refs = store.append([record(n, 5 * PAGE) for n in range(4)])
        store.drop(refs)
        removed = store.unlink_dead()
        assert removed == [1, 2, 3]
        disk.power_cut(random.Random(seed))
        again = open_store("store", disk, segment_bytes=SEGMENT)
        assert [info.number for info in again.segments()] == [4]


def test_the_simulation_notices_a_missing_sync():
    """A store that does not sync, or does not sync the directory, loses records here: the test above can fail."""
    for forgotten in ("fdatasync", "sync_directory"):
        lost = 0
        for seed in range(20):
            rng = random.Random(seed)
            disk, known, written = SimulatedDisk(), {}, {}
            setattr(disk, forgotten, lambda *_: None)
            live(disk, known, written, rng)
            disk.power_cut(rng)
            try:
                check(disk, known, written)
            except RecordMissError:
                lost += 1
        assert lost > 10, forgotten
