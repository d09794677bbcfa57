import os
import random

import pytest
import xxhash

from kvledger.errors import CallerError
from kvledger.memfd import DescriptorError
from kvledger.shm import Ring
from kvledger_storage import copying
from kvledger_storage.arena import Arena
from kvledger_storage.copying import CHUNK_BYTES, RangeError, SlotWriter, copy_slot, fill_slots, hash_slot
from kvledger_storage.ring import RingReader
from support.shm import KIB, identity

MIB = 1 << 20


@pytest.fixture
def staged():
    """Give a ring with 64 KiB of noise, its reader, and the noise."""
    noise = random.Random(5).randbytes(64 * KIB)
    ring = Ring(64 * KIB)
    ring.buffer(ring.take(64 * KIB))[:] = noise
    reader = RingReader.accept(os.dup(ring.fd), ring.size, cap_bytes=MIB)
    yield ring, reader, noise
    reader.close()
    ring.close()


def test_object_that_comes_in_ranges_has_the_fingerprint_of_the_whole(arena, staged):
    """Ranges put in order end as one object whose digest is the canonical XXH3-128 of its bytes."""
    _, reader, noise = staged
    slot = SlotWriter(arena, 8192, 10_000)
    for start, length in ((0, 1), (1, 4095), (4096, 5000), (9096, 904)):
        digest = slot.copy_and_hash(reader, 20_000 + start, start, length)
    assert slot.written == slot.length == 10_000
    assert digest == xxhash.xxh3_128(noise[20_000:30_000]).digest()
    assert bytes(arena.view(8192, 10_000)) == noise[20_000:30_000]
    assert bytes(arena.view(18_192, 100)) == bytes(100)


def test_whole_objects_are_filled_by_one_call(arena, staged, monkeypatch):
    """Objects that lie side by side in the ring arrive in slots apart, each with its own fingerprint, by one read."""
    _, reader, noise = staged
    calls = []
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda *given: calls.append(given) or real(*given))
    slots = [arena.view(8192, 5000), arena.view(0, 4096), arena.view(20_480, 1)]
    digests = fill_slots(slots, reader, 100)
    assert len(calls) == 1
    assert digests == [xxhash.xxh3_128_digest(noise[a:b]) for a, b in ((100, 5100), (5100, 9196), (9196, 9197))]
    assert [bytes(slot) for slot in slots] == [noise[100:5100], noise[5100:9196], noise[9196:9197]]
    with pytest.raises(CallerError, match="leaves a ring"):
        fill_slots(slots, reader, 64 * KIB - 100)


