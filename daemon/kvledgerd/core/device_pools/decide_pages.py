"""Decisions about pages of device pools: asked for, filled, given up, freed.

They follow those about reservations: caps are checked and places taken in one decision, what is asked for is seen by
nobody until it is filled, and what two workers of an engine fill at the same time is kept once.
"""

from typing import NamedTuple

from kvledger.counts import counted
from kvledger.errors import CallerError, CommitRefusedError, LimitError
from kvledger.geometry import UnitObject
from kvledger.wire.replies import Committed, DeviceVictim, Done, Evicted, PagesGiven
from kvledger.wire.requests import AskPages, FreePages, GivePagesUp, ReportFilled, Reserve
from kvledger_storage.device_events import (
    DeviceFreed,
    PagesAsked,
    PagesFilled,
    PagesGivenUp,
)
from kvledger_storage.events import Event
from kvledgerd.core.commands import Ask
from kvledgerd.core.copies.decide_evict import groups_named
from kvledgerd.core.copies.parts import BoundaryPath, boundary_path
from kvledgerd.core.decision import Ack, Decision
from kvledgerd.core.device_pools.device import Asked, DevicePool
from kvledgerd.core.device_pools.device_room import find_room
from kvledgerd.core.index import Cell, Copy, Node
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.receipts import check_boundary, find_asked, find_pool
from kvledgerd.core.state import State
from kvledgerd.core.units.decide_units import anchor, bitmap, check_size, check_unit, find_cells
from kvledgerd.core.units.exactness import is_approx

__all__ = ["ask_pages", "free_pages", "give_pages_up", "report_filled"]

VICTIMS_SENT = 1024


class _Wanted(NamedTuple):
    """A unit as it stands to a pool: its known path, its objects, and the cells of those that are resident already."""

    path: list[Node]
    objects: list[UnitObject]
    there: list[Cell | None]

    def missing(self) -> list[UnitObject]:
        """Return the objects that need pages."""
        return [item for item, cell in zip(self.objects, self.there, strict=True) if cell is None]

    def keep(self, known: KnownLayout) -> dict[int, int]:
        """Return cells and masks of what it builds on: all rows before its end, and its objects that are there."""
        cells = (node.cell(known.number) for node in self.path)
        kept = {cell.id: known.rows_mask for cell in cells if cell is not None}
        for item, cell in zip(self.objects, self.there, strict=True):
            if cell is not None:
                kept[cell.id] = kept.get(cell.id, 0) | 1 << item.slot
        return kept


def ask_pages(state: State, ask: Ask, request: AskPages) -> Decision:
    """Take pages for what a unit lacks in a device pool."""
    pool = find_pool(state, ask.caller, request.pool)
    pool.known.epoch.require_commits(pool.known.layout)
    if sum(1 for one in state.asked.values() if one.engine == ask.caller.engine) >= state.config.max_units:
        raise LimitError("too many units are being filled", field="max_units", remedy="fill or give up some first")
    wanted = _wanted(state, ask, pool, request)
    keep = wanted.keep(pool.known)
    room = find_room(state, pool, wanted.missing(), keep)
    event = _asked(state, pool, request, wanted, room.offsets, keep)
    named = [copy for copy in room.victims if not (copy[0].memory | copy[0].disk) >> copy[1] & 1]
    victims = [_victim(pool, *copy) for copy in named[:VICTIMS_SENT]]
    present = bitmap([cell is not None for cell in wanted.there])
    reply = PagesGiven(event.unit, present, room.offsets, victims, max(len(named) - VICTIMS_SENT, 0))
    return Decision((*_freed(pool, room.victims, "room"), event), reply, Ack.WRITTEN)


