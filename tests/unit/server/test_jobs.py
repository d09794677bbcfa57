"""What effects do to real memory and real files."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from types import SimpleNamespace

import msgspec
import pytest
import xxhash

from kvledger.arena_header import ArenaIdentity
from kvledger.errors import LimitError
from kvledger.kinds import Kind
from kvledger.memfd import create_sealed
from kvledger_storage.arena import Arena
from kvledger_storage.disk import OsBlobIO
from kvledger_storage.disk.store import DiskStore
from kvledgerd.core.commands import ArenaFailed, ArenaMade, Copied, RestoreDone, RestoreLate, Verified, Written
from kvledgerd.core.decision import (
    ArchiveSegments,
    ClearArena,
    CopyIn,
    CopyRange,
    DiskRead,
    DiskWrite,
    DropBlobs,
    MakeArena,
    ReadRecord,
    RetireSegments,
    SetGenerations,
    VerifySlots,
    WriteRecord,
)
from kvledgerd.keeper.notify import Notifier
from kvledgerd.loop.interest import Interest
from kvledgerd.memory.arenas import ArenaTable
from kvledgerd.memory.rings import RingTable
from kvledgerd.tenants import User, tenant_digest
from kvledgerd.workers import background, memory_jobs
from kvledgerd.workers.background import Background
from kvledgerd.workers.disk_jobs import DiskJobs
from kvledgerd.workers.effects import EffectCarrier
from kvledgerd.workers.memory_jobs import ArenaMaker, SlotFiller
from kvledgerd.workers.room import WriteRoom
from kvledgerd.workers.workers import Workers
from support.shell import until

SIZE = 64 << 10
DATA = bytes(range(256)) * 32
LAYOUT = bytes(32)
CHAIN = bytes(32)


def fingerprint(data: bytes) -> bytes:
    """Return the fingerprint that a slot with these bytes has."""
    return xxhash.xxh3_128(data).digest()


class Bench:
    """One arena, one ring on connection 1, a disk store, and the carrier over them."""

    def __init__(self, directory):
        self.answers = []
        self.arenas, self.rings = ArenaTable(), RingTable(cap_bytes=SIZE, tenant_bytes=SIZE, user_bytes=SIZE)
        self.arena = Arena.create(
            ArenaIdentity(bytes(16), bytes(16), 1, tenant_digest("default"), Kind.COMPRESSED_KV), SIZE
        )
        self.arenas.add(self.arena)
        self.ring = create_sealed("ring", SIZE)
        os.pwrite(self.ring, DATA, 0)
        self.rings.accept(1, User("default", 0), os.dup(self.ring), SIZE)
        self.store = DiskStore.open(str(directory), bytes(16), quota_bytes=1 << 24)
        self.moved = []
        self.log = SimpleNamespace(
            archive_through=lambda place: self.moved.append(("archive", place)),
            retire_through=lambda place: self.moved.append(("retire", place)),
        )
        self.times = [0.0] * 6

    def begin(self):
        """Start the workers; on the loop."""
        self.workers = Workers(self.answers.append, copies=2, reads=1)
        maker = ArenaMaker(self.arenas, Notifier(None), bytes(16), bytes(16))
        disk = DiskJobs(self.store, self.arenas, 30.0, clock=self.times.pop)
        self.interest = Interest()
        self.interest.join(1, (7,))
        self.woken = []
        self.room = WriteRoom(lambda: self.woken.append(True))
        self.background = Background(
            self.workers, disk, self.answers.append, self.interest, self.room, pieces=1, bytes_max=1 << 20
        )
        parts = (
            self.rings,
            SlotFiller(self.arenas),
            maker,
            SimpleNamespace(),
            self.background,
            self.moved.append,
            self.log,
        )
        self.carrier = EffectCarrier(self.answers.append, self.workers, *parts)

    async def answer(self, effect):
        """Carry an effect out and return its answer."""
        before = len(self.answers)
        self.carrier.carry(effect)
        await until(lambda: len(self.answers) > before)
        return self.answers[-1]

    def close(self):
        """Let go of everything."""
        self.workers.close()
        self.rings.drop(1)
        os.close(self.ring)
        for number in (1, 2):
            if number == 1 or len(self.arenas) > 1:
                os.close(self.arenas.readable(number))
                self.arenas[number].close()


@pytest.fixture
def bench(tmp_path):
    """Give a bench whose workers have not begun; its files are made here, where no loop runs."""
    made = Bench(tmp_path)
    yield made
    made.close()


def part(offset: int, length: int, *, last: bool, ring_offset: int | None = None) -> CopyRange:
    """Return a range of object 3, whose slot begins at 8,192."""
    return CopyRange(3, offset if ring_offset is None else ring_offset, 1, 8192, offset, length, last)


@pytest.mark.asyncio
async def test_puts_are_copied_and_hashed(bench):
    """Ranges of several puts arrive in their slot, and the last one answers with the fingerprint of all."""
    bench.begin()
    first = await bench.answer(CopyIn(1, 9, 1, (part(0, 5000, last=False),)))
    second = await bench.answer(CopyIn(2, 9, 1, (part(5000, 3192, last=True),)))

    assert first == Copied(1)
    assert second == Copied(2, ((3, fingerprint(DATA)),))
    assert bytes(bench.arena.view(8192, 8192)) == DATA


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("connection", "wrong", "says"),
    [
        (2, part(0, 100, last=True), "has no ring"),
        (1, part(0, 100, last=True, ring_offset=SIZE - 10), "leaves a ring"),
        (1, part(700, 100, last=True), "begins at 700"),
    ],
    ids=["no ring", "out of the ring", "out of order"],
)
async def test_impossible_puts_are_answered_with_the_reason(bench, connection, wrong, says):
    """A put that can not be carried out is answered with why, and with no fingerprint."""
    bench.begin()
    found = await bench.answer(CopyIn(1, 9, connection, (wrong,)))

    assert found.fingerprints == ()
    assert says in found.error


@pytest.mark.asyncio
async def test_reserved_anew_means_hashed_anew(bench):
    """What an abandoned unit left in a slot is no part of the next object's fingerprint."""
    bench.begin()
    await bench.answer(CopyIn(1, 9, 1, (part(0, 5000, last=False),)))
    found = await bench.answer(CopyIn(2, 10, 1, (part(0, 256, last=True),)))

    assert found.fingerprints == ((3, fingerprint(DATA[:256])),)


