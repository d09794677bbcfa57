"""What somebody else may do to the files: each is a typed miss that names the file, and never a wrong byte."""

import errno
import os
import shutil

import pytest

from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk import (
    DamagedError,
    HeaderState,
    MissingError,
    RecordMissError,
    ScannedDamage,
    ScannedRecord,
    UnreadableError,
    WriteFailedError,
    WrongRecordError,
    fingerprint_of,
    record_bytes,
)
from kvledger_storage.disk.pages import PAGE
from support.disk_faults import FaultyIO, UnsyncedIO, flip, open_store, overwrite, read, record, segment_file
from support.replaced_files import REPLACEMENTS

SIZE = 10_000


@pytest.fixture
def three(tmp_path):
    """Give a store with three records of one segment: store, references, records, path of the file."""
    store = open_store(tmp_path)
    items = [record(n, SIZE) for n in range(3)]
    refs = store.append(items)
    return store, refs, items, segment_file(tmp_path, refs[0])


def reads_right(store, ref, item):
    """Return whether the record is read back byte for byte."""
    return read(store, ref, item.key) == bytes(item.payload)


@pytest.mark.hostile("DI02")
@pytest.mark.parametrize("step", [0, 8, 20, 100, 150, 160, 2000, PAGE - 1])
def test_a_flipped_bit_in_the_header_is_damage(three, step):
    """Any byte of the header page is covered, used or not; the neighbours stay readable."""
    store, refs, items, path = three
    flip(path, refs[1].offset + step)
    with pytest.raises(DamagedError) as caught:
        read(store, refs[1], items[1].key)
    assert (caught.value.what, caught.value.file, caught.value.offset) == ("header", str(path), refs[1].offset)
    assert reads_right(store, refs[0], items[0])
    assert reads_right(store, refs[2], items[2])


@pytest.mark.hostile("DI02")
@pytest.mark.parametrize(
    ("step", "what"),
    [(0, "payload"), (5000, "payload"), (SIZE - 1, "payload"), (SIZE, "padding"), (3 * PAGE - 1, "padding")],
)
def test_a_flipped_bit_behind_the_header_is_damage(three, step, what):
    """First, middle and last byte of the payload, first and last of the padding: each flip is noticed (V39)."""
    store, refs, items, path = three
    flip(path, refs[1].offset + PAGE + step)
    with pytest.raises(DamagedError) as caught:
        read(store, refs[1], items[1].key)
    assert caught.value.what == what
    assert reads_right(store, refs[2], items[2])


@pytest.mark.hostile("DI01")
def test_a_file_cut_anywhere_loses_exactly_what_is_gone(three):
    """Cut at each record boundary and inside each part, whole records stay and the others are misses (V38)."""
    store, refs, items, path = three
    whole = path.read_bytes()
    ends = [ref.offset + record_bytes(SIZE) for ref in refs]
    cuts = {0, 1, PAGE - 1, *(ref.offset + step for ref in refs for step in (0, 1, PAGE, PAGE + 5000, 3 * PAGE + 2000))}
    for cut in sorted(cuts | set(ends)):
        path.write_bytes(whole[:cut])
        for ref, item, end in zip(refs, items, ends, strict=True):
            if end <= cut:
                assert reads_right(store, ref, item)
            else:
                with pytest.raises(MissingError if cut <= ref.offset else DamagedError):
                    read(store, ref, item.key)


def test_a_record_is_stored_again_after_its_file_was_cut(three):
    """A damaged record does not stand in the way of a new one for the same object (F07)."""
    store, refs, items, path = three
    os.truncate(path, refs[2].offset + PAGE)
    with pytest.raises(DamagedError):
        read(store, refs[2], items[2].key)
    store.drop([refs[2]])
    with pytest.raises(RecordMissError):
        read(store, refs[2], items[2].key)
    (again,) = store.append([items[2]])
    assert again.segment == refs[2].segment + 1
    assert reads_right(store, again, items[2])
    assert reads_right(store, refs[0], items[0])


