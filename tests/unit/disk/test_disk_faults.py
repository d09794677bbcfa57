"""The n-th system call fails, for every n: nothing half-stored is ever reported and nothing stored is lost."""

import contextlib
import errno
import shutil

import pytest

from kvledger_storage.disk import (
    DirectoryError,
    DiskFullError,
    OsBlobIO,
    ReadOnlyError,
    RecordMissError,
    ScannedRecord,
    TierError,
    WriteFailedError,
)
from kvledger_storage.disk.pages import PAGE
from support.disk_faults import FAULTS, FaultyIO, UnsyncedIO, open_store, read, record, segment_file
from support.shm import open_descriptors

SEGMENT = 8 * PAGE
# More records than one call writes.
MANY = range(2, 42)


def workload(directory, io, known):
    """Open, adopt, store, read, drop and clean; `known` tells afterwards what was reported and not dropped."""
    store = open_store(directory, io, segment_bytes=SEGMENT)
    store.adopt(known)
    for batch in ([10, 11], [12], [13, 14, 15], [16]):
        items = [record(slot, 5000, generation=len(known) + 1) for slot in batch]
        with contextlib.suppress(TierError):
            known.update(zip(store.append(items), items, strict=True))
        store.read_only = None
    for ref, item in list(known.items())[:2]:
        with contextlib.suppress(RecordMissError):
            assert read(store, ref, item.key) == bytes(item.payload)
        store.drop([ref])
        del known[ref]
    store.unlink_dead()


def check_everything(directory, known):
    """All that was reported is read back by a healthy store; what it scans beyond that is sound as well."""
    store = open_store(directory, FaultyIO(), segment_bytes=SEGMENT)
    for step in store.scan():
        if isinstance(step, ScannedRecord):
            assert len(read(store, step.ref, step.key)) == step.key.length
    assert store.adopt(known) == []
    for ref, item in known.items():
        assert read(store, ref, item.key) == bytes(item.payload)
    (new,) = store.append([record(99)])
    assert read(store, new, record(99).key) == bytes(record(99).payload)
    assert store.file_bytes == sum(path.stat().st_size for path in (directory / "data").glob("*.seg"))


@pytest.fixture
def earlier(tmp_path):
    """Give a directory with records of an earlier run, and what was reported there."""
    directory = tmp_path / "earlier"
    directory.mkdir()
    known = {}
    workload(directory, FaultyIO(), known)
    return directory, known


@pytest.mark.parametrize("sticky", [False, True])
@pytest.mark.parametrize("fault", FAULTS)
def test_no_failing_call_loses_or_invents_a_record(tmp_path, earlier, fault, sticky):
    """Whichever call fails, once or from then on, a store on the healthy disk has all reported records and works on."""
    source, before = earlier
    at = 0
    while True:
        at += 1
        directory = tmp_path / f"{at}"
        shutil.copytree(source, directory)
        known = dict(before)
        io = FaultyIO(at, fault, sticky=sticky)
        with contextlib.suppress(TierError):
            workload(directory, io, known)
        if not io.injected:
            break
        check_everything(directory, known)
    assert at > 60


@pytest.mark.hostile("DI07")
@pytest.mark.parametrize("only", ["preallocate", "pwrite"])
def test_a_full_disk_makes_the_tier_read_only_until_it_is_told(tmp_path, only):
    """ENOSPC stores nothing of the batch, says why, refuses further batches at once and keeps serving reads (L05)."""
    io = FaultyIO()
    store = open_store(tmp_path, io)
    first = record(1)
    (ref,) = store.append([first])
    size = store.file_bytes
    io.only, io.fault, io.at, io.calls = only, "enospc", 2 if only == "pwrite" else 1, []
    with pytest.raises(DiskFullError, match="No space"):
        store.append([record(slot) for slot in MANY])
    assert "No space" in store.read_only
    with pytest.raises(ReadOnlyError, match="No space"):
        store.append([record(2)])
    assert read(store, ref, first.key) == bytes(first.payload)
    assert segment_file(tmp_path, ref).stat().st_size == size == store.file_bytes
    assert [found.key.slot for found in store.scan()] == [1]
    store.read_only = None
    assert len(store.append([record(2)])) == 1


def test_removing_dead_segments_ends_read_only(tmp_path):
    """Space that was freed is used again without anybody's help."""
    io = FaultyIO()
    store = open_store(tmp_path, io, segment_bytes=SEGMENT)
    refs = [store.append([record(n, 6 * PAGE)])[0] for n in range(2)]
    io.only, io.fault, io.at, io.calls = "preallocate", "enospc", 1, []
    with pytest.raises(DiskFullError):
        store.append([record(3)])
    store.drop(refs[:1])
    assert store.unlink_dead() == [1]
    assert store.read_only is None
    assert len(store.append([record(3)])) == 1