@pytest.mark.asyncio
async def test_generations_move_at_once(bench):
    """Generations stand in the arena's table when `carry` returns."""
    bench.begin()
    bench.carrier.carry(SetGenerations(((1, 8192, 4096, 77), (1, 4096, 100, 78))))
    table = os.pread(bench.arena.fd, 24, bench.arena.header.table_offset)

    assert [int.from_bytes(table[at : at + 8], "little") for at in (0, 8, 16)] == [0, 78, 77]


@pytest.mark.asyncio
async def test_slots_are_verified_as_they_are(bench):
    """Verification answers with the fingerprints of what lies in the slots now, in their order."""
    bench.begin()
    bench.arena.view(0, 4)[:] = b"kvle"
    found = await bench.answer(VerifySlots(4, ((1, 0, 4), (1, 4096, 100))))

    assert found == Verified(4, (fingerprint(b"kvle"), fingerprint(bytes(100))))


@pytest.mark.asyncio
async def test_slots_that_can_not_be_hashed_count_as_damaged(bench):
    """A slot outside of its arena is answered with an empty fingerprint, which is nobody's."""
    bench.begin()
    assert await bench.answer(VerifySlots(4, ((1, 0, SIZE + 1), (1, 0, 4)))) == Verified(4, (b"", b""))


@pytest.mark.asyncio
async def test_slots_of_an_arena_that_is_gone_count_as_damaged(bench):
    """A job about an arena that is not here is answered like any other."""
    bench.begin()
    assert await bench.answer(VerifySlots(4, ((9, 0, 4),))) == Verified(4, (b"",))


