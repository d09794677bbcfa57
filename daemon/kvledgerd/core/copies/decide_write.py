"""Writing to disk what no engine asked for, as `disk_write` says: at a commit, at a second use, before it is evicted.

Eviction never waits for the disk: what goes next is written ahead of it, while memory is short, and what has a disk
copy when its turn comes loses nothing. What could not be written by then is dropped, as it would be without a disk.
Whether something is written or passed over is decided once for each cell and logged with its worth: the tokens that it
saves, the bytes that it takes, and whether a look-up has read it. Only what has been read may push out what lies on
disk, and what an engine asked to have there is pushed out by nothing.
"""

from collections.abc import Iterable
from itertools import islice, zip_longest
from typing import Final

from msgspec.structs import replace

from kvledger.errors import CapacityError
from kvledger.kinds import Kind
from kvledger.wire.replies import Offloaded
from kvledger_storage.events import Event, WriteDeclined
from kvledgerd.core.commands import DemoteDue, SaveDue, WriteDue
from kvledgerd.core.config import DiskWritePolicy
from kvledgerd.core.copies.decide_room import recycled
from kvledgerd.core.copies.parts import BoundaryPath, find_parts, path_to
from kvledgerd.core.copies.writing import Order, begin_write, precisions_for, shares, to_write
from kvledgerd.core.decision import Ack, Decision, Effect, Later
from kvledgerd.core.holdings import OffloadJob
from kvledgerd.core.index import READ, WEIGHED, Cell, Copy, Node
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.placement.admission_disk import Writing, admit_records
from kvledgerd.core.placement.room import Room
from kvledgerd.core.placement.sureness import MEMORY_KINDS
from kvledgerd.core.state import State
from kvledgerd.core.structure import record_bytes
from kvledgerd.core.transitions import ObjectState

__all__ = ["demote_due", "demote_later", "save_due", "unsaved", "write_due", "write_later"]

LOOKED_AT = 64
"""Cells of a kind that one decision looks at: it is made often, and is one turn of the event loop."""
AHEAD = 8
"""What goes next is written once less than this part of what a kind holds is free."""
JUDGED = 16
"""Boundaries that one decision judges, each a walk along its path."""
_OFFLOADING: Final = int(ObjectState.OFFLOADING)
_REWRITING: Final = int(ObjectState.REWRITING)


def write_later(state: State, known: KnownLayout, at: tuple[Node, int, bytes], why: DiskWritePolicy) -> list[Effect]:
    """Return the effect that has a boundary written, if the policy says so; it is decided anew when it is due.

    Args:
        state: The cache.
        known: Its layout.
        at: Last whole block of the boundary, tokens after that, and their hash.
        why: The policy that would have it written now.
    """
    if why is not state.config.disk_write or known.epoch.engine or not state.config.disk_bytes:
        return []
    node, residue, chain = at
    return [Later(WriteDue(known.number, node.hash, residue, chain))]


def demote_later(state: State, tenant: str) -> list[Effect]:
    """Return the effect that has written what goes next, if memory is short."""
    if state.config.disk_write is DiskWritePolicy.ASKED or not state.config.disk_bytes:
        return []
    return [Later(DemoteDue(tenant))] if any(_is_short(state, tenant, kind) for kind in MEMORY_KINDS) else []


def write_due(state: State, command: WriteDue) -> Decision:
    """Write one boundary, if it is still there and not on disk yet."""
    known = state.layouts.get(command.layout)
    if known is None or state.tier.read_only:
        return Decision()
    node = known.tree.nodes.get(command.block) if command.block else known.tree.root
    if node is None:
        return Decision()
    batch = _Batch(state, command)
    cell = node.boundary(known.number, command.residue, command.residue_hash)
    batch.consider(known, node, cell, command.residue, state.config.disk_write.value)
    return batch.decision()


def demote_due(state: State, command: DemoteDue) -> Decision:
    """Write what goes next of each kind that is short of memory; goes on when that is written."""
    batch = _Batch(state, command)
    room = Room(state, command.tenant, {})
    for kind in MEMORY_KINDS:
        if _is_short(state, command.tenant, kind):
            batch.take(command.tenant, islice(room.oldest(kind), LOOKED_AT), "goes next")
    return batch.decision()