@pytest.mark.hostile("DI03")
def test_two_swapped_records_are_both_noticed(three):
    """Records swapped within a file are misses that name each other's place (F06)."""
    store, refs, items, path = three
    data = bytearray(path.read_bytes())
    size = record_bytes(SIZE)
    first, second = (slice(ref.offset, ref.offset + size) for ref in refs[:2])
    data[first], data[second] = data[second], data[first]
    path.write_bytes(data)
    for here, there in ((0, 1), (1, 0)):
        with pytest.raises(WrongRecordError, match=f"offset={refs[there].offset}") as caught:
            read(store, refs[here], items[here].key)
        assert caught.value.offset == refs[here].offset
    assert reads_right(store, refs[2], items[2])


def test_two_swapped_files_are_both_noticed(tmp_path):
    """Files swapped under each other's names give no wrong record, and both are named at the next start (F06)."""
    store = open_store(tmp_path, segment_bytes=4 * PAGE)
    items = [record(n, PAGE) for n in (1, 2)]
    refs = store.append(items)
    one, two = (segment_file(tmp_path, ref) for ref in refs)
    kept = tmp_path / "kept"
    one.rename(kept)
    two.rename(one)
    kept.rename(two)
    for ref, item in zip(refs, items, strict=True):
        with pytest.raises(WrongRecordError, match=segment_file(tmp_path, ref).name):
            read(store, ref, item.key)
    assert [info.header for info in open_store(tmp_path).segments()] == [HeaderState.FOREIGN] * 2


@pytest.mark.hostile("DI04")
def test_a_record_of_another_key_copied_over_is_noticed(three):
    """A sound record in the place of another is not handed out, though sizes agree."""
    store, refs, items, path = three
    size = record_bytes(SIZE)
    overwrite(path, refs[1].offset, path.read_bytes()[refs[0].offset : refs[0].offset + size])
    with pytest.raises(WrongRecordError):
        read(store, refs[1], items[1].key)
    assert reads_right(store, refs[0], items[0])


@pytest.mark.parametrize("field", ["cell", "slot", "generation", "kind"])
def test_a_record_of_another_identity_is_not_handed_out(three, field):
    """The place is right and the record sound, but it is not what was asked for: the differing field is named."""
    store, refs, items, _ = three
    other = items[0].key._replace(**{field: getattr(items[0].key, field) + 1})
    with pytest.raises(WrongRecordError) as caught:
        read(store, refs[0], other)
    assert caught.value.what == field


def test_a_record_of_another_layout_or_fingerprint_is_not_handed_out(three):
    """Equal sizes prove nothing: layout and committed fingerprint are compared."""
    store, refs, items, _ = three
    for field, value in (("layout", bytes(32)), ("fingerprint", bytes(16))):
        with pytest.raises(WrongRecordError, match=field):
            read(store, refs[0], items[0].key._replace(**{field: value}))


@pytest.mark.parametrize("ref", [(1, 4096, 9999), (1, 8192, SIZE), (1, 5000, SIZE), (1, 0, SIZE), (1, 1 << 40, SIZE)])
def test_a_wrong_reference_is_a_miss(three, ref):
    """A reference with another length, into the middle of a record, unaligned or beyond the end finds nothing."""
    store, _, items, _ = three
    with pytest.raises(RecordMissError):
        read(store, BlobRef(*ref), items[0].key)


@pytest.mark.hostile("DI05")
@pytest.mark.parametrize("replace", REPLACEMENTS, ids=lambda one: one.__name__)
def test_what_stands_in_the_place_of_a_file_is_a_miss(tmp_path, replace):
    """A file removed or replaced is a miss at once, nothing waits, and other segments go on."""
    store = open_store(tmp_path, segment_bytes=4 * PAGE)
    items = [record(n, PAGE) for n in (1, 2)]
    refs = store.append(items)
    replace(segment_file(tmp_path, refs[0]))
    with pytest.raises(RecordMissError) as caught:
        read(store, refs[0], items[0].key)
    assert isinstance(caught.value, MissingError | UnreadableError)
    assert reads_right(store, refs[1], items[1])
    assert [found for found in store.scan() if isinstance(found, ScannedRecord)] == [
        ScannedRecord(refs[1], items[1].key)
    ]