def test_a_failed_batch_is_not_there_after_a_restart(tmp_path):
    """A batch whose second write fails leaves nothing of it behind (L05)."""
    io = FaultyIO()
    store = open_store(tmp_path, io)
    store.append([record(1)])
    io.only, io.at, io.calls = "pwrite", 2, []
    with pytest.raises(WriteFailedError):
        store.append([record(slot) for slot in MANY])
    assert [found.key.slot for found in open_store(tmp_path).scan()] == [1]


def test_a_write_that_goes_no_further_is_a_failure(tmp_path):
    """A device that takes a part and then nothing, without an error, fails the batch instead of cutting it short."""

    class Stuck(UnsyncedIO):
        left = 1 << 30

        def pwrite(self, fd, buffers, offset):
            taken = min(self.left, len(buffers[0]))
            self.left -= taken
            return super().pwrite(fd, [buffers[0][:taken]], offset) if taken else 0

    io = Stuck()
    store = open_store(tmp_path, io)
    io.left = 2 * PAGE
    with pytest.raises(WriteFailedError, match="wrote 4096 of"):
        store.append([record(1)])
    io.left = 1 << 30
    (ref,) = store.append([record(1)])
    assert [found.ref for found in store.scan()] == [ref]
    assert read(store, ref, record(1).key) == bytes(record(1).payload)


def test_a_failed_sync_is_never_repeated(tmp_path):
    """After a sync that failed the file gets no further bytes and no further sync: the next batch has a fresh one."""
    io = FaultyIO()
    store = open_store(tmp_path, io)
    (first,) = store.append([record(1)])
    io.only, io.at, io.calls = "fdatasync", 1, []
    with pytest.raises(WriteFailedError):
        store.append([record(2)])
    assert io.calls == ["fdatasync"]
    (second,) = store.append([record(2)])
    assert second.segment == first.segment + 1
    assert read(store, first, record(1).key) == bytes(record(1).payload)


def test_the_newest_segment_stays_though_dead_and_closed(tmp_path):
    """The newest file goes only when there is a newer one, so that its number is not given out again."""
    io = FaultyIO()
    store = open_store(tmp_path, io)
    refs = store.append([record(1)])
    io.only, io.at, io.calls = "fdatasync", 1, []
    with pytest.raises(WriteFailedError):
        store.append([record(2)])
    store.drop(refs)
    assert store.unlink_dead() == []
    store.append([record(2)])
    assert store.unlink_dead() == [1]


def test_a_batch_that_can_not_be_taken_back_is_counted_and_dead(tmp_path):
    """When even the cutting back fails, its bytes count against the quota and none of its records is reported."""
    io = FaultyIO()
    store = open_store(tmp_path, io)
    (ref,) = store.append([record(1)])
    io.at, io.sticky, io.calls = 5, True, []
    with pytest.raises(WriteFailedError):
        store.append([record(2)])
    io.at = 0
    assert store.file_bytes >= segment_file(tmp_path, ref).stat().st_size
    (again,) = store.append([record(2)])
    assert again.segment == ref.segment + 1
    assert {ref, again} <= {found.ref for found in store.scan() if isinstance(found, ScannedRecord)}


class ReadOnlyFileSystem(OsBlobIO):
    """A directory on a file system that was mounted, or turned, read-only."""

    def open(self, path, flags, mode=0o600):
        """Refuse whatever would write."""
        if flags & 3:
            raise OSError(errno.EROFS, "Read-only file system")
        return super().open(path, flags, mode)

    def unlink(self, path):
        """Refuse."""
        raise OSError(errno.EROFS, "Read-only file system")

    def mkdir(self, path):
        """Refuse."""
        raise OSError(errno.EROFS, "Read-only file system")


@pytest.mark.hostile("DI06")
def test_a_read_only_directory_is_served_and_not_written(tmp_path):
    """Records are read and adopted from a read-only directory, a batch is refused with the reason."""
    (ref,) = open_store(tmp_path).append([record(1)])
    store = open_store(tmp_path, ReadOnlyFileSystem())
    assert "Read-only" in store.read_only
    assert store.adopt([ref]) == []
    assert read(store, ref, record(1).key) == bytes(record(1).payload)
    with pytest.raises(ReadOnlyError, match="Read-only"):
        store.append([record(2)])


def test_a_read_only_place_without_a_store_is_refused(tmp_path):
    """Where the folder can not be made there is nothing to serve."""
    with pytest.raises(DirectoryError, match="directory"):
        open_store(tmp_path, ReadOnlyFileSystem())


def test_no_descriptor_is_left_open_by_any_failure(tmp_path):
    """After the whole workload, healthy or failing at any call, the same descriptors are open as before."""
    before = open_descriptors()
    for at in range(80):
        directory = tmp_path / f"{at}"
        directory.mkdir()
        with contextlib.suppress(TierError):
            workload(directory, FaultyIO(at), {})
    assert open_descriptors() == before
