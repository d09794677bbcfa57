"""Decisions about conversions: a boundary that another layout keeps becomes one of the layout that asks for it.

It is asked for as one on disk is, with `Restore`. The daemon reserves a unit for the asking engine, as that engine
would have done, fills it out of the other layout's objects, and publishes it. So everything that holds of units holds
here: room is made for it, its slots are private until it is published, what is there already is not brought twice, and
it ends with its connection. The cells that it is made from are pinned with it and stand in its event, which tells where
its bytes come from. A source is hashed as it is read, so that what is published is what was committed, bit for bit.

What the other layout keeps on disk alone is restored first, for that layout and within the same request: then it lies
in memory twice, as what it was and as what is asked for, until room is made of one of them.
"""

from collections.abc import Iterable
from copy import copy
from typing import NamedTuple

from msgspec.structs import replace

from kvledger.conversions import conversion
from kvledger.errors import CommitRefusedError, ServiceError
from kvledger.geometry import BOUNDARY, UnitObject
from kvledger.kinds import Form, Kind
from kvledger.wire.requests import Reserve, Restore
from kvledger_storage.events import Event, PutFinished, PutStarted, UnitAborted, UnitReserved
from kvledgerd.core.commands import Ask, Converted
from kvledgerd.core.copies import decide_disk
from kvledgerd.core.copies.decide_disk import wait, wait_for_room
from kvledgerd.core.copies.parts import BoundaryPath, boundary_path, find_parts, masks_of
from kvledgerd.core.decision import Ack, ConvertObject, ConvertSlots, Decision, Effect
from kvledgerd.core.holdings import Unit
from kvledgerd.core.index import ARENA, OFFSET, Copy
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.lookup.converted import may_convert, others
from kvledgerd.core.lookup.decide_verification import start_verification
from kvledgerd.core.receipts import check_boundary, find_layout
from kvledgerd.core.state import State
from kvledgerd.core.units.decide_commits import publish
from kvledgerd.core.units.decide_units import reserve

__all__ = ["converted", "restore"]


def restore(state: State, ask: Ask, request: Restore) -> Decision:
    """Bring a boundary into memory: out of what another layout keeps if this one lacks it, else from disk.

    Of what this layout keeps as an approximation it lacks what another keeps exactly.
    """
    known = find_layout(state, ask.caller, request.layout)
    position = check_boundary(known, request.at, "at")
    if not may_convert(known) or request.kind is not Kind.DISK_PREFIX or not position:
        return decide_disk.restore(state, ask, request)
    at = boundary_path(known, request.at, position)
    own = find_parts(known, at, replayed=True)
    if not own.lacking and (not _is_approx(own.found) or _was_converted(state, ask)):
        return decide_disk.restore(state, ask, request)
    running = _running(state, known, at, request)
    if running is not None:
        return wait(known, request, ask, tuple(running.jobs), [])
    found = _sources(state, known, at, request)
    sources = [source for source in found if own.lacking or not _is_approx(source.objects)]
    if not sources:
        return decide_disk.restore(state, ask, request)
    best = min(sources, key=lambda source: (_is_approx(source.objects), len(_on_disk(source.objects))))
    other, path, objects = best
    if _on_disk(objects):
        return decide_disk.restore(state, ask, replace(request, layout=other.number))
    _require_tried_once(state, ask)
    return _convert(state, ask, request, (known, other), path, objects)


class _Source(NamedTuple):
    """What another layout keeps of a boundary, all of it."""

    other: KnownLayout
    path: BoundaryPath
    objects: list[Copy]


def _sources(state: State, known: KnownLayout, at: BoundaryPath, request: Restore) -> Iterable[_Source]:
    for other in others(state, known, at.path):
        path = boundary_path(other, request.at, at.position)
        parts = find_parts(other, path)
        if not parts.lacking:
            yield _Source(other, path, parts.found)


def _on_disk(objects: list[Copy]) -> list[Copy]:
    return [(cell, slot) for cell, slot in objects if not cell.memory >> slot & 1]


def _is_approx(objects: list[Copy]) -> bool:
    return any(cell.approx >> slot & 1 for cell, slot in objects)


def _was_converted(state: State, ask: Ask) -> bool:
    """Tell whether a conversion that the request waited for has ended well; alone of jobs it brings no copies back."""
    ended = (state.outcomes.get(job) for job in ask.parked)
    return any(outcome is not None and not outcome.error and not outcome.objects for outcome in ended)


def _require_tried_once(state: State, ask: Ask) -> None:
    """Refuse what failed while the request waited for it: trying again might have no end.

    A restore that it waited for may have failed for another boundary; a conversion that failed has brought nothing.
    """
    for job in ask.parked:
        outcome = state.outcomes.get(job)
        if outcome is not None and outcome.error and not outcome.objects and not outcome.unread:
            raise ServiceError(outcome.error, field="at", remedy="compute it; see the daemon's log if it stays so")


