"""Decisions about disk prefixes: offload, restore, and what the disk answered."""

from kvledger.counts import counted
from kvledger.errors import CapacityError, CommitRefusedError, EpochError, ServiceError
from kvledger.kinds import Kind
from kvledger.wire.replies import Offloaded as OffloadedReply
from kvledger.wire.replies import Pending, Restored
from kvledger.wire.requests import Offload, Restore
from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.events import (
    BoundaryName,
    Event,
    ObjectsEvicted,
    Offloaded,
    OffloadFailed,
    PrefixKept,
    RestoreFinished,
    RestoreStarted,
)
from kvledgerd.core.commands import Ask, RestoreDone, Written
from kvledgerd.core.copies.decide_degraded import require_restores
from kvledgerd.core.copies.decide_write import demote_later
from kvledgerd.core.copies.parts import BoundaryPath, boundary_path, find_parts, masks_of
from kvledgerd.core.copies.records import blob_of, drop_effects, dropped_refs, read_of, unused_refs
from kvledgerd.core.copies.writing import Order, begin_write, precisions_for, shares, to_write
from kvledgerd.core.decision import (
    Ack,
    Decision,
    DiskRead,
    Effect,
    Park,
    SetGenerations,
)
from kvledgerd.core.holdings import OffloadJob, RestoreJob
from kvledgerd.core.index import ASKED, Cell, Copy
from kvledgerd.core.kinds import require_kind
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.lookup.decide_verification import start_verification
from kvledgerd.core.placement.admission import admit
from kvledgerd.core.placement.admission_disk import Writing, admit_records
from kvledgerd.core.receipts import check_boundary, find_layout
from kvledgerd.core.state import Outcome, State
from kvledgerd.core.transitions import ObjectState

__all__ = ["offload", "restore", "restore_done", "start_restore", "wait", "wait_for_room", "written"]

RETIRED = "its epoch was retired meanwhile"
NOT_WANTED = "nobody waits for it any more"


def _whole(known: KnownLayout, request: Offload | Restore) -> tuple[BoundaryPath, list[Copy]]:
    require_kind(request.kind, Kind.DISK_PREFIX, "kind")
    position = check_boundary(known, request.at, "at")
    if not position or known.geometry.uneven_group(position) is not None:
        raise CommitRefusedError(
            f"{position} is no boundary of this layout", field="at", remedy="name one that a unit may end at"
        )
    at = boundary_path(known, request.at, position)
    parts = find_parts(known, at, replayed=isinstance(request, Restore))
    if parts.lacking:
        lacking = counted(parts.lacking, "object")
        raise CommitRefusedError(
            f"nothing can resume at {at.position}: {lacking} lacking, first {parts.first_lacking}",
            field="at",
            remedy="commit the boundary first",
        )
    return at, parts.found


def offload(state: State, ask: Ask, request: Offload) -> Decision:
    """Write a boundary to disk; the reply comes when it is durable.

    A job that it waited for may have written another boundary, so only the outcome of its own one counts.
    """
    known = find_layout(state, ask.caller, request.layout)
    _require_offload(known)
    _require_writes(state)
    own = (known.number, request.at.hashes[-32:], request.at.residue, request.at.residue_hash)
    ended = (state.outcomes[job] for job in ask.parked if job in state.outcomes)
    outcome = next((one for one in ended if one.written == own), None)
    if outcome is not None and outcome.error:
        raise ServiceError(outcome.error, field="at", remedy="see the daemon's log; memory copies are unharmed")
    at, objects = _whole(known, request)
    busy = [j.id for j in state.jobs.values() if isinstance(j, OffloadJob) and shares(j, objects)]
    if busy:
        return Decision(park=Park(tuple(busy)))
    worse = _kept_worse(objects) if request.exact else []
    todo = to_write(known, objects, worse)
    done = at.cell is not None and at.cell.manifest is not None
    if not todo and done:
        return _offloaded(request, at.cell, objects, outcome or Outcome())
    unverified = [(c, s) for c, s in todo if c.unverified >> s & 1]
    if unverified:
        return start_verification(state, unverified)
    return _start_offload(state, ask, request, known, at, objects, todo)


def _kept_worse(objects: list[Copy]) -> list[Copy]:
    """Return what is exact in memory and quantised on disk."""
    return [
        (c, s) for c, s in objects if c.precision(s) and c.state(s) is ObjectState.MIRRORED and not c.approx >> s & 1
    ]


