"""Decisions about records that were written before: copies made by the cleaner, records that are gone, late reads.

Cleaning and scrubbing hold nothing while they work. What they bring is compared with the state as it is then: a record
counts only if the state still has it in that very place, made by that very reservation. So an eviction, an epoch or a
commit never waits for them, and what they did in vain is given back.
"""

from collections.abc import Iterator

from kvledger.geometry import bits
from kvledger.kinds import Kind
from kvledger.wire.replies import Evicted
from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk_events import MANIFEST, RecordsDamaged, RecordsMoved, RestoreOverdue, TierChanged
from kvledgerd.core.copies.records import blob_of, drop_effects, dropped_refs
from kvledgerd.core.decision import Ack, Decision
from kvledgerd.core.disk_commands import RecordsCopied, RecordsLost, RestoreLate, SeenRecord, TierNoted
from kvledgerd.core.holdings import RestoreJob
from kvledgerd.core.index import DISK_GENERATION, Cell
from kvledgerd.core.state import State

__all__ = ["damaged", "difference", "lives_at", "records_copied", "records_lost", "restore_late", "tier_noted"]

_WHY_MAX = 500  # characters of a reason in an event; what is longer names a path more than a cause


def lives_at(state: State, cell: int, slot: int, ref: BlobRef) -> Cell | None:
    """Return the cell if the state has this very record of it in this very place, and no restore reads it."""
    found = state.cells.get(cell)
    if found is None or (cell, slot) in state.restoring:
        return None
    if slot == MANIFEST:
        return found if found.manifest == (ref.segment, ref.offset, ref.length) else None
    if not 0 <= slot < len(found.states) or not found.disk >> slot & 1:
        return None
    return found if blob_of(state.layouts[found.layout], found, slot) == ref else None


def difference(state: State, cell: Cell, seen: SeenRecord) -> str:
    """Return in which fields a record's own header differs from what the state says of it, empty if in none."""
    known = state.layouts[cell.layout]
    meant: dict[str, object] = {"layout": known.layout.digest}
    if seen.slot == MANIFEST:
        meant["kind"] = int(Kind.DISK_PREFIX)
    else:
        meant["kind"] = int(known.slot_kinds[seen.slot])
        meant["generation"] = cell.word(seen.slot, DISK_GENERATION)
        meant["fingerprint"] = cell.record_print(seen.slot)
    return ", ".join(name for name, value in meant.items() if getattr(seen, name) != value)


def damaged(state: State, records: list[tuple[Cell, int, str]], found: str) -> Decision:
    """Drop records that can not be had, by one event, and give their places back.

    Args:
        state: The cache.
        records: Cell, slot or `MANIFEST`, and why; each lives.
        found: Who found it.
    """
    objects = [(cell, slot) for cell, slot, _ in records if slot != MANIFEST]
    manifests = [BlobRef(*cell.manifest) for cell, slot, _ in records if slot == MANIFEST and cell.manifest is not None]
    refs = list(dict.fromkeys([*dropped_refs(state, objects), *manifests]))
    named = tuple((cell.id, slot, why[:_WHY_MAX]) for cell, slot, why in records)
    events = (RecordsDamaged(named, found),) if named else ()
    return Decision(events, Evicted(len(named)), Ack.DURABLE, drop_effects(refs))


def records_copied(state: State, command: RecordsCopied) -> Decision:
    """Let copies take the place of their records; what is not needed any more of both is given back."""
    moved: list[tuple[int, int, int, int]] = []
    refs: list[BlobRef] = []
    for seen, copy in command.records:
        cell = lives_at(state, seen.cell, seen.slot, seen.ref)
        if cell is None or difference(state, cell, seen):
            refs.append(copy)
        else:
            moved.append((seen.cell, seen.slot, copy.segment, copy.offset))
            refs.append(seen.ref)
    events = (RecordsMoved(command.segment, tuple(moved)),) if moved else ()
    return Decision(events, Evicted(len(moved)), Ack.DURABLE, drop_effects(refs))


def records_lost(state: State, command: RecordsLost) -> Decision:
    """Find what should lie in these places, by a walk over all cells, and drop it."""
    places = {(ref.segment, ref.offset): None for ref in command.records}
    lost = [
        (cell, slot, command.why)
        for cell, slot, place in _on_disk(state)
        if place in places and (cell.id, slot) not in state.restoring
    ]
    return damaged(state, lost, command.found)


def _on_disk(state: State) -> Iterator[tuple[Cell, int, tuple[int, int]]]:
    """Yield every record that the state knows with its place."""
    for cell in state.cells.values():
        for slot in bits(cell.disk):
            ref = blob_of(state.layouts[cell.layout], cell, slot)
            yield cell, slot, (ref.segment, ref.offset)
        if cell.manifest is not None:
            yield cell, MANIFEST, cell.manifest[:2]


def tier_noted(state: State, command: TierNoted) -> Decision:
    """Note that the tier takes no writes any more, or takes them again."""
    why = command.read_only[:_WHY_MAX]
    if bool(why) == bool(state.tier.read_only):
        return Decision()
    return Decision((TierChanged(why),), ack=Ack.DURABLE)


def restore_late(state: State, command: RestoreLate) -> Decision:
    """Give up on a restore whose read does not end: who waits for it is told, and its slots stay taken."""
    job = state.jobs.get(command.job)
    if not isinstance(job, RestoreJob) or job.void:
        return Decision()
    error = f"failed: the read did not end within {command.seconds} s; the disk may hang"
    return Decision((RestoreOverdue(job.id, error),), ack=Ack.WRITTEN)
