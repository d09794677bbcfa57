"""What workers do to disk records: write them, read them back verified, give them back. Everything here blocks."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from kvledger.kinds import Kind
from kvledger_storage.disk.errors import RecordMissError, SourceDamagedError, UnreadableError, WriteFailedError
from kvledger_storage.disk.pages import new_bytes
from kvledger_storage.disk.reader import ReadRequest
from kvledger_storage.disk.record import NodeName, RecordIn, RecordKey, RecordType, fingerprint_of
from kvledger_storage.disk.store import DiskStore
from kvledgerd.core.commands import Probed, RestoreDone, Written
from kvledgerd.core.decision import DiskProbe, DiskRead, DiskWrite, DropBlobs, ReadRecord, WriteRecord
from kvledgerd.memory.arenas import ArenaTable
from kvledgerd.tensors.worker import TensorWorker
from kvledgerd.workers.lossy import Lossy

__all__ = ["DiskJobs", "Reading"]

# A part is large enough for the device, and small enough for one thread to verify it while another reads the next one;
# a deadline is kept to within the time that a part takes.
_PART_BYTES: Final = 8 << 20


class DiskJobs:
    """The disk side of offload and restore.

    Args:
        store: The segments; `write` and `drop` belong to one thread, `read` to any.
        arenas: Where the slots lie.
        read_seconds: After this a restore reads no further record; the call that hangs can not be taken back.
        reserve: Bytes of the quota that writes leave to the cleaner.
        tensors: Quantises, if it is not to be done here.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        store: DiskStore,
        arenas: ArenaTable,
        read_seconds: float,
        reserve: int = 0,
        tensors: TensorWorker | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store: Final = store
        self._arenas: Final = arenas
        self._read_seconds: Final = read_seconds
        self._reserve: Final = reserve
        self._lossy: Final = Lossy(arenas, tensors)
        self._clock: Final = clock

    def write(self, effect: DiskWrite) -> Written:
        """Write objects and their manifest, all or none, synced.

        A write that fails stops the tier: the next one might wait for the same sick device, and who asks for it is told
        at once instead. Whether writes work again is tried by `DiskCare`.

        Raises:
            TierError: Nothing was written.
        """
        records = [self._object(effect, record, index) for index, record in enumerate(effect.records)]
        try:
            refs = self._store.append([*records, _manifest(effect)], reserve=self._reserve)
        except WriteFailedError as error:
            self._store.stop_writes(error.message)
            raise
        prints = tuple(
            (index, record.key.fingerprint)
            for index, (record, asked) in enumerate(zip(records, effect.records, strict=True))
            if asked.quantised is not None
        )
        return Written(effect.job, tuple(refs), prints=prints)

    def reading(self, effect: DiskRead) -> "Reading":
        """Return a restore that can be read in parts."""
        return Reading(self, effect)

    @property
    def read_seconds(self) -> float:
        """How long a restore may read."""
        return self._read_seconds

    def now(self) -> float:
        """Return the time in seconds, monotonic."""
        return self._clock()

    def deadline(self, began: float) -> float:
        """Return until when a restore that began then may read."""
        return began + self._read_seconds

    def read(self, layout: bytes, records: Sequence[ReadRecord], end: float) -> list[tuple[str, bytes]]:
        """Read records into their slots; one that can not be had says why and does not stop the others.

        Records that were written together are read by one call. What is quantised is read into memory of its own, and
        becomes its object there where it has its fingerprint.

        Args:
            layout: Digest of their layout.
            records: What to read.
            end: After this time nothing is begun.

        Returns:
            What each came to, as the core knows it; of an object that was made of a quantised record its fingerprint.
        """
        if self._clock() > end:
            return [(f"failed: not read within {self._read_seconds:g} s", b"")] * len(records)
        slots = [self._arenas[r.arena].view(r.offset, r.length) for r in records]
        buffers = [
            slot if r.quantised is None else new_bytes(r.quantised.length)
            for r, slot in zip(records, slots, strict=True)
        ]
        wanted = [self._wanted(layout, r, buffer) for r, buffer in zip(records, buffers, strict=True)]
        found = [(_said(outcome), b"") for outcome in self._store.read_many(wanted)]
        for index, record in enumerate(records):
            if record.quantised is not None and not found[index][0]:
                slot = (record.arena, record.offset, record.length)
                self._lossy.dequantise_into(buffers[index], slot, record.quantised)
                found[index] = "", fingerprint_of(slots[index])
        return found

    def probe(self, effect: DiskProbe) -> Probed:
        """Read one record into memory of its own, and say what came of it."""
        record = effect.record
        wanted = self._wanted(effect.layout, record, new_bytes(record.ref.length))
        return Probed(_said(self._store.read_many([wanted])[0]))

    def drop(self, effect: DropBlobs) -> None:
        """Give records back and remove the files in which nothing is alive.

        Raises:
            WriteFailedError: A file could not be removed.
        """
        self._store.drop(effect.refs)
        self._store.unlink_dead()

    def _object(self, effect: DiskWrite, record: WriteRecord, index: int) -> RecordIn:
        payload, fingerprint = self._arenas[record.arena].view(record.offset, record.length), record.fingerprint
        if record.quantised is not None:
            # The record has a fingerprint of its own, so bytes that went bad in memory have to be found here
            if fingerprint_of(payload) != fingerprint:
                raise SourceDamagedError(index)
            slot = (record.arena, record.offset, record.length)
            payload = self._lossy.quantised(slot, record.quantised)
            fingerprint = fingerprint_of(payload)
        key = RecordKey(
            cell=record.cell,
            slot=record.slot,
            generation=record.generation,
            layout=effect.layout,
            kind=record.kind,
            length=len(payload),
            fingerprint=fingerprint,
            commit=record.commit,
            at=NodeName(*record.at),
            precision=record.precision,
        )
        return RecordIn(key, payload)

    @staticmethod
    def _wanted(layout: bytes, record: ReadRecord, buffer: memoryview) -> ReadRequest:
        key = RecordKey(
            cell=record.cell,
            slot=record.slot,
            generation=record.generation,
            layout=layout,
            kind=record.kind,
            length=record.ref.length,
            fingerprint=record.fingerprint,
            commit=record.commit,
            at=NodeName(*record.at),
            precision=record.precision,
        )
        return ReadRequest(record.ref, key, buffer)


