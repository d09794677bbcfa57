"""Decisions about reservations while they are open: what a unit lacks is reserved, and what is put is copied.

Two engines that prefill the same prefix are the usual case, and both may reserve it. How a unit ends is decided in
`kvledgerd.core.units.decide_commits`.
"""

from kvledger.errors import CallerError, CapacityError, CommitRefusedError, LimitError, ServiceError
from kvledger.geometry import BOUNDARY, UnitObject
from kvledger.wire.replies import Done, Failed, Reserved
from kvledger.wire.requests import Put, PutRange, Reserve
from kvledger_storage.events import Event, PutFinished, PutStarted, UnitAborted, UnitReserved
from kvledgerd.core.commands import Ask, Copied
from kvledgerd.core.decision import Ack, CopyIn, CopyRange, Decision, Effect, Park, SetGenerations
from kvledgerd.core.holdings import Unit
from kvledgerd.core.incarnation.deadlines import late
from kvledgerd.core.index import Cell, Node, cells_along
from kvledgerd.core.kinds import require_kind
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.placement.admission import admit
from kvledgerd.core.placement.relocation import has_moved
from kvledgerd.core.receipts import check_boundary, find_layout, find_unit
from kvledgerd.core.state import State
from kvledgerd.core.units.exactness import is_approx
from kvledgerd.core.units.provenance import brings, lineage_before
from kvledgerd.core.units.tickets import brought_by, require_ticket
from kvledgerd.core.units.usability import Has, check_end, check_rows_before, stored

__all__ = [
    "UNIT_OBJECTS_MAX",
    "anchor",
    "bitmap",
    "check_size",
    "check_unit",
    "copied",
    "couples",
    "find_cells",
    "put",
    "reserve",
]

UNIT_OBJECTS_MAX = 65_536
"""Objects of one unit: its decision is one turn of the event loop, in which nobody else is served."""


def reserve(state: State, ask: Ask, request: Reserve, sources: dict[int, int] | None = None) -> Decision:
    """Reserve what a unit lacks.

    Args:
        state: The cache.
        ask: Who asks.
        request: The unit.
        sources: Cells of another layout that the daemon converts into it, each with a mask of slots; they stay.
    """
    known = find_layout(state, ask.caller, request.layout)
    known.epoch.require_commits(known.layout)
    end = check_boundary(known, request.end, "end")
    if len(state.engines[ask.caller.engine].units) >= state.config.max_units:
        raise LimitError("too many open reservations", field="max_units", remedy="commit or abort some first")
    path = known.tree.match(request.end.hashes)
    check_unit(known, request, path, end)
    check_size(state, known, request, end)
    objects = known.geometry.unit_objects(
        request.first_block, end, boundary=request.boundary, all_pages=request.all_pages
    )
    if not objects:
        raise CommitRefusedError("the unit would hold nothing", field="end", remedy="end it after its first block")
    strict = known.layout.strict_provenance
    lineage = lineage_before(state, ask.caller, known, path, request.first_block) if strict else 0
    approx = request.approx if sources else is_approx(state, ask, known, request, path)
    cells = find_cells(known, request, path)
    present = _present(known, request, cells, objects, approx=approx)
    bring = [item for item, there in zip(objects, present, strict=True) if not there]
    needs = [(known.slot_kinds[item.slot], item.length) for item in bring]
    stands_on = _stands_on(known, cells, [item for item, there in zip(objects, present, strict=True) if there])
    protect, moving = stands_on | (sources or {}), sources is None and not has_moved(state, ask)
    admission = admit(state, known.tenant, needs, protect=protect, epoch=known.epoch, moving=moving)
    if isinstance(admission, Decision):
        return admission
    depth = anchor(known, path, stands_on)
    before = lineage, tuple(sources or ()), approx
    places = iter(admission.places)
    placed = [(item, (0, 0) if there else next(places)) for item, there in zip(objects, present, strict=True)]
    return _reserved(state, ask, request, known, path[:depth], admission.events(), placed, before)


def find_cells(known: KnownLayout, request: Reserve, path: list[Node]) -> dict[int, Cell]:
    """Return what the layout keeps along a path, by block; of the unit's end as of `BOUNDARY`, if the path reaches it.

    Objects lie side by side in few cells, so none of them is looked up by itself.
    """
    found = {block: cell for block, cell in enumerate(cells_along(path, known.number)) if cell is not None}
    if 32 * len(path) == len(request.end.hashes):
        end = path[-1] if path else known.tree.root
        cell = end.boundary(known.number, request.end.residue, request.end.residue_hash)
        if cell is not None:
            found[BOUNDARY] = cell
    return found