@pytest.mark.asyncio
async def test_a_flood_of_one_kind_leaves_the_others_going(bench, monkeypatch):
    """While a hundred verifications of rows hang, one of a window is answered; one of both waits for its rows only."""
    bench.begin()
    await bench.answer(MakeArena(5, 2, "default", Kind.SWA_WINDOW, SIZE))
    gate = threading.Event()

    def hash_slot(arena, offset, length):
        assert arena.arena_id == 2 or gate.wait(90)
        return fingerprint(bytes(arena.view(offset, length)))

    monkeypatch.setattr(memory_jobs, "hash_slot", hash_slot)
    for job in range(100, 200):
        bench.carrier.carry(VerifySlots(job, ((1, 0, 4),)))
    bench.carrier.carry(VerifySlots(200, ((1, 0, 4), (2, 0, 4))))
    assert await bench.answer(VerifySlots(6, ((2, 0, 4),))) == Verified(6, (fingerprint(bytes(4)),))
    assert bench.workers.running()["jobs_hash"] == 101
    gate.set()
    await until(lambda: not bench.workers.running()["jobs_hash"])


@pytest.mark.asyncio
async def test_an_arena_changes_kind_and_is_cleared(bench):
    """An arena that was cleared holds zeros, bears the job's number on every page, and is one of the new kind."""
    bench.begin()
    bench.arena.view(0, SIZE)[:] = b"x" * SIZE
    assert await bench.answer(ClearArena(77, 1, Kind.SWA_WINDOW)) == ArenaMade(77, 1)
    table = os.pread(bench.arena.fd, 8 * bench.arena.header.pages, bench.arena.header.table_offset)

    assert bytes(bench.arena.view(0, SIZE)) == bytes(SIZE)
    assert {int.from_bytes(table[at : at + 8], "little") for at in range(0, len(table), 8)} == {77}
    assert bench.arenas.kind_of(1) is Kind.SWA_WINDOW


@pytest.mark.asyncio
async def test_arenas_are_made_and_joined(bench):
    """An arena that was made is in the table by the time its answer comes."""
    bench.begin()
    found = await bench.answer(MakeArena(5, 2, "default", Kind.SWA_WINDOW, SIZE))

    assert (found.job, found.arena) == (5, 2)
    assert bench.arenas.of_tenant("default") == {1, 2}


@pytest.mark.asyncio
async def test_arenas_that_can_not_be_made_are_answered(bench):
    """An arena that is larger than the machine is answered with why."""
    bench.begin()
    found = await bench.answer(MakeArena(5, 2, "default", Kind.SWA_WINDOW, 1 << 62))

    assert isinstance(found, ArenaFailed)
    assert found.why


def written(bench: Bench) -> DiskWrite:
    """Return an effect that writes the slot at 8,192 with its manifest."""
    bench.arena.view(8192, 8192)[:] = DATA
    record = WriteRecord(1, 2, 3, Kind.COMPRESSED_KV, 1, 8192, len(DATA), fingerprint(DATA))
    return DiskWrite(6, LAYOUT, 1, 3, (record,), b"manifest")


def read(ref, data: bytes = DATA) -> DiskRead:
    """Return an effect that reads the record back to the start of the arena."""
    return DiskRead(7, LAYOUT, (ReadRecord(Kind.COMPRESSED_KV, ref, 1, 2, 3, 1, 0, len(data), fingerprint(data)),))


@pytest.mark.asyncio
async def test_records_go_to_disk_and_come_back(bench):
    """A record and its manifest are written, and the record is read into another slot with the same bytes."""
    bench.begin()
    found = await bench.answer(written(bench))
    assert len(found.refs) == 2

    assert await bench.answer(read(found.refs[0])) == RestoreDone(7, ("",))
    assert bytes(bench.arena.view(0, len(DATA))) == DATA


@pytest.mark.asyncio
async def test_a_restore_tells_how_far_it_is(bench):
    """Objects and bytes that were read and verified are told until the answer was taken."""
    bench.begin()
    found = await bench.answer(written(bench))
    await bench.answer(read(found.refs[0]))

    assert bench.background.progress(7) == (1, len(DATA))
    bench.interest.ended(7)
    assert bench.background.progress(7) == (0, 0)


