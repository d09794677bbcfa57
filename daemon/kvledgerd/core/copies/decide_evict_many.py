"""Decisions about dropping copies of many objects at once: by layout, path, position, kind and place.

Whoever operates a cache knows no prompts, so this walks cells instead of a path. A decision holds the loop up, so one
looks at a bounded run of cells and says where the next one goes on: cells are numbered as they are made, and a cell
that is made meanwhile is met as well. What a pin keeps stays, and the reply tells which sort of pin it was.
"""

from collections.abc import Iterator

from kvledger.errors import CallerError
from kvledger.geometry import bits
from kvledger.kinds import Kind
from kvledger.wire.evictions import EvictedMany, EvictMany
from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.events import Event, ObjectsEvicted, PrefixForgotten
from kvledgerd.core.commands import Ask
from kvledgerd.core.copies.records import drop_effects, dropped_refs, records_of
from kvledgerd.core.decision import Ack, Decision
from kvledgerd.core.index import Cell, Copy
from kvledgerd.core.receipts import check_digest
from kvledgerd.core.state import State
from kvledgerd.core.topology.pinned import pinned_cells

__all__ = ["LOOKED_AT", "evict_many"]

LOOKED_AT = 16_384
"""Cells that one decision looks at."""
_DROPPED = 4096
"""Objects from which on it looks at no further cell: its event names each."""
_REASON = "asked for"


def evict_many(state: State, ask: Ask, request: EvictMany) -> Decision:
    """Drop copies of one kind in the next run of cells; what is leased, pinned or at work stays and is counted."""
    if not (request.memory or request.disk):
        raise CallerError("neither memory nor disk is named", field="memory", remedy="say where copies are to go")
    if len(request.block) not in {0, 32}:
        raise CallerError(f"{len(request.block)} bytes are no hash", field="block", remedy="send 32 bytes or none")
    if not request.after:  # later its last layout may have gone
        check_digest(state, ask.caller, request.layout)
    if request.kind is Kind.DISK_PREFIX and not request.disk:
        return Decision(reply=EvictedMany(0, 0, 0))
    choice, end = _Choice(state, ask.caller.tenant, request), request.after
    while end + 1 < state.next_cell and end - request.after < LOOKED_AT and not choice.is_full:
        end += 1
        cell = state.cells.get(end)
        if cell is not None:
            choice.look(cell)
    return choice.decision(end if end + 1 < state.next_cell else 0)


class _Choice:
    """What goes and what stays."""

    def __init__(self, state: State, tenant: str, request: EvictMany) -> None:
        self._state = state
        self._tenant = tenant
        self._request = request
        self._below: dict[int, bool] = {}
        self._going: list[Copy] = []
        self._prefixes: list[Cell] = []
        self._kept: list[tuple[Cell, int]] = []
        self._memory_bytes = self._disk_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether as much goes as one event should name."""
        return len(self._going) + len(self._prefixes) >= _DROPPED

    def look(self, cell: Cell) -> None:
        """Take one cell in, if it is meant."""
        if not self._is_meant(cell):
            return
        if self._request.kind is Kind.DISK_PREFIX:
            self._look_at_prefix(cell)
            return
        slots = list(self._slots(cell))
        if cell.pins and slots:
            self._kept.append((cell, len(slots)))
            return
        known, memory, disk = self._state.layouts[cell.layout], self._request.memory, self._request.disk
        for slot in slots:
            self._memory_bytes += known.length_of(cell, slot) * (cell.memory >> slot & memory)
            self._disk_bytes += known.stored_length(cell, slot) * (cell.disk >> slot & disk)
            self._going.append((cell, slot))

    def _look_at_prefix(self, cell: Cell) -> None:
        if cell.manifest is None:
            return
        if cell.pins:
            self._kept.append((cell, 1))
            return
        known = self._state.layouts[cell.layout]
        self._prefixes.append(cell)
        self._disk_bytes += cell.manifest[2] + sum(known.stored_length(cell, slot) for slot in bits(cell.disk))

    def _is_meant(self, cell: Cell) -> bool:
        known, request = self._state.layouts[cell.layout], self._request
        if known.tenant != self._tenant or not known.layout.digest.startswith(request.layout):
            return False
        before = cell.node.depth * known.layout.block_tokens
        if request.position >= 0 and (cell.is_block or before + cell.residue != request.position):
            return False
        return not request.block or self._is_below(cell)

    def _is_below(self, cell: Cell) -> bool:
        """Tell whether a cell's path has the block; each node is climbed over once in a decision."""
        climbed, found = [], False
        for node in cell.node.upwards():
            if node.id in self._below:
                found = self._below[node.id]
                break
            climbed.append(node.id)
            if node.hash == self._request.block:
                found = True
                break
        self._below.update(dict.fromkeys(climbed, found))
        return found

    def _slots(self, cell: Cell) -> Iterator[int]:
        known, request = self._state.layouts[cell.layout], self._request
        have = (cell.memory if request.memory else 0) | (cell.disk if request.disk else 0)
        return (slot for slot in bits(have) if known.slot_kinds[slot] is request.kind)

    def decision(self, after: int) -> Decision:
        """Return what follows, and where the next one goes on."""
        leased, pinned, busy = self._why_kept()
        count = len(self._going) + len(self._prefixes)
        reply = EvictedMany(count, self._memory_bytes, self._disk_bytes, leased, pinned, busy, after)
        if self._request.dry_run or not count:
            return Decision(reply=reply)
        events, blobs = self._events(), self._blobs()
        return Decision(tuple(events), reply, Ack.DURABLE if blobs else Ack.WRITTEN, drop_effects(blobs))

    def _events(self) -> list[Event]:
        events: list[Event] = [PrefixForgotten(cell.id, _REASON) for cell in self._prefixes]
        if self._going:
            names = tuple((cell.id, slot) for cell, slot in self._going)
            memory, disk = self._request.memory, self._request.disk
            events.append(ObjectsEvicted(names, memory=memory, disk=disk, reason=_REASON))
        return events

    def _blobs(self) -> list[BlobRef]:
        blobs = dropped_refs(self._state, self._going) if self._request.disk else []
        for cell in self._prefixes:
            blobs += records_of(self._state.layouts[cell.layout], cell)
        return blobs

    def _why_kept(self) -> tuple[int, int, int]:
        """Return how many objects stay for a lease, for a graph, and for work; a lease counts before a graph."""
        if not self._kept:
            return 0, 0, 0
        leases = self._state.leases.values()
        leased = {cell.id: None for lease in leases for cell in lease.cells()}
        pinned = pinned_cells(self._state)
        counts = [0, 0, 0]
        for cell, objects in self._kept:
            why = 0 if cell.id in leased else 1 if cell.id in pinned else 2
            counts[why] += objects
        return counts[0], counts[1], counts[2]