def _stands_on(known: KnownLayout, cells: dict[int, Cell], there: list[UnitObject]) -> dict[int, int]:
    """Return cells and masks of what the unit builds on: all rows before its end, and its objects that are there.

    Other states along the path, such as windows at shorter boundaries, may make room: else a long conversation could
    fill memory with them and then be refused for ever.
    """
    kept = {cell.id: known.rows_mask for block, cell in cells.items() if block != BOUNDARY}
    for item in there:
        number = cells[item.block].id
        kept[number] = kept.get(number, 0) | 1 << item.slot
    return kept


def _reserved(
    state: State,
    ask: Ask,
    request: Reserve,
    known: KnownLayout,
    path: list[Node],
    first: tuple[Event, ...],
    placed: list[tuple[UnitObject, tuple[int, int]]],
    before: tuple[int, tuple[int, ...], bool],
) -> Decision:
    unit = state.serial
    event = UnitReserved(
        unit,
        ask.caller.engine,
        known.number,
        known.tree.id,
        path[-1].id if path else known.tree.root.id,
        request.end.hashes[32 * len(path) :],
        request.first_block,
        request.boundary,
        request.all_pages,
        request.end.residue,
        request.end.residue_hash,
        tuple([place for _, place in placed]),
        ask.caller.connection,
        *before,
    )
    moved: Effect = SetGenerations(tuple([(*place, item.length, unit) for item, place in placed if place[0]]))
    reply = Reserved(unit, bitmap([not place[0] for _, place in placed]))
    return Decision((*first, event), reply, Ack.WRITTEN, ((Ack.WRITTEN, moved),))


def anchor(known: KnownLayout, path: list[Node], kept: dict[int, int], has: Has = stored) -> int:
    """Return how many blocks of the path stay whatever makes room: something is protected at the last of them."""
    for depth in range(len(path), 0, -1):
        cell = path[depth - 1].cell(known.number)
        if cell is not None and has(cell) & kept.get(cell.id, 0):
            return depth
    return 0