def _wanted(state: State, ask: Ask, pool: DevicePool, request: AskPages) -> _Wanted:
    """Check a unit as a reservation is checked, and look up what the pool has of it."""
    known, sight = pool.known, state.sight(pool.engine, pool.known.number)
    unit = Reserve(known.number, request.end, request.first_block, request.boundary, request.all_pages)
    end = check_boundary(known, request.end, "end")
    path = known.tree.match(request.end.hashes)
    check_unit(known, unit, path, end, lambda cell: cell.memory | cell.disk | sight.mask(cell))
    check_size(state, known, unit, end)
    if is_approx(state, ask, known, unit, path):
        raise CommitRefusedError(
            "device pools keep exact state only, and this was computed over an approximation",
            field="first_block",
            remedy="release the approximate hit first, and compute from a prefix that is exact",
        )
    objects = known.geometry.unit_objects(unit.first_block, end, boundary=unit.boundary, all_pages=unit.all_pages)
    objects = pool.own(objects)
    if not objects:
        raise CommitRefusedError("the unit would hold nothing", field="end", remedy="end it after its first block")
    cells = find_cells(known, unit, path)
    held = [(cells.get(item.block), item.slot) for item in objects]
    return _Wanted(path, objects, [c if c is not None and (c.id, slot) in pool.copies else None for c, slot in held])


def _asked(
    state: State, pool: DevicePool, request: AskPages, wanted: _Wanted, offsets: list[int], keep: dict[int, int]
) -> PagesAsked:
    path, places = wanted.path, iter(offsets)
    depth = anchor(pool.known, path, keep, lambda cell: cell.memory | cell.disk | pool.resident(cell))
    return PagesAsked(
        state.serial,
        pool.engine,
        pool.id,
        path[depth - 1].id if depth else pool.known.tree.root.id,
        request.end.hashes[32 * depth :],
        request.first_block,
        request.boundary,
        request.all_pages,
        request.end.residue,
        request.end.residue_hash,
        tuple(next(places) if cell is None else None for cell in wanted.there),
    )


def _freed(pool: DevicePool, copies: list[Copy], reason: str) -> tuple[Event, ...]:
    return (DeviceFreed(pool.id, tuple((cell.id, slot) for cell, slot in copies), reason),) if copies else ()


def _victim(pool: DevicePool, cell: Cell, slot: int) -> DeviceVictim:
    copy, place = pool.copies[cell.id, slot], pool.known.slots_of(cell)[slot]
    return DeviceVictim(
        cell.node.hash,
        cell.residue,
        cell.residue_hash,
        *place,
        copy.offset,
        pool.known.length_of(cell, slot),
        copy.fp64.to_bytes(8, "little"),
    )


def report_filled(state: State, ask: Ask, request: ReportFilled) -> Decision:
    """Make filled pages copies, or say what lacks."""
    asked = find_asked(state, ask.caller, request.unit)
    pool, missing = state.device_pools[asked.pool], asked.missing()
    pool.known.epoch.require_commits(pool.known.layout)
    if len(request.prints) != 8 * len(missing):
        remedy = "send the 8 bytes of its fp64 for each object that `present` leaves out"
        raise CallerError(f"fp64s of {counted(len(missing), 'object')} are asked for", field="prints", remedy=remedy)
    _check_settled(pool.known, asked, request.settled)
    _check_still_there(state, pool, asked)
    there = {index: cell for index in missing if (cell := _resident(pool, asked, asked.objects[index])) is not None}
    prints = dict(zip(missing, (request.prints[i : i + 8] for i in range(0, len(request.prints), 8)), strict=True))
    differing = [
        index
        for index, cell in there.items()
        if pool.copies[cell.id, asked.objects[index].slot].fp64 != int.from_bytes(prints[index], "little")
    ]
    commit_id = state.serial
    event = PagesFilled(asked.id, commit_id, request.prints, tuple(there), tuple(differing))
    stored = len(missing) - len(there)
    return Decision((event,), Committed(commit_id, stored, len(there), len(differing)), Ack.WRITTEN)


def _resident(pool: DevicePool, asked: Asked, item: UnitObject) -> Cell | None:
    cell = asked.cell_of(item)
    return cell if cell is not None and (cell.id, item.slot) in pool.copies else None