def unsaved(state: State) -> list[int]:
    """Return the cells of which something would be lost with the memory, most recently used first, by tenants in turn.

    It walks through all of them, so a stop asks for them once and has them saved some at a time.
    """
    found = [
        dict.fromkeys(cell.id for kind in MEMORY_KINDS for cell in reversed(orders[kind]) if _is_open(cell))
        for orders in state.orders.values()
    ]
    return [number for turn in zip_longest(*found) for number in turn if number is not None]


def save_due(state: State, command: SaveDue) -> Decision:
    """Write what is named, before an orderly stop; the reply counts what is being written now."""
    batch = _Batch(state, command)
    cells = [state.cells[number] for number in command.cells if number in state.cells]
    # Who has least on its way comes first, or a tenant with little would wait for all of one with much
    for tenant in sorted(state.orders, key=lambda tenant: batch.written.get(tenant, 0)):
        mine = (cell for cell in cells if state.layouts[cell.layout].tenant == tenant)
        batch.take(tenant, mine, "the daemon stops")
    running = [job.objects for job in state.jobs.values() if isinstance(job, OffloadJob)]
    objects = sum(map(len, running)) + sum(len(one.objects) + 1 for one in batch.writing)
    return replace(batch.decision(), reply=Offloaded(objects, batch.bytes), ack=Ack.WRITTEN)


class _Batch:
    """What one decision begins to write, and what it passes over.

    Args:
        state: The cache; not changed.
        command: What is decided again once room was made on disk.

    Attributes:
        writing: What is begun.
        written: Bytes of that, and of what the daemon writes already, by tenant.
    """

    def __init__(self, state: State, command: WriteDue | DemoteDue | SaveDue) -> None:
        self.writing: list[Writing] = []
        self.written: dict[str, int] = {}
        for job in state.jobs.values():
            if isinstance(job, OffloadJob) and not job.asked:
                known = state.layouts[job.layout]
                self.written[known.tenant] = self.written.get(known.tenant, 0) + _size(known, job.objects)
        self._state = state
        self._command = command
        self._events: list[Event] = []
        self._effects: list[tuple[Ack, Effect]] = []
        self._taken: dict[tuple[int, int], None] = {}
        self._ends: dict[tuple[int, int, int, bytes], None] = {}
        self._judged = self._made = 0
        self._recycled = False

    def decision(self) -> Decision:
        """Return what was decided."""
        effects = list(self._effects)
        if self._recycled:
            again = replace(self._command, tries=self._command.tries + 1)
            effects.append((Ack.WRITTEN, Later(again)))
        return Decision(tuple(self._events), effects=tuple(effects))

    @property
    def bytes(self) -> int:
        """Bytes of all tenants."""
        return sum(self.written.values())

    def take(self, tenant: str, cells: Iterable[Cell], why: str) -> None:
        """Judge a tenant's cells in their order, as many as one decision may; what is not written is passed over."""
        for cell in cells:
            if self._is_full(tenant):
                return
            if not _is_open(cell):
                continue
            known = self._state.layouts[cell.layout]
            reasons = [self.consider(known, *at, why) for at in _boundaries(cell)]
            if all(reasons):
                self._events.append(WriteDeclined(cell.id, reasons[-1]))

    def consider(self, known: KnownLayout, node: Node, cell: Cell | None, residue: int, why: str) -> str:
        """Begin to write one boundary; returns why it is not worth it, empty if it is, or is on its way."""
        self._judged += 1
        at = path_to(known, node, residue, cell)
        if known.epoch.engine or not known.epoch.takes_commits(known.layout):
            return "its weights are unnamed, draining or retired"
        if not at.position or known.geometry.uneven_group(at.position) is not None:
            return f"{at.position} is no boundary of its layout"
        parts = find_parts(known, at)
        if parts.lacking:
            return f"nothing can resume at {at.position}"
        todo = to_write(known, parts.found)
        done = not todo and cell is not None and cell.manifest is not None
        if done or self._is_busy(known, at, todo):
            return ""
        writing = Writing(known, at.node, todo, precisions_for(self._state.config.disk_precision, known, todo))
        return self._admit(at, parts.found, writing, f"{why}: {_worth(at, writing)}")

    def _admit(self, at: BoundaryPath, objects: list[Copy], writing: Writing, reason: str) -> str:
        known, todo = writing.known, writing.objects
        try:
            admit_records(self._state, writing, self.writing)
        except CapacityError as error:
            return self._make_room(at, writing, error.message)
        made = self._state.next_cell + self._made
        self._made += at.cell is None
        residue = at.position - at.node.depth * known.layout.block_tokens
        chain = at.cell.residue_hash if at.cell is not None else b""
        order = Order(self._state.serial + len(self.writing), made, 0, reason, residue, chain, writing.precisions)
        event, write = begin_write(known, at, objects, todo, order)
        self._events.append(event)
        self._effects.append((Ack.WRITTEN, write))
        self.writing.append(writing)
        self._taken |= {(c.id, s): None for c, s in todo}
        self._ends[_end(known.number, at.node, at.cell)] = None
        self.written[known.tenant] = self.written.get(known.tenant, 0) + _size(known, todo)
        return ""

    def _make_room(self, at: BoundaryPath, writing: Writing, why: str) -> str:
        """Push out what lies on disk unasked and was used least recently; the write is decided anew after it."""
        if self._recycled:
            return ""
        if self._command.tries or not _is_read(writing.known, at):
            return f"{_worth(at, writing)}; {why}"
        wanted = sum(map(record_bytes, (*writing.lengths(), 0)))
        events, drop = recycled(self._state, writing.known.tenant, wanted)
        if not events:
            return why
        self._events += events
        self._effects += drop
        self._recycled = True
        return ""

    def _is_busy(self, known: KnownLayout, at: BoundaryPath, todo: list[Copy]) -> bool:
        """Tell whether something is being written already, or can not be trusted before it was verified."""
        if any((c.id, s) in self._taken or c.unverified >> s & 1 for c, s in todo):
            return True
        jobs = [job for job in self._state.jobs.values() if isinstance(job, OffloadJob)]
        # Of a boundary whose manifest alone lacks no object tells that it is being written
        written = (_end(job.layout, job.boundary.node, job.boundary) for job in jobs)
        end = _end(known.number, at.node, at.cell)
        return end in self._ends or end in written or any(shares(job, todo) for job in jobs)

    def _is_full(self, tenant: str) -> bool:
        """Tell whether no more is begun now; a tenant's equal part of what may be on its way is its own."""
        if self._state.tier.read_only or self._recycled or self._judged >= JUDGED:
            return True
        config = self._state.config
        own = config.write_bytes // max(config.tenants, 1)
        return self.bytes >= config.write_bytes and self.written.get(tenant, 0) >= own


