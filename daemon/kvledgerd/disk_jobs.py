"""What workers do to disk records: write them, read them back verified, give them back. Everything here blocks."""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kvledger.kinds import Kind
from kvledger_storage.disk.errors import RecordMissError, UnreadableError
from kvledger_storage.disk.reader import ReadRequest
from kvledger_storage.disk.record import BlobRef as Ref
from kvledger_storage.disk.record import RecordIn, RecordKey, RecordType, fingerprint_of
from kvledger_storage.disk.store import DiskStore
from kvledgerd.core.commands import BlobRef, RestoreDone, Written
from kvledgerd.core.decision import DiskRead, DiskWrite, DropBlobs, ReadRecord, WriteRecord
from kvledgerd.memory import ArenaTable

__all__ = ["DiskJobs"]

# A deadline is kept to within the time that so much takes to read.
_BATCH_BYTES: Final = 32 << 20


class DiskJobs:
    """The disk side of offload and restore.

    Args:
        store: The segments; `write` and `drop` belong to one thread, `read` to any.
        arenas: Where the slots lie.
        read_seconds: After this a restore reads no further record; the call that hangs can not be taken back.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        store: DiskStore,
        arenas: ArenaTable,
        read_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store: Final = store
        self._arenas: Final = arenas
        self._read_seconds: Final = read_seconds
        self._clock: Final = clock

    def write(self, effect: DiskWrite) -> Written:
        """Write objects and their manifest, all or none, synced.

        Raises:
            TierError: Nothing was written.
        """
        records = [self._object(effect, record) for record in effect.records]
        refs = self._store.append([*records, _manifest(effect)])
        return Written(effect.job, tuple(BlobRef(*ref) for ref in refs))

    def read(self, effect: DiskRead) -> RestoreDone:
        """Read records into their slots; one that can not be had says why and does not stop the others.

        Records that were written together are read by one call, but only so much at a time as may pass between two
        looks at the clock.
        """
        end = self._clock() + self._read_seconds
        errors: list[str] = []
        for records in _batches(effect.records):
            if self._clock() > end:
                errors += [f"failed: not read within {self._read_seconds:g} s"] * len(records)
            else:
                outcomes = self._store.read_many([self._wanted(effect.layout, record) for record in records])
                errors += map(_said, outcomes)
        return RestoreDone(effect.job, tuple(errors))

    def drop(self, effect: DropBlobs) -> None:
        """Give records back and remove the files in which nothing is alive.

        Raises:
            WriteFailedError: A file could not be removed.
        """
        self._store.drop(Ref(ref.segment, ref.offset, ref.length) for ref in effect.refs)
        self._store.unlink_dead()

    def _object(self, effect: DiskWrite, record: WriteRecord) -> RecordIn:
        key = RecordKey(
            cell=record.cell,
            slot=record.slot,
            generation=record.generation,
            layout=effect.layout,
            kind=record.kind,
            length=record.length,
            fingerprint=record.fingerprint,
        )
        return RecordIn(key, self._arenas[record.arena].view(record.offset, record.length))

    def _wanted(self, layout: bytes, record: ReadRecord) -> ReadRequest:
        arena = self._arenas[record.arena]
        key = RecordKey(
            cell=record.cell,
            slot=record.slot,
            generation=record.generation,
            layout=layout,
            kind=arena.header.identity.kind,
            length=record.length,
            fingerprint=record.fingerprint,
        )
        ref = Ref(record.ref.segment, record.ref.offset, record.ref.length)
        return ReadRequest(ref, key, arena.view(record.offset, record.length))


def _batches(records: Sequence[ReadRecord]) -> Iterator[list[ReadRecord]]:
    """Yield the records in order, in as few parts as keep to `_BATCH_BYTES`, but one record at least."""
    batch: list[ReadRecord] = []
    size = 0
    for record in records:
        if batch and size + record.length > _BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(record)
        size += record.length
    if batch:
        yield batch


def _said(outcome: RecordMissError | None) -> str:
    """Return what a read came to, as the core knows it."""
    if outcome is None:
        return ""
    return f"failed: {outcome}" if isinstance(outcome, UnreadableError) else f"damaged: {outcome}"


def _manifest(effect: DiskWrite) -> RecordIn:
    payload = memoryview(effect.manifest)
    key = RecordKey(
        cell=effect.cell,
        slot=0,
        generation=effect.generation,
        layout=effect.layout,
        kind=Kind.DISK_PREFIX,
        length=len(payload),
        fingerprint=fingerprint_of(payload),
        record_type=RecordType.MANIFEST,
    )
    return RecordIn(key, payload)