def _require_offload(known: KnownLayout) -> None:
    known.epoch.require_usable(known.layout)
    if known.epoch.engine:
        raise EpochError(
            f"{known.epoch.name} ends with it, so nothing of it is written to disk",
            field="layout",
            remedy="name the weights in the layout",
        )


def _require_writes(state: State) -> None:
    if state.tier.read_only:
        raise CapacityError(
            f"the disk tier takes no writes: {state.tier.read_only}",
            field="disk",
            remedy="free space or repair the file system; it is tried again by itself, and memory copies are unharmed",
        )


def _offloaded(request: Offload, boundary: Cell | None, objects: list[Copy], brought: Outcome) -> Decision:
    events: tuple[Event, ...] = ()
    if boundary is not None and not boundary.marks & ASKED:
        events = (PrefixKept(boundary.id),)
    if request.drop_memory:
        drop = tuple((c.id, s) for c, s in objects if c.memory >> s & 1 and not c.pins)
        events += (ObjectsEvicted(drop, memory=True, disk=False, reason="offloaded"),) if drop else ()
    reply = OffloadedReply(brought.objects, brought.bytes, len(objects) - brought.objects)
    return Decision(events, reply, Ack.DURABLE)


def _start_offload(
    state: State,
    ask: Ask,
    request: Offload,
    known: KnownLayout,
    at: BoundaryPath,
    objects: list[Copy],
    todo: list[Copy],
) -> Decision:
    precisions = precisions_for(state.config.disk_precision, known, todo, exact=request.exact)
    admit_records(state, Writing(known, at.node, todo, precisions))
    job, boundary = state.serial, request.at
    named = (boundary.residue, boundary.residue_hash)
    order = Order(job, state.next_cell, ask.caller.engine, "asked for", *named, precisions)
    event, write = begin_write(known, at, objects, todo, order)
    return Decision((event,), effects=((Ack.WRITTEN, write),), park=Park((job,)))


def written(state: State, command: Written) -> Decision:
    """Note where records lie, or that nothing was written; what nobody waits for any more is given back."""
    job = state.jobs.get(command.job)
    if not isinstance(job, OffloadJob):
        return Decision(effects=drop_effects(unused_refs(state, command.refs)))
    if job.void:
        # Nothing names these records, and those of the older manifest went with the epoch
        return Decision((OffloadFailed(job.id, RETIRED),), effects=drop_effects(list(command.refs)))
    if command.error:
        return Decision((OffloadFailed(job.id, command.error),))
    blobs = tuple((r.segment, r.offset, r.length) for r in command.refs)
    older = [blob_of(state.layouts[job.layout], c, s) for c, s in job.objects if c.disk >> s & 1]
    older += [BlobRef(*job.boundary.manifest)] if job.boundary.manifest is not None else []
    event = Offloaded(job.id, blobs[:-1], blobs[-1], command.prints)
    further = [] if job.asked else demote_later(state, state.layouts[job.layout].tenant)
    effects = (*drop_effects(older), *((Ack.WRITTEN, effect) for effect in further))
    return Decision((event,), ack=Ack.DURABLE, effects=effects)


def restore(state: State, ask: Ask, request: Restore) -> Decision:
    """Bring a boundary back into memory; the reply comes when it is verified.

    A job that it joined may have failed for another boundary's objects, so what counts is what this one has now.
    """
    known = find_layout(state, ask.caller, request.layout)
    known.epoch.require_usable(known.layout)
    outcomes = [state.outcomes[job] for job in ask.parked if job in state.outcomes]
    at, objects = _whole_still(known, request, outcomes)
    _require_read(objects, outcomes)
    running = dict.fromkeys(j for c, s in objects if (j := state.restoring.get((c.id, s))) is not None)
    if running:
        return wait(known, request, ask, tuple(running), _job_objects(state, next(iter(running))))
    todo = [(c, s) for c, s in objects if c.state(s) is ObjectState.ON_DISK]
    if not todo:
        reply = Restored(sum(o.objects for o in outcomes), sum(o.bytes for o in outcomes))
        return Decision(reply=reply, ack=Ack.WRITTEN)
    require_restores(state)
    needs = [(known.slot_kinds[s], known.length_of(c, s)) for c, s in todo]
    admission = admit(state, known.tenant, needs, protect=masks_of(objects), new_objects=0, epoch=known.epoch)
    if isinstance(admission, Decision):
        return wait_for_room(known, request, ask, admission, todo)
    event, effects = start_restore(state, known, at, todo, admission.places)
    waiting = wait(known, request, ask, (event.job,), todo)
    return Decision((*admission.events(), event), waiting.reply, Ack.SESSION, effects, waiting.park)