def _worth(at: BoundaryPath, writing: Writing) -> str:
    read = "" if _is_read(writing.known, at) else "not "
    return f"saves {at.position} tokens for {sum(writing.lengths())} bytes, {read}read since it was stored"


def _end(layout: int, node: Node, cell: Cell | None) -> tuple[int, int, int, bytes]:
    """Return the name of a boundary, which has no cell as long as nothing is kept of it but blocks."""
    return (layout, node.id, 0, b"") if cell is None else (layout, node.id, cell.residue, cell.residue_hash)


def _size(known: KnownLayout, objects: list[Copy]) -> int:
    return sum(known.length_of(c, s) for c, s in objects)


def _is_read(known: KnownLayout, at: BoundaryPath) -> bool:
    cell = at.cell if at.cell is not None else at.node.cell(known.number)
    return cell is not None and bool(cell.marks & READ)


def _is_open(cell: Cell) -> bool:
    """Tell whether something of a cell could be lost with the memory, and nobody has judged that or is writing it."""
    if cell.marks & WEIGHED or _OFFLOADING in cell.states or _REWRITING in cell.states:
        return False
    return bool(cell.memory & ~cell.disk) or (not cell.is_block and bool(cell.memory) and cell.manifest is None)


def _boundaries(cell: Cell) -> list[tuple[Node, Cell | None, int]]:
    """Return the boundaries that would bring a cell back: its own, or those at its block's end.

    The longest come first, and there is always one.
    """
    node = cell.node
    if not cell.is_block:
        return [(node, cell, cell.residue)]
    own = [b for b in node.boundaries if b.layout == cell.layout]
    found: list[tuple[Node, Cell | None, int]] = [(node, b, b.residue) for b in own]
    if all(b.residue for b in own):
        found.append((node, None, 0))
    return sorted(found, key=lambda at: -at[2])


def _is_short(state: State, tenant: str, kind: Kind) -> bool:
    """Tell whether less is free for a kind than what is to be written ahead."""
    pool = state.pools.get((tenant, kind))
    if pool is None or not pool.live_bytes:
        return False
    unused = max(state.config.memory_bytes - state.arena_bytes(), 0)
    return pool.free_bytes + unused < pool.live_bytes // AHEAD