def test_reads_that_stop_short_are_taken_up_again(arena, staged, monkeypatch):
    """Whole objects arrive whole also where the kernel gives less than was asked for."""
    _, reader, noise = staged
    real = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, views, at: real(fd, [views[0][: max(1, len(views[0]) // 2)]], at))
    slots = [arena.view(0, 5000), arena.view(8192, 300)]
    assert fill_slots(slots, reader, 7) == [xxhash.xxh3_128_digest(noise[a:b]) for a, b in ((7, 5007), (5007, 5307))]


def test_digest_is_the_canonical_big_endian_form(arena):
    """The 16 bytes are the 128-bit number with its most significant byte first, on every machine."""
    arena.view(0, 3)[:] = b"abc"
    assert hash_slot(arena, 0, 3) == xxhash.xxh3_128(b"abc").intdigest().to_bytes(16, "big")
    assert hash_slot(arena, 0, 3).hex() == "06b05ab6733a618578af5f94892f3950"


def test_objects_longer_than_a_chunk_are_whole():
    """Copying and hashing in chunks equals doing it at once, with a last chunk of one byte."""
    length = 2 * CHUNK_BYTES + 1
    pages = -(-length // 4096) * 4096
    noise = random.Random(6).randbytes(MIB) * 8 + b"!"
    source, target = Arena.create(identity(1), pages), Arena.create(identity(2), pages + 4096)
    with Ring(length) as ring:
        ring.buffer(ring.take(length))[:] = noise
        reader = RingReader.accept(os.dup(ring.fd), ring.size, cap_bytes=64 * MIB)
        digest = SlotWriter(source, 0, length).copy_and_hash(reader, 0, 0, length)
        reader.close()
    assert digest == xxhash.xxh3_128(noise).digest()
    assert copy_slot(source, 0, target, 4096, length) == digest == hash_slot(target, 4096, length)
    assert target.view(4096, length) == noise
    source.close()
    target.close()


@pytest.mark.parametrize(
    ("object_offset", "length", "field"),
    [
        (0, 10, "object_offset"),
        (101, 10, "object_offset"),
        (100, 901, "length"),
        (100, 0, "length"),
        (100, -5, "length"),
    ],
)
def test_range_that_does_not_continue_the_object_is_refused(arena, staged, object_offset, length, field):
    """A repeated, skipping, oversized or empty range is refused, and the object can still be finished rightly."""
    _, reader, noise = staged
    slot = SlotWriter(arena, 0, 1000)
    slot.copy_and_hash(reader, 0, 0, 100)
    with pytest.raises(RangeError) as refusal:
        slot.copy_and_hash(reader, 0, object_offset, length)
    assert refusal.value.field == field
    assert slot.copy_and_hash(reader, 100, 100, 900) == xxhash.xxh3_128(noise[:1000]).digest()


def test_range_that_fails_may_be_put_again(arena, staged):
    """A range outside the ring leaves the fingerprint as it was, so a right one can follow."""
    _, reader, noise = staged
    slot = SlotWriter(arena, 0, 200)
    slot.copy_and_hash(reader, 0, 0, 100)
    with pytest.raises(CallerError, match="leaves a ring"):
        slot.copy_and_hash(reader, 64 * KIB - 10, 100, 100)
    assert slot.copy_and_hash(reader, 100, 100, 100) == xxhash.xxh3_128(noise[:200]).digest()


class _Failing(RingReader):
    """A ring that can not be read at one offset, the first time."""

    failed = False

    def read_into(self, target, offset):
        """Read, but fail once at 8192."""
        if offset == 8192 and not self.failed:
            self.failed = True
            raise DescriptorError("swapped out", field="ring")
        super().read_into(target, offset)


def test_range_that_fails_half_way_may_be_put_again(arena, staged, monkeypatch):
    """When the third chunk of a range can not be read, putting the whole range again gives the right fingerprint."""
    monkeypatch.setattr(copying, "CHUNK_BYTES", 4096)
    ring, _, noise = staged
    reader = _Failing.accept(os.dup(ring.fd), ring.size, cap_bytes=MIB)
    slot = SlotWriter(arena, 0, 20_000)
    with pytest.raises(DescriptorError, match="swapped out"):
        slot.copy_and_hash(reader, 0, 0, 20_000)
    assert slot.written == 0
    assert slot.copy_and_hash(reader, 0, 0, 20_000) == xxhash.xxh3_128(noise[:20_000]).digest()
    reader.close()


class _Scribbler(RingReader):
    """A ring whose client overwrites every chunk right after the worker has read it."""

    def read_into(self, target, offset):
        """Read, then change what was read."""
        super().read_into(target, offset)
        os.pwrite(self._fd, b"\xff" * len(target), offset)


@pytest.mark.hostile("BY07")
def test_source_that_changes_under_the_copy_is_hashed_as_it_was_stored(arena, staged):
    """The fingerprint is that of the bytes in the slot, although the ring has long held others."""
    ring, _, noise = staged
    slot = SlotWriter(arena, 0, 64 * KIB)
    digest = slot.copy_and_hash(_Scribbler.accept(os.dup(ring.fd), ring.size, cap_bytes=MIB), 0, 0, 64 * KIB)
    assert digest == hash_slot(arena, 0, 64 * KIB) == xxhash.xxh3_128(noise).digest()
    assert digest != xxhash.xxh3_128(os.pread(ring.fd, 64 * KIB, 0)).digest()


def test_slots_outside_an_arena_are_never_read_or_written(arena):
    """A slot beyond the data area is a fault of the core and raises before a byte moves."""
    with pytest.raises(ValueError, match="leaves"):
        SlotWriter(arena, 60 * KIB, 5 * KIB)
    with pytest.raises(ValueError, match="leaves"):
        copy_slot(arena, 64 * KIB, arena, 0, 1)
    with pytest.raises(ValueError, match="leaves"):
        hash_slot(arena, -1, 1)