class Reading:
    """One restore, read in parts of one kind each by the threads of that kind; the last one to end has the answer.

    Args:
        disk: What reads.
        effect: The restore.

    Attributes:
        effect: As above.
        kinds: Kind of each part.
        sizes: Bytes of each part.
        parts: Number of parts.
        begun: Whether a part is being read, or was.
        ended: Whether the answer was made.
    """

    def __init__(self, disk: DiskJobs, effect: DiskRead) -> None:
        self._disk: Final = disk
        self.effect: Final = effect
        self._parts: Final = list(_parts(effect.records))
        self._found: Final[dict[int, list[tuple[str, bytes]]]] = {}
        self._guard: Final = threading.Lock()
        self._end: float | None = None
        self._began = 0.0
        self.kinds: Final = [kind for kind, _ in self._parts]
        self.sizes: Final = [sum(effect.records[index].length for index in indices) for _, indices in self._parts]
        self.parts: Final = len(self._parts)
        self.begun = self.ended = False

    def read(self, number: int) -> RestoreDone | None:
        """Read one part; returns the answer if it was the last one to end."""
        with self._guard:
            if self._end is None:
                self.begun, self._began = True, self._disk.now()
                self._end = self._disk.deadline(self._began)
            end = self._end
        records = [self.effect.records[index] for index in self._parts[number][1]]
        return self._ended(number, self._disk.read(self.effect.layout, records, end))

    def failed(self, number: int, said: str) -> RestoreDone | None:
        """Say in the core's words that one part was not even tried; returns the answer if it was the last to end."""
        return self._ended(number, [(said, b"")] * len(self._parts[number][1]))

    def progress(self) -> tuple[int, int]:
        """Return how many records have been read and verified, and their bytes."""
        with self._guard:
            done = [
                self._parts[number][1][at]
                for number, found in self._found.items()
                for at, (error, _) in enumerate(found)
                if not error
            ]
        return len(done), sum(self.effect.records[index].length for index in done)

    def _ended(self, number: int, found: list[tuple[str, bytes]]) -> RestoreDone | None:
        with self._guard:
            self._found[number] = found
            if len(self._found) < self.parts:
                return None
            self.ended = True
            micros = int((self._disk.now() - self._began) * 1_000_000) if self._end is not None else 0
        pairs = ((index, part, at) for part, (_, indices) in enumerate(self._parts) for at, index in enumerate(indices))
        ordered = [self._found[part][at] for _, part, at in sorted(pairs)]
        prints = tuple((index, print_) for index, (_, print_) in enumerate(ordered) if print_)
        return RestoreDone(self.effect.job, tuple(error for error, _ in ordered), micros, prints)


def _parts(records: Sequence[ReadRecord]) -> Iterator[tuple[Kind, list[int]]]:
    """Yield kind and indices of the records, kind by kind in as few parts as keep to `_PART_BYTES`.

    There is one part at least, which may be empty, since every restore is answered.
    """
    kinds: dict[Kind, list[int]] = {}
    for index, record in enumerate(records):
        kinds.setdefault(record.kind, []).append(index)
    for kind, indices in (kinds or {Kind.DISK_PREFIX: []}).items():
        part: list[int] = []
        size = 0
        for index in indices:
            if part and size + records[index].length > _PART_BYTES:
                yield kind, part
                part, size = [], 0
            part.append(index)
            size += records[index].length
        yield kind, part


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
        at=NodeName(*effect.at),
    )
    return RecordIn(key, payload)
