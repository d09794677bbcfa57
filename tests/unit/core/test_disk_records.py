"""Records that were written before: damage becomes a miss once, copies take over, prefixes that lack a part go."""

import pytest

from kvledger.kinds import Kind
from kvledger.verdict import Code
from kvledger.wire.disk_requests import SetScrub
from kvledger.wire.replies import Evicted, Failed, Restored
from kvledger.wire.requests import Evict, Offload, Release, Restore, Status
from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk_events import MANIFEST
from kvledgerd.core.commands import RecordsCopied, RecordsLost, RestoreDone, RestoreLate, SaveDue, Scrubbed, TierNoted
from kvledgerd.core.copies.decide_write import unsaved
from kvledgerd.core.decision import DiskRead
from kvledgerd.core.disk_commands import SeenRecord
from kvledgerd.core.index import DISK_GENERATION
from kvledgerd.snapshots.decode import decode_state
from kvledgerd.snapshots.encode import encode_state
from support.layouts import pick
from support.world import World

PROMPT = list(range(600))
END = 512
LETTERS = "CXST"


class OnDisk:
    """A world with one boundary on disk, and in memory as well if `drop` is false."""

    def __init__(self, *, drop=True, letters=LETTERS):
        self.world = World()
        self.user = self.world.engine()
        self.number = self.user.register(pick(letters))
        self.user.store(self.number, PROMPT, END)
        self.user.offload(self.number, PROMPT, END, drop=drop)
        self.at = self.user.boundary(self.number, PROMPT, END)

    def records(self):
        """Return every record as its header would name it, the manifest last."""
        found = []
        known = self.world.state.layouts[self.number]
        for cell in self.world.state.cells.values():
            for slot in range(len(cell.states)):
                if cell.disk >> slot & 1:
                    generation = cell.word(slot, DISK_GENERATION)
                    ref = BlobRef(cell.word(slot, 6), cell.word(slot, 7), known.length_of(cell, slot))
                    head = (cell.id, slot, generation, known.layout.digest, int(known.slot_kinds[slot]))
                    found.append(SeenRecord(*head, cell.fingerprint(slot), ref))
            if cell.manifest:
                kind = int(Kind.DISK_PREFIX)
                ref = BlobRef(*cell.manifest)
                found.append(SeenRecord(cell.id, MANIFEST, 1, known.layout.digest, kind, b"m" * 16, ref))
        return sorted(found, key=lambda one: one.slot == MANIFEST)

    def scrub(self, records, **fields):
        """Say that these were scrubbed; return how many were wrong."""
        reply = self.world.do(Scrubbed(1, 0, tuple(records), **fields))
        assert isinstance(reply, Evicted)
        return reply.dropped

    def restore(self):
        """Bring it back."""
        return self.user.ask(Restore(self.number, self.at))

    def counters(self):
        """Return the numbers of a status."""
        return self.user.ok(Status()).counters

    def check_replay(self):
        """A replay and a snapshot make the same state."""
        digest = self.world.state.digest()
        assert self.world.replayed().digest() == digest
        assert decode_state(encode_state(self.world.state), self.world.config).digest() == digest


def test_a_manifest_that_is_lost_is_written_once():
    """A boundary whose records are there and whose manifest is gone is written again by one job, however often due."""
    one = OnDisk(drop=False, letters="CM")
    one.world.do(RecordsLost((one.records()[-1].ref,), "the file is gone", "scrub"))
    before = len(one.world.events("offload_started.1"))
    one.world.held = []
    due = SaveDue(tuple(unsaved(one.world.state)))
    one.world.do(due)
    one.world.do(due)
    assert len(one.world.events("offload_started.1")) == before + 1
    one.world.release_effects()
    assert one.records()[-1].slot == MANIFEST


def test_what_is_lost_is_a_miss_once_with_its_reason():
    """A record that is gone is dropped by one event; told again it changes nothing; the look-up names the damage."""
    one = OnDisk()
    seen = one.records()[0]
    for _ in range(2):
        one.world.do(RecordsLost((seen.ref,), "the file is gone", "start"))
    (event,) = one.world.events("records_damaged.1")
    assert event.records == ((seen.cell, seen.slot, "the file is gone"),)
    assert event.found == "start"
    missed = one.user.acquire(one.number, PROMPT)
    assert missed.usable_tokens == 0
    assert Code.BYTES_DAMAGED in {cut.code for cut in missed.cuts}
    assert one.counters()["disk_records_damaged"] == 1
    assert set(one.world.disk) == one.world.records()
    one.user.store(one.number, PROMPT, END)
    one.check_replay()


