"""Decisions about dropping copies on request: one kind at a time, never what is leased or pinned."""

from kvledger.errors import CallerError
from kvledger.kinds import Kind
from kvledger.wire.replies import Evicted
from kvledger.wire.requests import Evict
from kvledger_storage.events import Event, ObjectsEvicted, PrefixForgotten
from kvledgerd.core.commands import Ask
from kvledgerd.core.copies.parts import BoundaryPath, boundary_path
from kvledgerd.core.copies.records import drop_effects, dropped_refs, records_of
from kvledgerd.core.decision import Ack, Decision
from kvledgerd.core.index import Cell, Copy
from kvledgerd.core.kinds import require_kind
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.receipts import check_boundary, find_layout
from kvledgerd.core.state import State

__all__ = ["evict", "groups_named"]

ALL, BOUNDARY_ONLY = -2, -1


def evict(state: State, ask: Ask, request: Evict) -> Decision:
    """Drop copies of one kind; those that a lease or a job keeps stay and are counted."""
    known = find_layout(state, ask.caller, request.layout)
    at = boundary_path(known, request.at, check_boundary(known, request.at, "at"))
    groups = groups_named(known, request.kind, request.group)
    if request.kind is Kind.DISK_PREFIX:
        return _forget_prefix(known, at)
    drop, kept = [], 0
    for cell, slot in _named(known, request, at, groups):
        if cell.pins:
            kept += 1
        else:
            drop.append((cell, slot))
    return _dropped(state, request, drop, kept)


def groups_named(known: KnownLayout, kind: Kind, name: str) -> dict[int, None]:
    """Return the groups of a kind that a command names: one by its name, or all of the kind.

    Raises:
        CallerError: the layout has no such group.
        RoutingError: the group is of another kind.
    """
    groups = {i: None for i, g in enumerate(known.geometry.groups) if name in {"", g.name}}
    if not groups:
        raise CallerError(f"the layout has no group {name!r}", field="group", remedy="name a group of the layout")
    if name:
        require_kind(kind, known.geometry.groups[next(iter(groups))].kind, "kind")
    return {i: None for i in groups if known.geometry.groups[i].kind is kind}


def _named(known: KnownLayout, request: Evict, at: BoundaryPath, groups: dict[int, None]) -> list[Copy]:
    cells = [node.cell(known.number) for node in at.path] if request.block != BOUNDARY_ONLY else []
    if request.block >= 0:
        cells = cells[request.block : request.block + 1]
    if request.block in {ALL, BOUNDARY_ONLY}:
        cells.append(at.cell)
    return [copy for cell in cells if cell is not None for copy in _slots(known, request, cell, groups)]


def _slots(known: KnownLayout, request: Evict, cell: Cell, groups: dict[int, None]) -> list[Copy]:
    have = cell.memory | cell.disk if request.disk else cell.memory
    return [
        (cell, number)
        for number, slot in enumerate(known.slots_of(cell))
        if have >> number & 1 and slot.group in groups and request.page in {-1, slot.page}
    ]


def _dropped(state: State, request: Evict, drop: list[Copy], kept: int) -> Decision:
    if not drop:
        return Decision(reply=Evicted(0, kept))
    names = tuple((cell.id, slot) for cell, slot in drop)
    event = ObjectsEvicted(names, memory=True, disk=request.disk, reason="asked for")
    refs = dropped_refs(state, drop) if request.disk else []
    return Decision((event,), Evicted(len(drop), kept), Ack.WRITTEN, drop_effects(refs))


def _forget_prefix(known: KnownLayout, at: BoundaryPath) -> Decision:
    cell = at.cell
    if cell is None or cell.manifest is None:
        return Decision(reply=Evicted(0))
    if cell.pins:
        return Decision(reply=Evicted(0, 1))
    blobs = records_of(known, cell)
    events: tuple[Event, ...] = (PrefixForgotten(cell.id, "asked for"),)
    return Decision(events, Evicted(len(blobs)), Ack.DURABLE, drop_effects(blobs))
