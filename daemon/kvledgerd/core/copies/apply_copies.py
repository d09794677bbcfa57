"""Applying events about copies: evictions, verification, offload and restore."""

from kvledger.geometry import bits
from kvledger_storage.copy_events import RECYCLED, ROOM
from kvledger_storage.events import (
    DegradationChanged,
    ObjectName,
    ObjectsEvicted,
    ObjectsVerified,
    Offloaded,
    OffloadFailed,
    OffloadStarted,
    PrefixForgotten,
    PrefixKept,
    RestoreFinished,
    RestoreStarted,
    VerifyStarted,
    WriteDeclined,
)
from kvledgerd.core.copies.parts import masks_of
from kvledgerd.core.holdings import OffloadJob, RestoreJob, VerifyJob
from kvledgerd.core.index import ARENA, ASKED, DISK_GENERATION, GENERATION, SEGMENT, WEIGHED, Cell, Copy
from kvledgerd.core.lookup.pace import note_restore
from kvledgerd.core.placement.aging import reorder, stamp, use_cell
from kvledgerd.core.placement.apply_memory import grow_older, recall_copies, remember
from kvledgerd.core.state import BoundaryKey, Outcome, State
from kvledgerd.core.structure import (
    blocks_of,
    count_object,
    drop_disk,
    drop_memory,
    ensure_cell,
    find_node,
    forget_manifest,
    give_place,
    keep_manifest,
    link_rows,
    note_outcome,
    pin,
    settle_cell,
    take,
    unpin,
    vacate_memory,
)
from kvledgerd.core.transitions import Happening
from kvledgerd.core.units.material import note_used

__all__ = [
    "degradation_changed",
    "objects_evicted",
    "objects_verified",
    "offload_failed",
    "offload_started",
    "offloaded",
    "prefix_forgotten",
    "prefix_kept",
    "restore_finished",
    "restore_started",
    "verify_started",
    "write_declined",
]


def _named(state: State, objects: tuple[ObjectName, ...]) -> list[Copy]:
    return [(state.cells[cell], slot) for cell, slot in objects]


def objects_evicted(state: State, event: ObjectsEvicted) -> None:
    """Drop copies."""
    masks = masks_of(_named(state, event.objects))
    named = [(state.cells[number], mask) for number, mask in masks.items()]
    if event.short:
        remember(state, named, event.short)
    if event.memory:
        drop_memory(state, [(cell, cell.memory & mask) for cell, mask in named])
    for cell, mask in named if event.disk else ():
        for slot in bits(cell.disk & mask):
            drop_disk(state, cell, slot)
    oldest, marks = event.reason == ROOM, WEIGHED if event.reason == RECYCLED else 0
    for cell, _ in named:
        cell.marks |= marks
        settle_cell(state, cell, oldest=oldest)


def prefix_forgotten(state: State, event: PrefixForgotten) -> None:
    """Drop a manifest, and the disk copies of the boundary's own objects."""
    cell = state.cells[event.cell]
    for slot in bits(cell.disk):
        drop_disk(state, cell, slot)
    forget_manifest(state, cell)
    cell.marks |= WEIGHED if event.reason == RECYCLED else 0
    settle_cell(state, cell)


def verify_started(state: State, event: VerifyStarted) -> None:
    """Keep what is being hashed where it is."""
    job = VerifyJob(event.job, _named(state, event.objects))
    state.jobs[event.job] = job
    state.serial = max(state.serial, event.job + 1)
    for cell, _ in job.objects:
        pin(cell)


def objects_verified(state: State, event: ObjectsVerified) -> None:
    """Trust what has its fingerprint, and quarantine what has not."""
    job = state.jobs.pop(event.job)
    assert isinstance(job, VerifyJob)
    for cell, slot in _named(state, event.right):
        cell.unverified &= ~(1 << slot)
    for cell, slot in _named(state, event.wrong):
        vacate_memory(state, [(cell, 1 << slot)], Happening.MEMORY_DAMAGED)
        state.touch(cell)
        reorder(state, cell)
    for cell, _ in job.objects:
        unpin(state, cell)


def offload_started(state: State, event: OffloadStarted) -> None:
    """Keep what is being written where it is; a record that is to be replaced stays until the new one is durable."""
    known = state.layouts[event.layout]
    node = find_node(state, known.tree, event.at.node)
    boundary = ensure_cell(state, known, node, event.at.residue, event.at.residue_hash)
    note_used(state, blocks_of(node, known.number))
    job = OffloadJob(event.job, boundary, _named(state, event.objects))
    job.asked = bool(event.engine)
    job.precisions = event.precisions
    state.jobs[event.job] = job
    state.serial = max(state.serial, event.job + 1)
    pin(boundary)
    for cell, slot in job.objects:
        pin(cell)
        cell.move(slot, Happening.OFFLOAD)
        state.touch(cell)