@pytest.mark.asyncio
async def test_a_restore_for_a_connection_that_ended_is_not_begun(bench):
    """What the last connection that waited leaves behind is answered, whether it was queued by then or not."""
    bench.begin()
    found = await bench.answer(written(bench))
    bench.interest.leave(1)
    assert await bench.answer(read(found.refs[0])) == RestoreDone(7, ("cancelled: nobody waits for it any more",))

    bench.interest.join(2, (7,))
    gate = threading.Event()
    bench.workers.reads[Kind.COMPRESSED_KV].start(lambda: gate.wait(60) and None, lambda _: None)
    bench.carrier.carry(
        many := msgspec.structs.replace(read(found.refs[0]), records=read(found.refs[0]).records * 2000)
    )
    before = len(bench.answers)
    bench.interest.leave(2)
    gate.set()
    await until(lambda: len(bench.answers) > before)
    errors = bench.answers[-1].errors
    assert len(errors) == len(many.records)
    assert errors[-1] == "cancelled: nobody waits for it any more"


@pytest.mark.asyncio
async def test_a_promotion_is_done_though_nobody_waits(bench):
    """What the daemon brings back ahead of need is nobody's to abandon."""
    bench.begin()
    found = await bench.answer(written(bench))
    bench.interest.leave(1)
    promotion = msgspec.structs.replace(read(found.refs[0]), promotion=True)
    assert await bench.answer(promotion) == RestoreDone(7, ("",))


@pytest.mark.asyncio
async def test_damaged_records_are_told_from_late_ones(bench):
    """A record with other bytes is damaged for good; one that came too late only failed this time."""
    bench.begin()
    found = await bench.answer(written(bench))
    wrong = await bench.answer(read(found.refs[0], DATA[:-1] + b"x"))
    bench.times[:] = [100.0, 100.0, 0.0]
    late = await bench.answer(read(found.refs[0]))

    assert wrong.errors[0].startswith("damaged: ")
    assert late.errors[0].startswith("failed: not read within 30 s")


@pytest.mark.asyncio
async def test_a_write_without_room_waits_for_the_cleaner(bench):
    """A write that does not fit the quota waits, says so, and is answered when room was made for it."""
    bench.begin()
    bench.store.quota_bytes = 0
    bench.carrier.carry(written(bench))
    await until(lambda: len(bench.room) == 1)
    assert bench.room.wanted > len(DATA)
    assert (bench.answers, bench.woken) == ([], [True])

    bench.store.quota_bytes = 1 << 24
    (again,) = bench.room.leave(made=True)
    found = await bench.answer(again)
    assert len(found.refs) == 2
    assert (len(bench.room), bench.room.wanted) == (0, 0)


@pytest.mark.asyncio
async def test_room_is_made_for_all_that_wait(bench):
    """Two writes that wait want room for both, so that neither is tried in vain."""
    bench.begin()
    bench.store.quota_bytes = 0
    bench.carrier.carry(written(bench))
    await until(lambda: len(bench.room) == 1)
    alone = bench.room.wanted
    bench.carrier.carry(msgspec.structs.replace(written(bench), job=99))
    await until(lambda: len(bench.room) == 2)
    assert bench.room.wanted == 2 * alone


@pytest.mark.asyncio
async def test_a_write_for_which_no_room_can_be_made_is_answered(bench):
    """It is answered with why and no reference; and one whose room is always taken by others does not wait for ever."""
    bench.begin()
    bench.store.quota_bytes = 0
    effect = written(bench)
    bench.carrier.carry(effect)
    await until(lambda: len(bench.room) == 1)
    bench.room.leave(made=False)
    found = await bench.answer(effect)
    assert isinstance(found, Written)
    assert (found.refs, "quota_bytes" in found.error) == ((), True)
    for _ in range(16):
        bench.carrier.carry(effect)
        await until(lambda: len(bench.room) == 1)
        bench.room.leave(made=True)
    assert "quota_bytes" in (await bench.answer(effect)).error


