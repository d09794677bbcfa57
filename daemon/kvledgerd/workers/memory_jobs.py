"""What workers do to slots: fill them from a ring, hash them, make the arenas they lie in. Everything here blocks."""

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import structlog

from kvledger.arena_header import ArenaIdentity
from kvledger.kinds import Kind
from kvledger.memfd import PAGE_BYTES
from kvledger_storage.adoption import store_name
from kvledger_storage.arena import Arena
from kvledger_storage.copying import CHUNK_BYTES, SlotWriter, copy_slot, fill_slots, hash_slot
from kvledger_storage.ring import RingReader
from kvledgerd.core.commands import ArenaMade, Copied, Moved, Verified
from kvledgerd.core.decision import ClearArena, CopyIn, CopyRange, MakeArena, MoveSlots, SetGenerations, VerifySlots
from kvledgerd.keeper.notify import Notifier
from kvledgerd.memory.arenas import ArenaTable
from kvledgerd.tenants import tenant_digest

__all__ = ["ArenaMaker", "Hashing", "SlotFiller", "is_whole", "set_generations"]

Slot = tuple[int, int, int]
"""Arena, offset and length, bytes."""

# A call takes 1,024 buffers.
_RUN_OBJECTS: Final = 1024

_log = structlog.get_logger(__name__)