@pytest.mark.parametrize("replace", REPLACEMENTS, ids=lambda one: one.__name__)
def test_a_store_opens_whatever_stands_in_the_place_of_a_file(tmp_path, replace):
    """After a restart the reference is reported as lost, the rest is served, and what stands there is not removed."""
    store = open_store(tmp_path, segment_bytes=4 * PAGE)
    items = [record(n, PAGE) for n in (1, 2)]
    refs = store.append(items)
    path = segment_file(tmp_path, refs[0])
    replace(path)
    there = os.path.lexists(path)
    again = open_store(tmp_path, segment_bytes=4 * PAGE)
    assert again.adopt(refs) == refs[:1]
    assert again.unlink_dead() == []
    assert os.path.lexists(path) == there
    assert reads_right(again, refs[1], items[1])


@pytest.mark.parametrize("replace", REPLACEMENTS, ids=lambda one: one.__name__)
def test_a_replaced_open_segment_is_not_written_to(tmp_path, replace):
    """A batch that meets a replaced file goes to a fresh one, and what stands there is left alone."""
    store = open_store(tmp_path)
    (ref,) = store.append([record(1)])
    path = segment_file(tmp_path, ref)
    replace(path)
    there = os.path.lexists(path)
    (new,) = store.append([record(2)])
    assert new.segment == ref.segment + 1
    assert os.path.lexists(path) == there
    assert reads_right(store, new, record(2))


def test_an_open_segment_that_grew_is_not_written_to(three):
    """Bytes that somebody added behind ours are not overwritten; the next batch goes to a fresh file."""
    store, refs, _, path = three
    with path.open("ab") as file:
        file.write(b"somebody's")
    (new,) = store.append([record(9)])
    assert new.segment == refs[0].segment + 1
    assert path.read_bytes().endswith(b"somebody's")


def test_a_foreign_file_with_the_next_name_is_kept(tmp_path):
    """A file that somebody put where the next segment would go is neither written to nor removed."""
    store = open_store(tmp_path)
    segment_file(tmp_path, 1).write_text("not ours")
    with pytest.raises(WriteFailedError):
        store.append([record(1)])
    (ref,) = store.append([record(1)])
    assert ref.segment == 2
    assert segment_file(tmp_path, 1).read_text() == "not ours"


@pytest.mark.hostile("DI05")
def test_an_unreadable_file_is_a_miss_that_may_pass(three):
    """When the system refuses the file, the error says so and carries the system's reason."""
    store, refs, items, path = three
    io = FaultyIO(at=1, only="preadv")
    broken = open_store(path.parent.parent)
    broken._reader._io = io
    with pytest.raises(UnreadableError) as caught:
        read(broken, refs[0], items[0].key)
    assert caught.value.errno
    assert reads_right(broken, refs[0], items[0])
    assert reads_right(store, refs[0], items[0])


def test_a_read_that_fails_in_the_middle_is_a_miss(tmp_path):
    """When half a record has arrived and the device then fails, the record counts as not read at all (L04)."""

    class HalfWay(UnsyncedIO):
        reads = 0

        def preadv(self, fd, buffers, offset):
            self.reads += 1
            if self.reads > 1:
                raise OSError(errno.EIO, "Input/output error")
            return super().preadv(fd, [buffers[0]], offset)

    (ref,) = open_store(tmp_path).append([record(1)])
    store = open_store(tmp_path)
    store._reader._io = HalfWay()
    with pytest.raises(UnreadableError) as caught:
        read(store, ref, record(1).key)
    assert caught.value.errno == errno.EIO


def test_a_scan_finds_every_record_without_a_log(tmp_path):
    """Headers alone give all references and keys, in the order in which they were stored."""
    store = open_store(tmp_path, segment_bytes=16 * PAGE)
    items = [record(n, 3000 * n) for n in range(8)]
    refs = [store.append([item])[0] for item in items]
    expected = [ScannedRecord(ref, item.key) for ref, item in zip(refs, items, strict=True)]
    assert list(store.scan()) == expected
    assert list(open_store(tmp_path).scan()) == expected


