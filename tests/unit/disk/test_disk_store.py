"""Storing and reading back, segments, quota, and what survives a restart."""

import mmap
import os
import threading

import pytest

from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk import (
    DamagedError,
    DirectoryError,
    DiskStore,
    HeaderState,
    NewerVersionError,
    NotAdoptedError,
    QuotaExceededError,
    ReadRequest,
    RecordType,
    SourceDamagedError,
    WrongRecordError,
    record_bytes,
)
from kvledger_storage.disk.pages import PAGE
from support.disk_faults import LOG_ID, FaultyIO, NoDirectIO, flip, open_store, overwrite, read, record, segment_file

SIZES = [0, 1, 4095, 4096, 4097, 100_000]


@pytest.mark.parametrize("size", SIZES)
def test_what_was_stored_is_read_back(tmp_path, size):
    """A payload of any size comes back byte for byte, and the header tells its key."""
    store = DiskStore.open(str(tmp_path), LOG_ID, quota_bytes=1 << 20)
    item = record(1, size)
    (ref,) = store.append([item])
    assert read(store, ref, item.key) == bytes(item.payload)
    assert store.read_key(ref) == item.key


def test_a_batch_returns_one_reference_a_record_in_order(tmp_path):
    """References come in the order of the records, objects and manifests alike."""
    store = open_store(tmp_path)
    items = [record(n, 5000 * n, record_type=RecordType(1 + n % 2)) for n in range(5)]
    refs = store.append(items)
    assert [store.read_key(ref) for ref in refs] == [item.key for item in items]


def test_a_payload_of_any_format_is_stored_as_its_bytes(tmp_path):
    """A view in two dimensions is stored, and one of integers filled, as the bytes they hold."""
    store = open_store(tmp_path)
    item = record(1, 4800)
    shaped = item.payload.cast("B", (40, 120))
    (ref,) = store.append([item._replace(payload=shaped)])
    buffer = memoryview(bytearray(4800)).cast("I")
    store.read_into(ref, item.key, buffer)
    assert bytes(buffer) == bytes(item.payload)


def test_an_empty_batch_touches_nothing(tmp_path):
    """Storing nothing makes no file."""
    store = open_store(tmp_path)
    assert store.append([]) == []
    assert store.segments() == []


def buffers_for(items):
    """Return page-aligned memory for each record."""
    return [memoryview(mmap.mmap(-1, max(1, item.key.length))) for item in items]


def test_many_records_are_read_by_few_calls(tmp_path):
    """Records that lie one behind the other, in any number and size, come back right and share their calls."""
    io = FaultyIO(only="preadv")
    store = open_store(tmp_path, io, segment_bytes=400 * PAGE)
    items = [record(n, 4000 + 100 * n) for n in range(80)]
    refs = store.append(items)
    buffers = buffers_for(items)
    io.calls.clear()
    outcomes = store.read_many([ReadRequest(r, i.key, b) for r, i, b in zip(refs, items, buffers, strict=True)])
    assert outcomes == [None] * 80
    assert [bytes(b[: i.key.length]) for b, i in zip(buffers, items, strict=True)] == [bytes(i.payload) for i in items]
    assert len(io.calls) <= 5


def test_many_records_in_any_order_are_read(tmp_path):
    """The order of requests need not be that of the file, and one record may be asked for twice."""
    store = open_store(tmp_path, segment_bytes=12 * PAGE)
    items = [record(n, 5000) for n in range(9)]
    refs = store.append(items)
    order = [8, 0, 1, 2, 2, 7, 3, 4, 6, 5]
    buffers = buffers_for([items[n] for n in order])
    requests = [ReadRequest(refs[n], items[n].key, buffer) for n, buffer in zip(order, buffers, strict=True)]
    assert store.read_many(requests) == [None] * len(order)
    assert [bytes(buffer[:5000]) for buffer in buffers] == [bytes(items[n].payload) for n in order]
    assert store.read_many([]) == []


def test_a_bad_record_among_many_costs_only_itself(tmp_path):
    """A flipped byte, a wrong key, a cut file: each outcome stands at its own request, the others are read."""
    store = open_store(tmp_path)
    items = [record(n, 5000) for n in range(6)]
    refs = store.append(items)
    path = segment_file(tmp_path, 1)
    flip(path, refs[1].offset + PAGE)
    os.truncate(path, refs[5].offset + PAGE)
    keys = [item.key for item in items]
    keys[3] = keys[3]._replace(generation=9)
    keys[4] = keys[4]._replace(length=4999)
    buffers = buffers_for(items)
    requests = [ReadRequest(ref, key, buffer) for ref, key, buffer in zip(refs, keys, buffers, strict=True)]
    outcomes = [type(outcome) for outcome in store.read_many(requests)]
    nothing = type(None)
    assert outcomes == [nothing, DamagedError, nothing, WrongRecordError, WrongRecordError, DamagedError]
    assert [bytes(buffers[n][:5000]) for n in (0, 2)] == [bytes(items[n].payload) for n in (0, 2)]