def test_what_is_in_memory_too_is_still_a_hit():
    """Damage on disk takes nothing from a copy in memory."""
    one = OnDisk(drop=False)
    one.world.do(RecordsLost(tuple(seen.ref for seen in one.records()), "cut short", "scrub"))
    assert one.user.acquire(one.number, PROMPT).usable_tokens == END
    assert one.world.records() == set()
    assert one.world.state.disk_bytes == 0
    assert one.world.disk == {}


def test_a_manifest_that_is_lost_takes_no_object_with_it():
    """Its boundary can still be restored, and to write it to disk again writes the manifest alone."""
    one = OnDisk()
    manifest = one.records()[-1]
    one.world.do(RecordsLost((manifest.ref,), "gone", "scrub"))
    assert isinstance(one.restore(), Restored)
    again = one.user.ok(Offload(one.number, one.at, drop_memory=False))
    assert again.objects == 0
    assert any(cell.manifest for cell in one.world.state.cells.values())


@pytest.mark.parametrize("field", ["layout", "kind", "generation", "fingerprint"])
def test_a_record_of_another_identity_is_damage(field):
    """A sound record whose header names another layout, kind, reservation or fingerprint is dropped, and named."""
    one = OnDisk()
    seen = one.records()[0]
    other = {"layout": b"o" * 32, "kind": int(Kind.SWA_WINDOW), "generation": 99, "fingerprint": b"f" * 16}[field]
    wrong = SeenRecord(*(other if name == field else getattr(seen, name) for name in SeenRecord.__struct_fields__))
    assert one.scrub([wrong]) == 1
    (event,) = one.world.events("records_damaged.1")
    assert field in event.records[0][2]
    assert isinstance(one.restore(), Failed)


def test_what_is_dead_or_elsewhere_is_no_business_of_the_scrubber():
    """Damage in the place of a record that was evicted or moved meanwhile changes nothing."""
    one = OnDisk()
    seen = one.records()
    elsewhere = [SeenRecord(*(*_fields(s)[:6], BlobRef(9, 4096, s.ref.length), "torn")) for s in seen]
    one.user.ok(Evict(Kind.DISK_PREFIX, one.number, one.at))
    gone = [s for s in seen if s.ref not in {t.ref for t in one.records()}]
    assert gone
    assert one.scrub([*elsewhere, *(SeenRecord(*_fields(s)[:7], "torn") for s in gone)]) == 0
    assert one.world.events("records_damaged.1") == []


def _fields(seen):
    return tuple(getattr(seen, name) for name in SeenRecord.__struct_fields__)


def moved(one, records):
    """Copy records to another segment of the world's disk, as the cleaner does."""
    copies = []
    for seen in records:
        ref = BlobRef(2, seen.ref.offset, seen.ref.length)
        one.world.disk[2, ref.offset] = one.world.disk[1, seen.ref.offset]
        copies.append((seen, ref))
    return RecordsCopied(1, tuple(copies))


def test_copies_take_the_place_of_their_records():
    """What was copied is named there by one event, restored from there, and the old places are given back."""
    one = OnDisk()
    one.world.do(moved(one, one.records()))
    assert {segment for segment, _ in one.world.records()} == {2}
    assert set(one.world.disk) == one.world.records()
    one.check_replay()
    assert isinstance(one.restore(), Restored)
    assert one.user.acquire(one.number, PROMPT).usable_tokens == END


def test_copies_in_vain_are_given_back():
    """Copies of records that were evicted, or are being restored, are dropped, and what the state names stays."""
    one = OnDisk()
    command = moved(one, one.records())
    one.world.held = []
    one.user.ask(Restore(one.number, one.at, wait_ms=0))
    held, one.world.held = one.world.held, None
    assert one.world.do(command).dropped == 1  # the manifest, which no restore reads
    assert set(one.world.disk) == one.world.records()
    for effect in held:
        one.world.run(effect)
    acquired = one.user.acquire(one.number, PROMPT)
    assert acquired.usable_tokens == END
    one.user.ok(Release(acquired.lease))
    command = moved(one, one.records()[:-1])
    for kind in (Kind.COMPRESSED_KV, Kind.INDEXER_STATE, Kind.SWA_WINDOW, Kind.UNCOMPRESSED_TAIL):
        one.user.ok(Evict(kind, one.number, one.at, disk=True))
    assert one.world.do(command).dropped == 0
    assert set(one.world.disk) == one.world.records()


