"""Giving disk space up, when the disk under the log and the records is full.

The log comes first: without room for events nothing can be decided at all. So the disk prefixes that were used least
recently go, a path's leaves before what they stand on, until as much was given up as was asked for. Space comes back to
the file system when a whole file of records is dead, so the shell asks again as long as it is short.
"""

from collections.abc import Iterator

from kvledger.geometry import bits
from kvledger.kinds import Kind
from kvledger.wire.replies import Evicted
from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.copy_events import RECYCLED
from kvledger_storage.events import Event, ObjectsEvicted, PrefixForgotten
from kvledgerd.core.commands import RoomWanted
from kvledgerd.core.copies.records import drop_effects, records_of
from kvledgerd.core.decision import Ack, Decision, Effect
from kvledgerd.core.index import ASKED, Cell
from kvledgerd.core.state import State
from kvledgerd.core.structure import record_bytes
from kvledgerd.core.transitions import AT_REST

__all__ = ["recycled", "room_wanted"]

VICTIMS_MAX = 4096
"""Records of one decision: it is one turn of the event loop, in which nobody else is served."""

_ANY = Kind.DISK_PREFIX  # a tenant's whole use is told with any kind's


def room_wanted(state: State, command: RoomWanted) -> Decision:
    """Drop disk copies of `command.bytes` or more, as far as there are any that nobody holds."""
    choice = _Choice(state, command.bytes)
    while choice.look():
        pass
    return Decision(
        tuple(choice.events(command.reason)), Evicted(len(choice.blobs)), Ack.DURABLE, drop_effects(choice.blobs)
    )


def recycled(state: State, tenant: str, wanted: int) -> tuple[list[Event], tuple[tuple[Ack, Effect], ...]]:
    """Return what pushes out records of a tenant that nobody asked for, oldest first, and gives them back.

    Args:
        state: The cache.
        tenant: Whose records may go.
        wanted: Bytes that are to become free.

    Returns:
        Events and effects; none if so much can not be had.
    """
    choice = _Choice(state, wanted, unasked_of=tenant)
    while choice.look():
        pass
    return (choice.events(RECYCLED), drop_effects(choice.blobs)) if choice.suffices else ([], ())


class _Choice:
    """What goes: boundaries by cell number, copies of blocks, and the records of both.

    Args:
        state: The cache.
        wanted: Bytes that are to become free.
        unasked_of: Only what no engine asked for, of this tenant; anything if empty.
    """

    def __init__(self, state: State, wanted: int, unasked_of: str = "") -> None:
        self.prefixes: list[int] = []
        self.blocks: list[tuple[int, int]] = []
        self.blobs: list[BlobRef] = []
        self._state = state
        self._wanted = wanted
        self._unasked_of = unasked_of
        self._going: dict[int, None] = {}

    @property
    def suffices(self) -> bool:
        """Whether as much goes as was wanted."""
        return self._wanted <= 0

    def events(self, reason: str) -> list[Event]:
        """Return what happens to all that goes."""
        events: list[Event] = [PrefixForgotten(number, reason) for number in self.prefixes]
        if self.blocks:
            events.append(ObjectsEvicted(tuple(self.blocks), memory=False, disk=True, reason=reason))
        return events

    def look(self) -> bool:
        """Look through all cells once; tells whether another look could find more.

        A block on which another prefix stands is free to go at the next look only, when that has gone.
        """
        before = len(self.blobs)
        for cell in self._oldest():
            if self._is_on_disk(cell):
                self._take(cell)
            if self._wanted <= 0 or len(self.blobs) >= VICTIMS_MAX:
                return False
        return len(self.blobs) > before

    def _oldest(self) -> Iterator[Cell]:
        """Yield disk prefixes in the order of use, each with the blocks before it, and then what belongs to none.

        A block that stays keeps all before it, so the way along a path ends there: it may be thousands of blocks long,
        and thousands of prefixes may stand on it.
        """
        # Who has most gives first: a disk that one tenant filled costs the others nothing as long as that one has any
        for tenant in sorted(self._state.orders, key=self._unused):
            if self._unasked_of in {"", tenant}:
                for prefix in self._state.orders[tenant][Kind.DISK_PREFIX]:
                    if self._unasked_of and prefix.marks & ASKED:
                        continue
                    yield prefix
                    yield from self._upwards(prefix)
        if not self._unasked_of:
            yield from self._state.cells.values()

    def _unused(self, tenant: str) -> int:
        return -self._state.records_use(tenant, _ANY).tenant.bytes

    def _upwards(self, prefix: Cell) -> Iterator[Cell]:
        for node in prefix.node.upwards():
            block = node.cell(prefix.layout)
            if block is not None:
                yield block
                if self._is_on_disk(block):
                    return

    def _is_on_disk(self, cell: Cell) -> bool:
        """Tell whether something of a cell lies on disk that does not go."""
        return _on_disk(cell) and cell.id not in self._going

    def _take(self, cell: Cell) -> None:
        slots = list(bits(cell.disk))
        if cell.pins or any(cell.state(slot) not in AT_REST for slot in slots):
            return
        if cell.is_block and any(_on_disk(other) and other.id not in self._going for other in _standing_on(cell)):
            return
        known = self._state.layouts[cell.layout]
        blobs = records_of(known, cell)
        if cell.is_block:
            self.blocks += [(cell.id, slot) for slot in slots]
        else:
            self.prefixes.append(cell.id)
        self.blobs += blobs
        self._going[cell.id] = None
        self._wanted -= sum(record_bytes(blob.length) for blob in blobs)


def _standing_on(cell: Cell) -> Iterator[Cell]:
    """Yield what the same layout keeps at this block's boundaries and in the blocks right behind it."""
    node = cell.node
    for other in (*node.boundaries, *(c for child in node.children for c in (*child.cells, *child.boundaries))):
        if other.layout == cell.layout:
            yield other


def _on_disk(cell: Cell) -> bool:
    return bool(cell.disk) or cell.manifest is not None