def set_generations(effect: SetGenerations, arenas: ArenaTable) -> None:
    """Move generations; a write to memory, so it may run on the loop."""
    moves: dict[int, list[tuple[int, int, int]]] = {}
    for arena, offset, length, generation in effect.slots:
        moves.setdefault(arena, []).append((offset // PAGE_BYTES, -(-length // PAGE_BYTES), generation))
    for arena, pages in moves.items():
        arenas[arena].set_generations(pages)


class SlotFiller:
    """Fills slots from rings and hashes what arrived.

    The writer of an object that has arrived in part is kept by its slot. A slot that is reserved anew begins anew, so
    what an abandoned unit leaves here is bounded by the number of slots. How long an object may get was checked by the
    core before it named the range; a writer is bounded by its arena.

    Args:
        arenas: Where the slots lie.
    """

    def __init__(self, arenas: ArenaTable) -> None:
        self._arenas: Final = arenas
        self._writers: Final[dict[tuple[int, int], SlotWriter]] = {}

    def fill(self, effect: CopyIn, ring: RingReader) -> Copied:
        """Copy the ranges of one put; for each unit one call at a time, unless all of its ranges are whole objects.

        Raises:
            CallerError: A range leaves the ring or does not continue its object.
            DescriptorError: The ring can not be read.
        """
        complete: list[tuple[int, bytes]] = []
        for run in _runs(effect.ranges):
            if is_whole(run[0]):
                slots = [self._arenas[part.arena].view(part.slot_offset, part.length) for part in run]
                complete += zip((part.index for part in run), fill_slots(slots, ring, run[0].ring_offset), strict=True)
                continue
            digest = self._copy(run[0], ring)
            if run[0].last:
                complete.append((run[0].index, digest))
        return Copied(effect.job, tuple(complete))

    def hash_slots(self, slots: Sequence[Slot]) -> list[bytes]:
        """Hash slots as they are now."""
        return [hash_slot(self._arenas[arena], offset, length) for arena, offset, length in slots]

    def move(self, effect: MoveSlots) -> Moved:
        """Copy slots to their new places, each hashed where it arrives."""
        return Moved(
            effect.job,
            tuple(
                copy_slot(self._arenas[source], start, self._arenas[target], offset, length)
                for source, start, target, offset, length in effect.copies
            ),
        )

    def _copy(self, part: CopyRange, ring: RingReader) -> bytes:
        slot = (part.arena, part.slot_offset)
        writer = self._writers.get(slot) if part.offset else None
        if writer is None:
            arena = self._arenas[part.arena]
            writer = self._writers[slot] = SlotWriter(arena, part.slot_offset, arena.data_bytes - part.slot_offset)
        digest = writer.copy_and_hash(ring, part.ring_offset, part.offset, part.length)
        if part.last:
            del self._writers[slot]
        return digest


def is_whole(part: CopyRange) -> bool:
    """Tell whether a range is a whole object, which needs nothing of what was copied before it."""
    return part.last and not part.offset and part.length <= CHUNK_BYTES


def _runs(ranges: Sequence[CopyRange]) -> Iterator[list[CopyRange]]:
    """Yield whole objects that lie one behind the other in the ring together, and every other range alone."""
    run: list[CopyRange] = []
    size = 0
    for part in ranges:
        joins = run and is_whole(part) and is_whole(run[-1]) and part.ring_offset == run[0].ring_offset + size
        if run and not (joins and len(run) < _RUN_OBJECTS and size + part.length <= CHUNK_BYTES):
            yield run
            run, size = [], 0
        run.append(part)
        size += part.length
    if run:
        yield run


class Hashing:
    """One verification, hashed kind by kind; the last kind to end has the answer.

    Args:
        filler: Hashes slots.
        effect: The verification.
        kind_of: Arena to its kind.

    Attributes:
        kinds: The kind of each part.
    """

    def __init__(self, filler: SlotFiller, effect: VerifySlots, kind_of: Callable[[int], Kind]) -> None:
        self._filler: Final = filler
        self._effect: Final = effect
        self._guard: Final = threading.Lock()
        self._found: Final[dict[int, bytes]] = {}
        parts: dict[Kind, list[int]] = {}
        for index, (arena, _, _) in enumerate(effect.slots):
            parts.setdefault(kind_of(arena), []).append(index)
        self._parts: Final = list(parts.values())
        self.kinds: Final = list(parts)

    def hash(self, number: int) -> Verified | None:
        """Hash one part; returns the answer if it was the last one to end."""
        slots = [self._effect.slots[index] for index in self._parts[number]]
        return self._ended(number, self._filler.hash_slots(slots))

    def failed(self, number: int) -> Verified | None:
        """Say that a part could not be hashed: an empty fingerprint is nobody's, so its slots count as damaged."""
        return self._ended(number, [b""] * len(self._parts[number]))

    def _ended(self, number: int, found: list[bytes]) -> Verified | None:
        with self._guard:
            self._found.update(zip(self._parts[number], found, strict=True))
            if len(self._found) < len(self._effect.slots):
                return None
        return Verified(self._effect.job, tuple(self._found[index] for index in range(len(self._effect.slots))))


class ArenaMaker:
    """Makes arenas and has them held by whoever survives the daemon.

    Attributes:
        arenas: Where finished arenas go.

    Args:
        arenas: As above.
        notifier: Speaks to the descriptor store.
        log_id: Id of the log, 16 bytes.
        boot_id: Boot of the machine, 16 bytes.
    """

    def __init__(self, arenas: ArenaTable, notifier: Notifier, log_id: bytes, boot_id: bytes) -> None:
        self.arenas: Final = arenas
        self._notifier: Final = notifier
        self._log_id: Final = log_id
        self._boot_id: Final = boot_id

    def make(self, effect: MakeArena) -> ArenaMade:
        """Make an arena, store its descriptor and wait until the store has it.

        Raises:
            CapacityError: Too little memory, no descriptor left, or the store is full.
            NotifyError: The store does not answer.
        """
        tenant = tenant_digest(effect.tenant)
        arena = Arena.create(
            ArenaIdentity(self._log_id, self._boot_id, effect.arena, tenant, effect.kind), effect.bytes
        )
        try:
            if self._notifier.present:
                self._notifier.store(store_name(effect.arena), [arena.fd])
                self._notifier.barrier()
            self.arenas.add(arena)
        except BaseException:
            if self._notifier.present:
                # Held by nobody who knows it, its memory would be lost until the store is emptied.
                self._notifier.remove(store_name(effect.arena))
            arena.close()
            raise
        _log.info("arena made", arena=effect.arena, kind=effect.kind.name, bytes=effect.bytes)
        return ArenaMade(effect.job, effect.arena)

    def clear(self, effect: ClearArena) -> ArenaMade:
        """Give an empty arena to another kind, with zeros in it.

        Raises:
            OSError: Its memory can not be written.
        """
        arena = self.arenas[effect.arena]
        arena.rekind(effect.kind, effect.job)
        _log.info("arena cleared", arena=effect.arena, kind=effect.kind.name, bytes=arena.data_bytes)
        return ArenaMade(effect.job, effect.arena)