@pytest.mark.asyncio
async def test_a_write_that_fails_stops_the_tier(bench, monkeypatch):
    """The next write is refused at once with the reason, until the tier is found to take writes again."""
    bench.begin()

    def broken(*_):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(OsBlobIO, "fdatasync", broken)
        assert "Input/output error" in (await bench.answer(written(bench))).error
        assert not await asyncio.to_thread(bench.store.try_writes)
    assert "takes no writes" in (await bench.answer(written(bench))).error
    assert await asyncio.to_thread(bench.store.try_writes)
    assert (await bench.answer(written(bench))).error == ""


@pytest.mark.asyncio
async def test_a_read_that_hangs_is_given_up_and_answered_late(bench, monkeypatch):
    """The core is told when the time is over; the answer comes when the read ends at last, and not before."""
    monkeypatch.setattr(background, "_LATE_SECONDS", 0.05 - 30.0)
    monkeypatch.setattr(background, "_POLL_SECONDS", 0.01)
    go = threading.Event()
    real = OsBlobIO.preadv

    def hang(self, fd, buffers, offset):
        go.wait(60)
        return real(self, fd, buffers, offset)

    bench.begin()
    found = await bench.answer(written(bench))
    with monkeypatch.context() as patch:
        patch.setattr(OsBlobIO, "preadv", hang)
        assert await bench.answer(read(found.refs[0])) == RestoreLate(7, 30)
        go.set()
        await until(lambda: len(bench.answers) == 3)
    assert bench.answers[-1] == RestoreDone(7, ("",))
    bench.carrier.carry(read(found.refs[0]))
    # A machine that takes its time may have the second one told late, too, but never after its end
    await until(lambda: len(bench.answers) > 3 and bench.answers[-1] == RestoreDone(7, ("",)))
    await asyncio.sleep(0.1)
    assert bench.answers[-1] == RestoreDone(7, ("",))


@pytest.mark.asyncio
async def test_dropped_records_are_given_back(bench):
    """Records that were dropped count as dead; nobody waits for that."""
    bench.begin()
    found = await bench.answer(written(bench))
    bench.carrier.carry(DropBlobs(found.refs))
    await until(lambda: bench.workers.disk.running == 0)

    assert [info.live_bytes for info in bench.store.segments()] == [0]


@pytest.mark.asyncio
async def test_the_log_s_past_is_moved_in_a_worker(bench):
    """Archiving and retiring are carried out in order, off the loop, and nobody waits for them."""
    bench.begin()
    for effect in (ArchiveSegments(9, CHAIN), RetireSegments(5, CHAIN)):
        bench.carrier.carry(effect)
    await until(lambda: bench.workers.disk.running == 0)

    assert bench.moved == [("archive", (9, CHAIN)), ("retire", (5, CHAIN))]


def test_rings_are_capped_by_user_and_by_tenant():
    """What the rings of a uid, and of its tenant, have together is capped; a connection may replace its own."""
    rings = RingTable(cap_bytes=SIZE, tenant_bytes=3 * SIZE, user_bytes=2 * SIZE)
    one, two, other = User("a", 1), User("a", 2), User("b", 1)
    descriptors = [create_sealed("ring", SIZE) for _ in range(6)]
    rings.accept(1, one, descriptors[0], SIZE)
    rings.accept(2, one, descriptors[1], SIZE)
    with pytest.raises(LimitError, match=rf"uid_staging_bytes, {2 * SIZE} of {2 * SIZE} are in use"):
        rings.accept(3, one, descriptors[2], SIZE)
    rings.accept(2, one, descriptors[3], SIZE)
    rings.accept(3, two, descriptors[4], SIZE)
    with pytest.raises(LimitError, match=rf" staging_bytes, {3 * SIZE} of {3 * SIZE} are in use"):
        rings.accept(4, two, descriptors[2], SIZE)
    rings.accept(4, other, descriptors[5], SIZE)
    assert (rings.bytes, rings.of_tenant("a"), rings.of_tenant("b")) == (4 * SIZE, 3 * SIZE, SIZE)
    rings.drop(1)
    rings.accept(5, one, descriptors[2], SIZE)
    for number in (2, 3, 4, 5):
        rings.drop(number)
    assert rings.bytes == 0