def bitmap(flags: list[bool]) -> bytes:
    """Return one bit for each flag, least significant first."""
    digits = "".join("1" if flag else "0" for flag in reversed(flags))
    return int(digits or "0", 2).to_bytes(-(-len(flags) // 8), "little")


def check_unit(known: KnownLayout, request: Reserve, path: list[Node], end: int, has: Has = stored) -> None:
    """Refuse a unit that no look-up could use; `has` tells which of a cell's slots its engine could build on."""
    blocks = len(request.end.hashes) // 32
    _check_chain(known, request.end.hashes[32 * len(path) :])
    if request.first_block > blocks:
        raise CallerError(
            f"the unit has {blocks} whole blocks", field="first_block", remedy=f"start at most at block {blocks}"
        )
    if not request.boundary:
        if request.end.residue:
            raise CallerError(
                "a unit without boundary ends a block", field="end.residue", remedy="leave the residue out"
            )
        return
    check_end(known, end)
    check_rows_before(known, path, request.first_block, has)


def check_size(state: State, known: KnownLayout, request: Reserve, end: int) -> None:
    """Refuse what is too large before a list of it is made: a frame has room for thirty million objects."""
    count = known.geometry.count_unit_objects(
        request.first_block, end, boundary=request.boundary, all_pages=request.all_pages
    )
    if count > UNIT_OBJECTS_MAX:
        raise LimitError(
            f"the unit would have {count} objects, {UNIT_OBJECTS_MAX} are the most",
            field="end",
            remedy="commit a long prompt in several units, each from the `first_block` at which the one before it ends",
        )
    if count > state.config.max_objects:
        raise CapacityError(
            f"the unit would have {count} objects, all units together may have {state.config.max_objects}",
            field="max_objects",
            remedy="commit a shorter prefix, or raise the cap",
        )


def _check_chain(known: KnownLayout, fresh: bytes) -> None:
    """Refuse hashes that can be no chain: each stands for all tokens before it, so none occurs at two places."""
    new = {fresh[i : i + 32]: None for i in range(0, len(fresh), 32)}
    if 32 * len(new) < len(fresh) or any(map(known.tree.nodes.__contains__, new)):
        raise CallerError(
            "a hash occurs at two places of the tree",
            field="end.hashes",
            remedy="send chain hashes, each made of the one before it and the block's tokens",
        )


def _present(
    known: KnownLayout, request: Reserve, cells: dict[int, Cell], objects: list[UnitObject], *, approx: bool
) -> list[bool]:
    """Tell which objects are stored; of coupled rows and keys both are, or neither counts.

    Approximations count for a unit that is one itself. Under strict provenance nothing counts that the run of the unit
    made itself.
    """
    have = {block: (cell.memory | cell.disk) & (-1 if approx else ~cell.approx) for block, cell in cells.items()}
    found = [bool(have.get(item.block, 0) >> item.slot & 1) for item in objects]
    if known.layout.strict_provenance:
        found = [there and not brings(item, request.first_block) for item, there in zip(objects, found, strict=True)]
    for index, partner in couples(known, objects) if any(found) else ():
        found[index] = found[partner] = found[index] and found[partner]
    return found


def couples(known: KnownLayout, objects: list[UnitObject]) -> list[tuple[int, int]]:
    """Return the index pairs of keys and the rows that they index.

    A residue may hold whole rows of only one of the two, where they stand for different numbers of tokens.
    """
    partner = dict(zip(known.geometry.rows, known.geometry.partners, strict=True))
    index = {(o.block, o.group, o.shard): i for i, o in enumerate(objects) if o.group in partner}
    pairs = ((i, index.get((block, partner[group], shard), i)) for (block, group, shard), i in index.items())
    return [(keys, rows) for keys, rows in pairs if keys != rows]


def put(state: State, ask: Ask, request: Put) -> Decision:
    """Copy ranges from the ring into their slots; the reply comes when they lie there."""
    if ask.parked:
        outcome = state.outcomes.get(ask.parked[0])
        if outcome is not None and outcome.error:
            remedy = "reserve again, and hand in ranges that lie in the ring"
            raise ServiceError(outcome.error, field="ranges", remedy=remedy)
        return _too_late(state, ask, request) if ask.waited and outcome is None else Decision(reply=Done())
    unit = find_unit(state, ask.caller, request.unit)
    known = state.layouts[unit.layout]
    filled: dict[int, int] = {}
    _check_tickets(known, unit, ask, request)
    ranges = [_range(known, unit, filled, i, r) for i, r in enumerate(request.ranges)]
    job = state.serial
    event = PutStarted(unit.id, job, tuple((r.index, r.length) for r in request.ranges))
    copy: Effect = CopyIn(job, unit.id, ask.caller.connection, tuple(ranges))
    # What the answer tells ends with the incarnation, so it need not wait until the log has it.
    return Decision((event,), effects=((Ack.SESSION, copy),), park=Park((job,), ack=Ack.SESSION))


def _check_tickets(known: KnownLayout, unit: Unit, ask: Ask, request: Put) -> None:
    named = (item.index for item in request.ranges if item.index < len(unit.objects))
    for ticket in dict.fromkeys(brought_by(known, unit, index) for index in named):
        require_ticket(unit, ask.caller, ticket)


def _too_late(state: State, ask: Ask, request: Put) -> Decision:
    """Give the unit up: its writer may use the ring again after this answer, and the copy may still read from it."""
    unit = state.units.get(request.unit)
    running = unit is not None and not unit.aborted and any(job in unit.jobs for job in ask.parked)
    events = (UnitAborted(request.unit, "a copy did not end in time"),) if running else ()
    error = late("Put", state.config)
    remedy = "reserve again; what was handed in is dropped, since the ring may change under the copy"
    return Decision(events, Failed(error.code, error.message, error.field, remedy))


def _range(known: KnownLayout, unit: Unit, filled: dict[int, int], number: int, item: PutRange) -> CopyRange:
    field = f"ranges[{number}]"
    place = unit.places[item.index] if item.index < len(unit.places) else None
    if place is None:
        raise CallerError(
            f"the unit brings no object {item.index}", field=f"{field}.index", remedy="put what `present` leaves out"
        )
    target = unit.objects[item.index]
    require_kind(item.kind, known.geometry.groups[target.group].kind, f"{field}.kind")
    have = filled.get(item.index, unit.filled[item.index])
    if item.offset != have:
        raise CallerError(
            f"{have} bytes are there, the range starts at {item.offset}",
            field=f"{field}.offset",
            remedy="hand an object's ranges over in order, each once",
        )
    if have + item.length > target.length:
        raise CallerError(
            f"the object has {target.length} bytes, the range ends at {have + item.length}",
            field=f"{field}.length",
            remedy="send exactly the bytes that the layout declares",
        )
    filled[item.index] = have + item.length
    last = have + item.length == target.length
    return CopyRange(item.index, item.ring_offset, place[0], place[1], item.offset, item.length, last)


def copied(state: State, command: Copied) -> Decision:
    """Note what a copy brought; one that failed ends its unit."""
    unit = next((u for u in state.units.values() if command.job in u.jobs), None)
    if unit is None:
        return Decision()
    events: list[Event] = [PutFinished(unit.id, command.job, command.fingerprints, command.error)]
    if command.error and not unit.aborted:
        events.append(UnitAborted(unit.id, f"copy failed: {command.error}"))
    return Decision(tuple(events))