def test_a_prefix_that_lacks_a_part_goes_after_two_passes():
    """One pass remembers it, the next one gives it up, by event, and its records are given back."""
    one = OnDisk()
    rows, manifest = one.records()[0], one.records()[-1]
    one.world.do(RecordsLost((rows.ref,), "gone", "scrub"))
    one.scrub([manifest], ended_ms=1000)
    assert one.world.state.tier.lacked == (manifest.cell,)
    assert one.world.events("prefix_forgotten.1") == []
    one.check_replay()
    one.scrub([manifest], ended_ms=2000)
    assert one.world.reasons("prefix_forgotten.1") == ["scrub: a part of it is nowhere"]
    assert set(one.world.disk) == one.world.records()
    assert one.world.state.tier.lacked == ()


def test_a_prefix_that_was_completed_meanwhile_stays():
    """Who stores the same prompt again between two passes keeps it."""
    one = OnDisk()
    rows, manifest = one.records()[0], one.records()[-1]
    one.world.do(RecordsLost((rows.ref,), "gone", "scrub"))
    one.scrub([manifest], ended_ms=1000)
    one.user.store(one.number, PROMPT, END)
    one.scrub([manifest], ended_ms=2000)
    assert one.world.events("prefix_forgotten.1") == []


def test_the_scrubber_goes_on_where_it_was():
    """Place, passes, pause and wish outlive a restart, in replay and snapshot alike."""
    one = OnDisk()
    one.world.do(Scrubbed(3, 8192, ()))
    one.user.ok(SetScrub(paused=True, now=True))
    one.check_replay()
    one.world.restart()
    tier = one.world.state.tier
    assert (tier.segment, tier.offset, tier.paused, tier.due) == (3, 8192, True, True)
    one.world.do(Scrubbed(4, 0, (), ended_ms=77_000))
    assert (tier.segment, tier.offset, tier.passes, tier.ended_ms, tier.due) == (0, 0, 1, 77_000, False)


def test_a_tier_that_takes_no_writes_says_so():
    """It is one event, an offload is refused with the reason, status has it, look-ups and restores go on."""
    one = OnDisk()
    for _ in range(2):
        one.world.do(TierNoted("data/0000000001.seg: No space left on device"))
    assert len(one.world.events("tier_changed.1")) == 1
    refused = one.user.ask(Offload(one.number, one.at, drop_memory=False))
    assert (refused.code, refused.field) == ("capacity", "disk")
    assert "No space left" in refused.message
    report = one.user.ok(Status())
    assert (report.counters["disk_read_only"], "No space" in report.notes["disk_read_only"]) == (1, True)
    assert isinstance(one.restore(), Restored)
    one.check_replay()
    one.world.do(TierNoted(""))
    assert one.user.ok(Status()).notes == {}
    one.user.ok(Offload(one.number, one.at, drop_memory=False))


def test_a_read_that_hangs_is_a_miss_and_keeps_its_slots():
    """Who waits is told why, nothing is published when it ends at last, and only then are its slots free again."""
    one = OnDisk()
    one.world.held = []
    one.user.ask(Restore(one.number, one.at, wait_ms=0))
    (read,) = [effect for effect in one.world.held if isinstance(effect, DiskRead)]
    one.world.held = None
    live = {key: pool.live_bytes for key, pool in one.world.state.pools.items()}
    one.world.do(RestoreLate(read.job, 30))
    assert "did not end within 30 s" in one.world.state.outcomes[read.job].error
    assert {key: pool.live_bytes for key, pool in one.world.state.pools.items()} == live
    missed = one.user.acquire(one.number, PROMPT, restore=False)
    assert Code.ON_DISK in {cut.code for cut in missed.cuts}
    one.check_replay()
    one.world.do(RestoreDone(read.job, ("",) * len(read.records)))
    assert one.world.state.jobs == {}
    assert not any(pool.live_bytes for pool in one.world.state.pools.values())
    assert one.user.acquire(one.number, PROMPT, restore=False).usable_tokens == 0
    assert isinstance(one.restore(), Restored)
    one.world.do(RestoreLate(read.job, 30))
    assert len(one.world.events("restore_overdue.1")) == 1