def _check_settled(known: KnownLayout, asked: Asked, settled: int) -> None:
    end = len(asked.path) * known.layout.block_tokens + asked.residue
    if settled < end:
        raise CommitRefusedError(
            f"{settled} tokens are settled, the unit ends at {end}: what lies between is speculative",
            field="settled",
            remedy="report it when its tokens are settled, or give it up and ask for a shorter one",
        )


def _check_still_there(state: State, pool: DevicePool, asked: Asked) -> None:
    """Refuse if something that was there when pages were asked for is gone; the pins make that rare."""
    lost = [
        item
        for item, offset in zip(asked.objects, asked.offsets, strict=True)
        if offset is None and _resident(pool, asked, item) is None
    ]
    sight, mask = state.sight(asked.engine, asked.layout), pool.known.rows_mask
    rows = [asked.path[block].cell(asked.layout) for block in range(asked.first_block if asked.boundary else 0)]
    gone = [c for c in rows if c is None or (c.memory | c.disk | sight.mask(c)) & mask != mask]
    if lost or gone:
        rows_gone = counted(len(gone), "block")
        raise CommitRefusedError(
            f"{counted(len(lost), 'resident object')} and the rows of {rows_gone} before the unit are gone",
            field="unit",
            remedy="give it up and ask again",
        )


def give_pages_up(state: State, ask: Ask, request: GivePagesUp) -> Decision:
    """Free asked pages."""
    asked = find_asked(state, ask.caller, request.unit)
    return Decision((PagesGivenUp(asked.id, "given up by its owner"),), Done())


def free_pages(state: State, ask: Ask, request: FreePages) -> Decision:
    """Free copies of one kind along a settled prefix; those that something covers stay and are counted."""
    pool = find_pool(state, ask.caller, request.pool)
    known = pool.known
    at = boundary_path(known, request.at, check_boundary(known, request.at, "at"))
    groups = groups_named(known, request.kind, request.group)
    named = _whole(pool, at, groups) if request.whole else _passed(pool, at, groups)
    drop = [copy for copy in named if not pool.is_pinned(copy[0])]
    events = _freed(pool, drop, "asked for" if request.whole else f"settled at {at.position}")
    return Decision(events, Evicted(len(drop), len(named) - len(drop)), Ack.WRITTEN if events else Ack.SESSION)


def _whole(pool: DevicePool, at: BoundaryPath, groups: dict[int, None]) -> list[Copy]:
    """Return everything of some groups along a path and at its end, coupled partners included."""
    known = pool.known
    cells = [cell for cell in (*(node.cell(known.number) for node in at.path), at.cell) if cell is not None]
    found: dict[tuple[int, int], Copy] = {}
    for cell in cells:
        partners = {one: other for pair in known.couples_of(cell) for one, other in (pair, pair[::-1])}
        for slot in range(len(cell.states)):
            if known.slot_groups[slot] in groups:
                for one in (slot, partners.get(slot, slot)):
                    if (cell.id, one) in pool.copies:
                        found[cell.id, one] = (cell, one)
    return list(found.values())


def _passed(pool: DevicePool, at: BoundaryPath, groups: dict[int, None]) -> list[Copy]:
    """Return the window pages in whole blocks that no resume at a position, or behind it, needs."""
    known, geometry, found = pool.known, pool.known.geometry, list[Copy]()
    for group in (group for group in geometry.windows if group in groups):
        first = geometry.window_start(group, at.position) // geometry.groups[group].page_tokens
        for page in range(min(first, len(at.path) * geometry.pages(group))):
            block, number = divmod(page, geometry.pages(group))
            cell = at.path[block].cell(known.number)
            for shard in range(geometry.groups[group].shards):
                slot = geometry.slot(group, shard, number)
                if cell is not None and (cell.id, slot) in pool.copies:
                    found.append((cell, slot))
    return found
