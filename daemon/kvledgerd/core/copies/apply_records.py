"""Applying events about records that were written before: damage, moves, scrubbing, and the tier as a whole."""

from kvledger_storage.disk_events import (
    MANIFEST,
    RecordsDamaged,
    RecordsFound,
    RecordsMoved,
    RestoreOverdue,
    ScrubAdvanced,
    ScrubSwitched,
    TierChanged,
)
from kvledgerd.core.holdings import RestoreJob
from kvledgerd.core.index import FP_LOW, SEGMENT
from kvledgerd.core.state import Outcome, State
from kvledgerd.core.structure import (
    count_object,
    couple,
    drop_disk,
    ensure_cell,
    extend_path,
    forget_manifest,
    keep_manifest,
    note_outcome,
    settle_cell,
)
from kvledgerd.core.transitions import Happening

__all__ = [
    "records_damaged",
    "records_found",
    "records_moved",
    "restore_overdue",
    "scrub_advanced",
    "scrub_switched",
    "tier_changed",
]

_LOW = 2**64 - 1


def records_damaged(state: State, event: RecordsDamaged) -> None:
    """Drop disk copies and manifests that can not be had any more.

    Manifests go first: one whose boundary keeps nothing of its own would go with the last copy of its block.
    """
    cells = {number: state.cells[number] for number, _, _ in event.records}
    for number in [number for number, slot, _ in event.records if slot == MANIFEST]:
        forget_manifest(state, cells[number])
    for number, slot, _ in event.records:
        if slot != MANIFEST:
            drop_disk(state, cells[number], slot, Happening.DISK_DAMAGED)
    for cell in cells.values():
        settle_cell(state, cell)
    state.tier.damaged += len(event.records)


def records_found(state: State, event: RecordsFound) -> None:
    """Make a place known with what lies on disk of it; the cell keeps the number that its records bear.

    Which boundaries stood on a block, nobody knows any more, so none counts as material.
    """
    known = state.layouts[event.layout]
    node = extend_path(state, known.tree, event.parent, event.fresh)
    after, state.next_cell = state.next_cell, event.cell
    cell = ensure_cell(state, known, node, event.residue, event.residue_hash)
    state.next_cell = max(after, event.cell + 1)
    cell.used = True
    for slot, generation, print_, commit, segment, offset, precision in event.records:
        value = int.from_bytes(print_, "big")
        cell.move(slot, Happening.FIND)
        cell.set_words(slot, FP_LOW, value & _LOW, value >> 64, commit)
        cell.set_words(slot, SEGMENT, segment, offset, generation)
        if precision:
            cell.set_precision(slot, precision, print_)
        count_object(state, known, cell, slot, 1)
        state.objects += 1
        state.serial = max(state.serial, generation + 1, commit + 1)
    if event.manifest is not None:
        keep_manifest(state, cell, event.manifest)
    couple(known, cell)
    settle_cell(state, cell)


def records_moved(state: State, event: RecordsMoved) -> None:
    """Note where records lie now."""
    for number, slot, segment, offset in event.records:
        cell = state.cells[number]
        if slot == MANIFEST:
            assert cell.manifest is not None
            cell.manifest = (segment, offset, cell.manifest[2])
        else:
            cell.set_words(slot, SEGMENT, segment, offset)
        state.touch(cell)


def restore_overdue(state: State, event: RestoreOverdue) -> None:
    """Make what a restore was to bring available again; it keeps its slots, and publishes nothing when it ends."""
    job = state.jobs[event.job]
    assert isinstance(job, RestoreJob)
    job.void = True
    for cell, slot in job.objects:
        del state.restoring[cell.id, slot]
        cell.move(slot, Happening.RESTORE_FAILED)
        state.touch(cell)
    unread = tuple((cell.id, slot) for cell, slot in job.objects)
    note_outcome(state, event.job, Outcome(event.error, unread=unread))


def scrub_advanced(state: State, event: ScrubAdvanced) -> None:
    """Note how far the scrubber is."""
    tier = state.tier
    tier.segment, tier.offset = event.segment, event.offset
    tier.records += event.records
    tier.bytes += event.bytes
    tier.lacking = tuple(sorted({*tier.lacking, *event.lacking}))
    if event.ended_ms:
        tier.segment = tier.offset = 0
        tier.passes += 1
        tier.ended_ms = event.ended_ms
        tier.due = False
        tier.lacking, tier.lacked = (), tier.lacking


def scrub_switched(state: State, event: ScrubSwitched) -> None:
    """Note what an operator wants of the scrubber."""
    state.tier.paused, state.tier.due = event.paused, event.due


def tier_changed(state: State, event: TierChanged) -> None:
    """Note whether the tier takes writes."""
    state.tier.read_only = event.read_only