def offloaded(state: State, event: Offloaded) -> None:
    """Note where the records lie."""
    job = state.jobs.pop(event.job)
    assert isinstance(job, OffloadJob)
    known, prints, total = state.layouts[job.layout], dict(event.prints), 0
    for index, ((cell, slot), (segment, offset, length)) in enumerate(zip(job.objects, event.blobs, strict=True)):
        if cell.disk >> slot & 1:  # another record of it is replaced
            count_object(state, known, cell, slot, -1)
            cell.set_precision(slot, 0)
        cell.move(slot, Happening.OFFLOADED)
        cell.set_words(slot, SEGMENT, segment, offset)
        cell.set_words(slot, DISK_GENERATION, cell.word(slot, GENERATION))
        if job.precisions and job.precisions[index]:
            cell.set_precision(slot, job.precisions[index], prints.get(index, cell.fingerprint(slot)))
        count_object(state, known, cell, slot, 1)
        total += length
        state.touch(cell)
    # What was damaged of a prefix that an engine asked for, the daemon may have written anew; it is no less asked for
    asked = ASKED if job.asked else job.boundary.marks & ASKED
    keep_manifest(state, job.boundary, event.manifest)
    job.boundary.marks |= asked
    state.touch(job.boundary)
    note_outcome(state, event.job, Outcome(objects=len(job.objects), bytes=total, written=_written(job.boundary)))
    for cell, _ in job.objects:
        unpin(state, cell)
    unpin(state, job.boundary)


def offload_failed(state: State, event: OffloadFailed) -> None:
    """Leave everything as it was, or as it became meanwhile; what nobody asked for is passed over from now on."""
    job = state.jobs.pop(event.job)
    assert isinstance(job, OffloadJob)
    if not job.asked:
        job.boundary.marks |= WEIGHED
        state.touch(job.boundary)
    for cell, slot in job.objects:
        if not job.void:
            cell.move(slot, Happening.OFFLOAD_FAILED)
        if not job.asked:
            cell.marks |= WEIGHED
        state.touch(cell)
        unpin(state, cell)
    note_outcome(state, event.job, Outcome(error=event.error, written=_written(job.boundary)))
    unpin(state, job.boundary)


def write_declined(state: State, event: WriteDeclined) -> None:
    """Note that a cell was passed over."""
    cell = state.cells[event.cell]
    cell.marks |= WEIGHED
    state.touch(cell)


def degradation_changed(state: State, event: DegradationChanged) -> None:
    """Note that restores have stopped, or may begin again."""
    state.degraded = event.reason


def prefix_kept(state: State, event: PrefixKept) -> None:
    """Note that an engine asked for a disk prefix."""
    cell = state.cells[event.cell]
    cell.marks |= ASKED
    state.touch(cell)


def _written(boundary: Cell) -> BoundaryKey:
    block = boundary.node.hash if boundary.node.parent is not None else b""
    return boundary.layout, block, boundary.residue, boundary.residue_hash


def restore_started(state: State, event: RestoreStarted) -> None:
    """Take the slots into which records are read; nobody sees them before they are verified."""
    known = state.layouts[event.layout]
    job = RestoreJob(event.job, event.generation, _named(state, event.objects), list(event.placements))
    job.promotion = event.promotion
    state.jobs[event.job] = job
    state.serial = max(state.serial, event.job + 1, event.generation + 1)
    depth = find_node(state, known.tree, event.at.node).depth
    recall_copies(state, job.objects, depth * known.layout.block_tokens + event.at.residue)
    for (cell, slot), (arena, offset) in zip(job.objects, job.places, strict=True):
        take(state, known, known.slot_kinds[slot], arena, offset, known.length_of(cell, slot))
        cell.move(slot, Happening.RESTORE)
        state.restoring[cell.id, slot] = event.job
        state.touch(cell)
        pin(cell)
    grow_older(state, known.tenant)


def restore_finished(state: State, event: RestoreFinished) -> None:
    """Publish what is right, drop the disk copies of what is damaged, and free the slots of both kinds of failure.

    Of a void job nothing is published: what it read belongs to nothing any more. What was made from a quantised record
    has a fingerprint of its own from now on.
    """
    job = state.jobs.pop(event.job)
    assert isinstance(job, RestoreJob)
    prints = dict(event.prints)
    total, stored, wrong, unread = 0, 0, "", []
    for index, error in enumerate(event.errors):
        cell, slot = job.objects[index]
        if not job.void:
            del state.restoring[cell.id, slot]
        if error:
            wrong = wrong or ("" if error.startswith("cancelled") else error)
            unread += [(cell.id, slot)] if error.startswith("failed") else []
            _fail(state, job, index, error)
        else:
            cell.move(slot, Happening.RESTORED)
            cell.set_words(slot, ARENA, *job.places[index], job.generation)
            if index in prints:
                cell.set_fingerprint(slot, prints[index])
            total += state.layouts[cell.layout].length_of(cell, slot)
            stored += state.layouts[cell.layout].stored_length(cell, slot)
        state.touch(cell)
    _enter(state, job)
    note_outcome(state, event.job, Outcome(wrong, event.errors.count(""), total, tuple(unread)))
    note_restore(state, stored, event.micros)
    for cell, _ in job.objects:
        unpin(state, cell)


def _enter(state: State, job: RestoreJob) -> None:
    """Let what was restored enter the eviction orders, as one path: what is known of a block is known of those behind.

    Its objects stand in the job from the root on.
    """
    known, cells = state.layouts[job.layout], list({cell.id: cell for cell, _ in job.objects}.values())
    link_rows(known, cells)
    stamp(state, known, [cell for cell in cells if cell.memory])
    for cell in cells:
        reorder(state, cell)
        if not job.promotion:
            use_cell(state, known, cell)


def _is_damage(error: str) -> bool:
    return error.startswith("damaged")


def _fail(state: State, job: RestoreJob, index: int, error: str) -> None:
    give_place(state, job, index)
    if job.void:
        return
    cell, slot = job.objects[index]
    if _is_damage(error):
        drop_disk(state, cell, slot, Happening.DISK_DAMAGED)
    else:
        cell.move(slot, Happening.RESTORE_FAILED)
