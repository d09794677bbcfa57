"""A restore in parts: read by several threads, answered once, in the order of its records."""

from __future__ import annotations

from itertools import permutations

import pytest

from kvledger.kinds import Kind
from kvledger_storage.blob_ref import BlobRef
from kvledgerd.core.commands import RestoreDone
from kvledgerd.core.decision import DiskRead, ReadRecord
from kvledgerd.workers.disk_jobs import Reading

MIB = 1 << 20


class Disk:
    """Reads nothing and says of each record which it was, and of each part by when it has to begin."""

    def __init__(self, takes=0.0):
        self.time = 100.0
        self.takes = takes
        self.ends = []

    def now(self):
        """Return the time."""
        return self.time

    def deadline(self, began):
        """Return the end of a restore that began then."""
        return began + 30

    def read(self, _layout, records, end):
        """Return one text for each record, and the fingerprint of none."""
        self.ends.append(end)
        self.time += self.takes
        return [(f"damaged: {record.slot}", b"") for record in records]


def reading(disk, *sizes, kinds=(Kind.COMPRESSED_KV,)):
    """Return a restore of records with these sizes, numbered from 0 on, of kinds that alternate."""
    ref = BlobRef(1, 4096, 1)
    numbered = list(enumerate(sizes))
    records = tuple(ReadRecord(kinds[n % len(kinds)], ref, 1, n, 3, 1, 0, size, b"f" * 16) for n, size in numbered)
    return Reading(disk, DiskRead(7, b"l" * 32, records))


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_last_part_has_the_answer(order):
    """Whichever part ends last has the answer, which tells of all records in their own order."""
    restore = reading(Disk(), 8 * MIB, 5 * MIB, 3 * MIB, 1)
    assert restore.parts == 3
    answers = [restore.read(number) for number in order]
    assert answers == [None, None, RestoreDone(7, ("damaged: 0", "damaged: 1", "damaged: 2", "damaged: 3"))]


def test_parts_are_of_one_kind_each():
    """Records of several kinds are read kind by kind, and told of in their own order."""
    restore = reading(Disk(), 5 * MIB, 1, 5 * MIB, 2, 3, kinds=(Kind.COMPRESSED_KV, Kind.SWA_WINDOW))
    assert restore.kinds == [Kind.COMPRESSED_KV, Kind.COMPRESSED_KV, Kind.SWA_WINDOW]
    assert restore.failed(1, "failed: no thread") is None
    assert restore.read(2) is None
    texts = ["damaged: 0", "damaged: 1", "failed: no thread", "damaged: 3", "failed: no thread"]
    assert list(restore.read(0).errors) == texts


def test_part_that_can_not_be_tried_fails_alone():
    """An exception in one part's thread costs the records of that part and no other."""
    restore = reading(Disk(), 8 * MIB, 8 * MIB)
    assert restore.failed(0, "failed: out of memory") is None
    assert restore.read(1) == RestoreDone(7, ("failed: out of memory", "damaged: 1"))


def test_all_parts_have_the_deadline_of_the_first():
    """The time a restore may take counts from its first part on, however late the others begin."""
    disk = Disk()
    restore = reading(disk, 8 * MIB, 8 * MIB)
    restore.read(1)
    disk.time = 200.0
    restore.read(0)
    assert disk.ends == [130.0, 130.0]


def test_empty_restores_are_answered():
    """A restore without records is answered like any other, since a job pins slots until it is."""
    restore = reading(Disk())
    assert [restore.read(number) for number in range(restore.parts)] == [RestoreDone(7, ())]


def test_time_of_all_parts_is_told():
    """How long a restore took counts from its first read to its last, in microseconds."""
    restore = reading(Disk(takes=0.25), 8 * MIB, 8 * MIB)
    assert restore.read(0) is None
    assert restore.read(1).micros == 500_000


def test_restore_that_read_nothing_tells_no_time():
    """Where no part could even be tried nothing was measured."""
    restore = reading(Disk(takes=1.0), 8 * MIB)
    assert restore.failed(0, "failed: out of memory").micros == 0


def test_what_quantised_records_became_is_told():
    """The answer has the fingerprints of objects that were made, by the number of their records, and of no others."""
    disk = Disk()
    disk.read = lambda _layout, records, _end: [("", b"p" * 16 if record.slot % 2 else b"") for record in records]
    restore = reading(disk, 8 * MIB, 8 * MIB, 8 * MIB, 8 * MIB)
    answers = [restore.read(number) for number in (3, 1, 0, 2)]
    assert answers[-1] == RestoreDone(7, ("", "", "", ""), 0, ((1, b"p" * 16), (3, b"p" * 16)))