def test_bytes_behind_the_payload_are_left_alone(tmp_path):
    """A read fills exactly the payload's bytes of a larger buffer, aligned or not."""
    store = open_store(tmp_path)
    item = record(1, 5000)
    (ref,) = store.append([item])
    for start in (0, 7):
        memory = memoryview(mmap.mmap(-1, 4 * PAGE))
        memory[:] = b"\xaa" * len(memory)
        store.read_into(ref, item.key, memory[start:])
        assert bytes(memory[start : start + 5000]) == bytes(item.payload)
        assert set(memory[start + 5000 :]) == {0xAA}
        assert set(memory[:start]) <= {0xAA}


def test_aligned_and_unaligned_payloads_store_the_same_bytes(tmp_path):
    """Where the payload lies in memory makes no difference to the file."""
    store = open_store(tmp_path)
    item = record(1, 9000)
    memory = memoryview(mmap.mmap(-1, 4 * PAGE))
    memory[:9000] = item.payload
    shifted = memoryview(bytearray(9003))[3:]
    shifted[:] = item.payload
    refs = store.append([item._replace(payload=memory[:9000]), item._replace(payload=shifted)])
    assert [read(store, ref, item.key) for ref in refs] == [bytes(item.payload)] * 2


def test_a_buffer_that_is_too_small_or_not_writable_is_refused(tmp_path):
    """The caller's mistake is a ValueError, not a miss."""
    store = open_store(tmp_path)
    item = record(1, 100)
    (ref,) = store.append([item])
    for buffer in (memoryview(bytearray(99)), memoryview(bytes(100))):
        with pytest.raises(ValueError, match="buffer"):
            store.read_into(ref, item.key, buffer)
        with pytest.raises(ValueError, match="buffer"):
            store.read_many([ReadRequest(ref, item.key, buffer)])


def test_a_payload_that_is_not_its_fingerprint_is_not_stored(tmp_path):
    """Memory that went bad is named by its index and nothing of the batch reaches the disk."""
    store = open_store(tmp_path)
    bad = record(2)._replace(payload=memoryview(b"x" * 10_000))
    with pytest.raises(SourceDamagedError) as caught:
        store.append([record(1), bad])
    assert caught.value.index == 1
    assert store.file_bytes == 0


def test_a_payload_of_another_length_than_its_key_is_refused(tmp_path):
    """The payload has exactly the bytes that its key says."""
    item = record(1)
    with pytest.raises(ValueError, match="payload"):
        open_store(tmp_path).append([item._replace(key=item.key._replace(length=3))])


@pytest.mark.parametrize(
    ("field", "value"),
    [("cell", 1 << 64), ("slot", -1), ("generation", 1 << 64), ("kind", 256), ("layout", b"short"), ("length", -1)],
)
def test_a_key_that_no_header_can_hold_is_refused_by_name(tmp_path, field, value):
    """The error of an impossible key names its field."""
    item = record(1)
    store = open_store(tmp_path)
    with pytest.raises(ValueError, match=field):
        store.append([item._replace(key=item.key._replace(**{field: value}))])