def _whole_still(known: KnownLayout, request: Restore, outcomes: list[Outcome]) -> tuple[BoundaryPath, list[Copy]]:
    """Return the boundary; if a job that was waited for found damage, that is why it lacks something."""
    wrong = next((outcome.error for outcome in outcomes if outcome.error), "")
    try:
        return _whole(known, request)
    except CommitRefusedError as error:
        if not wrong:
            raise
        remedy = "look up again: what is damaged is no longer offered"
        raise ServiceError(wrong, field="at", remedy=remedy) from error


def _require_read(objects: list[Copy], outcomes: list[Outcome]) -> None:
    """Refuse what could not be read while the request waited for it: waiting again might have no end."""
    for outcome in outcomes:
        unread = dict.fromkeys(outcome.unread)
        if any((c.id, s) in unread and not c.memory >> s & 1 for c, s in objects):
            raise ServiceError(outcome.error, field="at", remedy="ask again; see the daemon's log if it stays so")


def _job_objects(state: State, number: int) -> list[Copy]:
    job = state.jobs[number]
    return job.objects if isinstance(job, RestoreJob) else []


def wait(known: KnownLayout, request: Restore, ask: Ask, jobs: tuple[int, ...], bringing: list[Copy]) -> Decision:
    """Wait for jobs, or say what the first of them brings; how far it is only the shell knows."""
    if request.wait_ms == 0 or ask.waited:
        size = sum(known.length_of(c, s) for c, s in bringing)
        return Decision(reply=Pending(jobs[0], 0, len(bringing), 0, size))
    return Decision(park=Park(jobs, request.wait_ms))


def wait_for_room(known: KnownLayout, request: Restore, ask: Ask, room: Decision, bringing: list[Copy]) -> Decision:
    """Wait for an arena no longer than for the restore itself."""
    if room.park is None or not room.park.jobs:
        if ask.waited:
            raise CapacityError(
                "the wait was over before there was room", field="wait_ms", remedy="ask again, or wait longer"
            )
        return room
    waiting = wait(known, request, ask, room.park.jobs, bringing)
    return Decision(room.events, waiting.reply, Ack.SESSION, room.effects, waiting.park)


def start_restore(
    state: State,
    known: KnownLayout,
    at: BoundaryPath,
    todo: list[Copy],
    places: list[tuple[int, int]],
    *,
    promotion: bool = False,
) -> tuple[RestoreStarted, tuple[tuple[Ack, Effect], ...]]:
    """Return the event that begins to read a boundary back, and the effects that do it.

    Args:
        state: The cache.
        known: The boundary's layout.
        at: The boundary.
        todo: What of it lies on disk alone.
        places: Where each of these goes.
        promotion: It is brought back ahead of need.
    """
    job = generation = state.serial
    residue = at.position - at.node.depth * known.layout.block_tokens
    name = BoundaryName(at.node.id, residue, at.cell.residue_hash if at.cell is not None else b"")
    names = tuple((c.id, s) for c, s in todo)
    event = RestoreStarted(job, generation, known.number, name, names, tuple(places), promotion)
    records = tuple(read_of(known, c, s, place) for (c, s), place in zip(todo, places, strict=True))
    moved: Effect = SetGenerations(
        tuple((*place, known.length_of(c, s), generation) for place, (c, s) in zip(places, todo, strict=True))
    )
    read: Effect = DiskRead(job, known.layout.digest, records, promotion)
    return event, ((Ack.WRITTEN, moved), (Ack.WRITTEN, read))


def restore_done(state: State, command: RestoreDone) -> Decision:
    """Publish what was read and verified; the records of what is damaged are given back."""
    job = state.jobs.get(command.job)
    if not isinstance(job, RestoreJob):
        return Decision()
    if job.void:
        failed = tuple(f"failed: {NOT_WANTED}" for _ in command.errors)
        return Decision((RestoreFinished(job.id, failed),), ack=Ack.DURABLE)
    pairs = zip(job.objects, command.errors, strict=True)
    refs = dropped_refs(state, [copy for copy, error in pairs if error.startswith("damaged")])
    event = RestoreFinished(job.id, command.errors, command.micros, command.prints)
    return Decision((event,), ack=Ack.DURABLE, effects=drop_effects(refs))