def _running(state: State, known: KnownLayout, at: BoundaryPath, request: Restore) -> Unit | None:
    """Return the conversion that brings a boundary already."""
    end = (known.number, at.node, request.at.residue, request.at.residue_hash)
    running = (unit for unit in state.units.values() if unit.converts and unit.jobs and not unit.aborted)
    return next((u for u in running if (u.layout, u.node, u.residue, u.residue_hash) == end), None)


def _convert(
    state: State,
    ask: Ask,
    request: Restore,
    layouts: tuple[KnownLayout, KnownLayout],
    source: BoundaryPath,
    objects: list[Copy],
) -> Decision:
    known, other = layouts
    unverified = [(cell, slot) for cell, slot in objects if cell.unverified >> slot & 1]
    if unverified:
        return start_verification(state, unverified)
    wanted = Reserve(request.layout, request.at, approx=_is_approx(objects))
    reserved = reserve(state, ask, wanted, masks_of(objects))
    if reserved.park is not None or not reserved.events:
        return wait_for_room(other, request, ask, reserved, objects)
    unit = reserved.events[-1]
    assert isinstance(unit, UnitReserved)
    job = unit.unit + 1
    made = tuple(_objects(known, other, source, unit))
    started = PutStarted(unit.unit, job, tuple((one.index, one.target_length) for one in made))
    effects: tuple[tuple[Ack, Effect], ...] = (*reserved.effects, (Ack.WRITTEN, ConvertSlots(job, made)))
    waiting = wait(other, request, ask, (job,), objects)
    return Decision((*reserved.events, started), waiting.reply, Ack.WRITTEN, effects, waiting.park)


def _objects(
    known: KnownLayout, other: KnownLayout, source: BoundaryPath, unit: UnitReserved
) -> Iterable[ConvertObject]:
    """Yield what each object that the unit brings is made from."""
    formats = conversion(other.layout, known.layout)
    assert formats is not None
    brought = known.geometry.unit_objects(0, source.position, boundary=True)
    for index, (item, place) in enumerate(zip(brought, unit.placements, strict=True)):
        if not place[0]:
            continue
        cell, slot = _source(known, other, source, item)
        spec = known.geometry.groups[item.group]
        yield ConvertObject(
            index,
            cell.word(slot, ARENA),
            cell.word(slot, OFFSET),
            other.length_of(cell, slot),
            cell.fingerprint(slot),
            *place,
            item.length,
            formats[item.group],
            spec.owners,
            _rows(known, item),
        )


def _source(known: KnownLayout, other: KnownLayout, source: BoundaryPath, item: UnitObject) -> Copy:
    place = known.geometry.boundary_slots[item.slot]
    cell = source.cell if item.block == BOUNDARY else source.path[item.block].cell(other.number)
    assert cell is not None
    return cell, other.geometry.slot(place.group, place.shard, place.page)


def _rows(known: KnownLayout, item: UnitObject) -> int:
    spec = known.geometry.groups[item.group]
    return spec.rows_per_page if spec.form is Form.PAGED_WINDOW else item.tokens // spec.tokens_per_row


def converted(state: State, command: Converted) -> Decision:
    """Publish what was converted; what failed, or can not be published any more, ends its unit."""
    unit = next((u for u in state.units.values() if command.job in u.jobs), None)
    if unit is None:
        return Decision()
    finished = PutFinished(unit.id, command.job, command.fingerprints, command.error)
    if unit.aborted:
        return Decision((finished,))
    if command.error:
        return Decision((finished, UnitAborted(unit.id, f"conversion failed: {command.error}")))
    try:
        published = _published(state, _with_prints(unit, command.fingerprints))
    except CommitRefusedError as error:
        failed = PutFinished(unit.id, command.job, (), error.message)
        return Decision((failed, UnitAborted(unit.id, f"conversion failed: {error.message}")))
    events: tuple[Event, ...] = (finished, *published.events)
    return Decision(events, ack=published.ack, effects=published.effects)


def _published(state: State, unit: Unit) -> Decision:
    """Publish a unit now or never: the daemon's own conversions do not wait, and whoever asked may ask again."""
    known = state.layouts[unit.layout]
    known.epoch.require_commits(known.layout)
    published = publish(state, known, unit)
    if published.park is not None:
        text = "copies that have to go for it are being written or read"
        raise CommitRefusedError(text, field="at", remedy="ask again")
    return published


def _with_prints(unit: Unit, prints: tuple[tuple[int, bytes], ...]) -> Unit:
    """Return the unit as it will be once its bytes are noted; the unit itself is changed by events only."""
    found = copy(unit)
    found.prints = list(unit.prints)
    for index, fingerprint in prints:
        found.prints[index] = fingerprint
    return found