def test_a_full_segment_is_followed_by_the_next(tmp_path):
    """Records fill a segment up to its size and never span two; a larger one gets a file of its own."""
    store = open_store(tmp_path, segment_bytes=10 * PAGE)
    items = [record(1, 3 * PAGE), record(2, 3 * PAGE), record(3, 3 * PAGE), record(4, 20 * PAGE), record(5, PAGE)]
    refs = store.append(items)
    assert [ref.segment for ref in refs] == [1, 1, 2, 3, 4]
    assert [info.file_bytes // PAGE for info in store.segments()] == [9, 5, 22, 3]
    assert [info.closed for info in store.segments()] == [True, True, True, False]
    assert [read(store, ref, item.key) for ref, item in zip(refs, items, strict=True)] == [
        bytes(item.payload) for item in items
    ]


def test_file_sizes_are_what_the_quota_counts(tmp_path):
    """The bytes the store reports are the sizes of its files."""
    store = open_store(tmp_path, segment_bytes=64 << 10)
    for n in range(10):
        store.append([record(n, 11_111)])
    assert store.file_bytes == sum(path.stat().st_size for path in (tmp_path / "data").iterdir())


def test_the_quota_holds_to_the_byte(tmp_path):
    """A batch that fits exactly is stored; with one byte less nothing of it is."""
    need = PAGE + 2 * record_bytes(5000)
    tight = open_store(tmp_path, quota_bytes=need - 1)
    with pytest.raises(QuotaExceededError) as caught:
        tight.append([record(1, 5000), record(2, 5000)])
    assert (caught.value.needed, caught.value.free) == (need, need - 1)
    assert tight.segments() == []
    tight.quota_bytes = need
    assert len(tight.append([record(1, 5000), record(2, 5000)])) == 2


def test_dead_bytes_count_until_their_file_is_gone(tmp_path):
    """Dropping makes bytes dead, not free; a whole dead segment that is closed frees them."""
    store = open_store(tmp_path, segment_bytes=4 * PAGE, quota_bytes=9 * PAGE)
    refs = [store.append([record(n, PAGE)])[0] for n in range(3)]
    assert store.drop(refs[:1]) == 2 * PAGE
    assert store.unlink_dead() == [1]
    assert not segment_file(tmp_path, 1).exists()
    store.append([record(9, PAGE)])
    with pytest.raises(QuotaExceededError):
        store.append([record(10, PAGE)])


def test_dropping_twice_counts_once(tmp_path):
    """A second drop of a reference, or of one never stored, frees nothing and kills no live record."""
    store = open_store(tmp_path, segment_bytes=8 * PAGE)
    first, second = store.append([record(1, PAGE), record(2, PAGE)])
    assert store.drop([first, first, BlobRef(1, 77 * PAGE, 5), BlobRef(99, PAGE, 5)]) == 2 * PAGE
    assert store.segments()[0].live_bytes == 2 * PAGE
    store.append([record(3, 6 * PAGE)])
    assert store.unlink_dead() == []
    assert read(store, second, record(2, PAGE).key) == bytes(record(2, PAGE).payload)


def test_the_open_segment_is_never_removed(tmp_path):
    """A segment that is still appended to stays, though nothing in it is alive."""
    store = open_store(tmp_path)
    store.drop(store.append([record(1)]))
    assert store.unlink_dead() == []
    assert segment_file(tmp_path, 1).exists()


def test_what_is_adopted_after_a_restart_is_read_and_appended_behind(tmp_path):
    """Live records stay readable, the tail nobody claims is used again, and the number of the segment is kept."""
    store = open_store(tmp_path)
    items = [record(n) for n in range(3)]
    refs = store.append(items)
    again = open_store(tmp_path)
    assert again.adopt(refs[:2]) == []
    (new,) = again.append([record(9)])
    assert new.segment == refs[2].segment
    assert new.offset == refs[2].offset
    assert read(again, refs[1], items[1].key) == bytes(items[1].payload)
    with pytest.raises(WrongRecordError):
        read(again, refs[2], items[2].key)
    assert [found.key.slot for found in again.scan()] == [0, 1, 9]


def test_nothing_is_changed_before_the_live_records_are_named(tmp_path):
    """A directory of an earlier run can be read and scanned, but not appended to or cleaned, before adoption."""
    (ref,) = open_store(tmp_path).append([record(1)])
    store = open_store(tmp_path)
    assert read(store, ref, record(1).key) == bytes(record(1).payload)
    for change in (lambda: store.append([record(2)]), lambda: store.drop([ref]), store.unlink_dead):
        with pytest.raises(NotAdoptedError, match="adopt"):
            change()
    assert segment_file(tmp_path, ref).stat().st_size == store.file_bytes


def test_references_without_their_bytes_are_named_at_adoption(tmp_path):
    """A file removed, or cut short, while the daemon was down shows at once, reference by reference."""
    store = open_store(tmp_path, segment_bytes=8 * PAGE)
    refs = [store.append([record(n, 5 * PAGE)])[0] for n in range(3)]
    segment_file(tmp_path, 1).unlink()
    os.truncate(segment_file(tmp_path, 2), 4 * PAGE)
    again = open_store(tmp_path, segment_bytes=8 * PAGE)
    assert again.adopt(refs) == refs[:2]
    assert read(again, refs[2], record(2, 5 * PAGE).key) == bytes(record(2, 5 * PAGE).payload)


def test_segment_numbers_are_not_used_twice(tmp_path):
    """The number of a removed segment never comes back, also after a restart with nothing alive."""
    store = open_store(tmp_path, segment_bytes=4 * PAGE)
    refs = [store.append([record(n, PAGE)])[0] for n in range(3)]
    store.drop(refs)
    store.unlink_dead()
    again = open_store(tmp_path, segment_bytes=4 * PAGE)
    again.adopt([])
    again.unlink_dead()
    assert again.append([record(5, 9 * PAGE)])[0].segment >= refs[-1].segment


@pytest.mark.hostile("DI09")
def test_a_newer_version_is_refused_before_anything_is_touched(tmp_path):
    """A segment of a newer version stops the opening and stays as it is."""
    import crc32c

    (ref,) = open_store(tmp_path).append([record(1)])
    path = segment_file(tmp_path, ref)
    page = bytearray(path.read_bytes()[:PAGE])
    page[8] = 2
    page[-4:] = crc32c.crc32c(bytes(page[:-4])).to_bytes(4, "little")
    overwrite(path, 0, page)
    before = path.read_bytes()
    with pytest.raises(NewerVersionError, match="version"):
        open_store(tmp_path)
    assert path.read_bytes() == before


@pytest.mark.hostile("OR05")
def test_segments_of_another_log_are_kept_and_not_believed(tmp_path):
    """Files of another log are counted, never read as ours and never removed."""
    (ref,) = open_store(tmp_path, log_id=b"another log id..").append([record(1)])
    store = open_store(tmp_path)
    assert store.segments()[0].header is HeaderState.FOREIGN
    with pytest.raises(WrongRecordError, match="another log"):
        read(store, ref, record(1).key)
    store.adopt([])
    (mine,) = store.append([record(2)])
    assert mine.segment == ref.segment + 1
    assert store.unlink_dead() == []
    assert segment_file(tmp_path, ref).exists()


def test_a_segment_whose_making_was_cut_off_is_removed(tmp_path):
    """A file without a header, left by a crash, holds nothing and is cleaned."""
    open_store(tmp_path)
    segment_file(tmp_path, 1).touch()
    segment_file(tmp_path, 2).write_bytes(bytes(3 * PAGE))
    segment_file(tmp_path, 3).touch()
    store = open_store(tmp_path)
    store.adopt([])
    assert store.append([record(1)])[0].segment == 4
    assert store.unlink_dead() == [1, 2, 3]


def test_v49_without_direct_io_everything_works_buffered(tmp_path):
    """Where the file system refuses the flag the probe says so and the same bytes come back (V49)."""
    io = NoDirectIO()
    store = open_store(tmp_path, io)
    assert not store.direct
    item = record(1, 3_098_112)
    (ref,) = store.append([item])
    assert read(store, ref, item.key) == bytes(item.payload)
    assert io.refused == 1


def test_v49_a_file_that_refuses_direct_io_later_is_read_buffered(tmp_path):
    """Whatever the probe found, a read that is refused for its flag is made again without it (V49)."""
    writer = open_store(tmp_path)
    if not writer.direct:
        pytest.skip("the file system of the temporary directory has no direct I/O")
    (ref,) = writer.append([record(1)])
    io = FaultyIO()
    store = open_store(tmp_path, io)
    io.real = NoDirectIO()
    assert read(store, ref, record(1).key) == bytes(record(1).payload)
    assert io.real.refused == 1


def test_a_log_id_of_another_size_is_refused(tmp_path):
    """The log id is 16 bytes; anything else is the caller's mistake."""
    with pytest.raises(ValueError, match="log_id"):
        DiskStore.open(str(tmp_path), b"short", quota_bytes=1)


def test_a_directory_that_can_not_be_used_is_named(tmp_path):
    """A directory that does not exist, or a file in its place, is one typed error."""
    with pytest.raises(DirectoryError, match="data"):
        open_store(tmp_path / "nowhere")
    (tmp_path / "data").write_text("a file")
    with pytest.raises(DirectoryError, match="data"):
        open_store(tmp_path)


def test_many_threads_read_while_one_appends(tmp_path):
    """Reads from several threads are right while batches are stored."""
    store = open_store(tmp_path, segment_bytes=256 << 10)
    stored = [(store.append([record(n)])[0], record(n)) for n in range(8)]
    failures = []

    def reader():
        for ref, item in stored * 5:
            if read(store, ref, item.key) != bytes(item.payload):
                failures.append(ref)

    threads = [threading.Thread(target=reader) for _ in range(4)]
    for thread in threads:
        thread.start()
    for n in range(10):
        store.append([record(100 + n)])
    for thread in threads:
        thread.join()
    assert failures == []