def test_a_scan_goes_on_behind_damage(three):
    """A damaged header hides its own record only: the walk finds the next one and reports the run between."""
    store, refs, items, path = three
    flip(path, refs[1].offset + 30)
    assert list(store.scan()) == [
        ScannedRecord(refs[0], items[0].key),
        ScannedDamage(1, refs[1].offset, record_bytes(SIZE), "the checksum of the header is wrong"),
        ScannedRecord(refs[2], items[2].key),
    ]


def test_a_scan_survives_a_damaged_segment_header(three):
    """Records certify themselves, so they are found and read behind a ruined first page."""
    _, refs, items, path = three
    overwrite(path, 0, b"\xff" * PAGE)
    store = open_store(path.parent.parent)
    assert store.segments()[0].header is HeaderState.DAMAGED
    assert [found.ref for found in store.scan()] == refs
    assert reads_right(store, refs[0], items[0])


def test_a_damaged_segment_is_removed_once_its_records_are_dead(three):
    """Behind a ruined first page a file stays until records that were adopted in it are dead."""
    _, refs, items, path = three
    overwrite(path, 0, b"\xff" * PAGE)
    unclaimed = open_store(path.parent.parent)
    unclaimed.adopt([])
    unclaimed.append([items[0]])
    assert unclaimed.unlink_dead() == []
    store = open_store(path.parent.parent)
    assert store.adopt(refs) == []
    store.append([items[0]])
    store.drop(refs)
    assert 1 in store.unlink_dead()
    assert not path.exists()


def test_a_scan_reports_a_cut_file(three):
    """What was cut off while the store is open is reported, at a boundary as well as inside a record."""
    store, refs, _, path = three
    end = store.file_bytes
    os.truncate(path, refs[2].offset)
    assert list(store.scan())[-1] == ScannedDamage(1, refs[2].offset, end - refs[2].offset, "the file was cut short")
    os.truncate(path, refs[1].offset + PAGE)
    found = list(store.scan())
    assert [type(step) for step in found] == [ScannedRecord, ScannedDamage, ScannedDamage]


def test_a_scan_takes_no_stale_copy_for_a_record(three):
    """A record copied to another place is damage and not a second record."""
    store, refs, _, path = three
    data = path.read_bytes()
    with path.open("ab") as file:
        file.write(data[refs[0].offset : refs[0].offset + record_bytes(SIZE)])
    again = open_store(path.parent.parent)
    found = list(again.scan())
    assert [step.ref for step in found[:3]] == refs
    assert "copy" in found[3].why
    assert len(found) == 4
    assert len(list(store.scan())) == 3


@pytest.mark.hostile("DI10")
def test_a_copied_directory_serves_the_same_records(three, tmp_path):
    """A copy of the directory holds the same log id and the same bytes; whose it is, is for the log to say."""
    _, refs, items, path = three
    copy = tmp_path / "copy"
    copy.mkdir()
    shutil.copytree(path.parent, copy / "data")
    store = open_store(copy)
    assert store.adopt(refs) == []
    assert reads_right(store, refs[1], items[1])


def test_payload_that_imitates_a_header_is_not_a_record(tmp_path):
    """A payload that holds a whole record of this very store is one record's bytes and nothing else."""
    store = open_store(tmp_path)
    (ref,) = store.append([record(1, 100)])
    raw = segment_file(tmp_path, ref).read_bytes()[ref.offset :]
    item = record(2, len(raw))
    item = item._replace(key=item.key._replace(fingerprint=fingerprint_of(raw)), payload=memoryview(raw))
    (second,) = store.append([item])
    assert [found.ref for found in store.scan()] == [ref, second]
    flip(segment_file(tmp_path, second), second.offset)
    assert [type(found) for found in store.scan()] == [ScannedRecord, ScannedDamage]
