"""Admission: where new objects go, what has to make room, or why they are refused. Checked and taken in one decision.

In order: free extents; a new arena while the cap on memory allows one; eviction by kind, least recently used leaf
first, never what is leased or pinned; leases and units of engines that fell silent. What then still does not fit is
refused.
"""

from collections.abc import Iterator
from typing import NamedTuple, NoReturn

from kvledger.errors import CapacityError
from kvledger.kinds import Kind
from kvledger_storage.events import ArenaRequested, Event, LeaseEnded, ObjectsEvicted, UnitAborted
from kvledgerd.core.aging import is_leaf_bound
from kvledgerd.core.config import PAGE
from kvledgerd.core.decision import Ack, Decision, Effect, MakeArena, Park
from kvledgerd.core.holdings import ArenaJob, KnownLayout
from kvledgerd.core.index import ARENA, OFFSET, Cell
from kvledgerd.core.kinds import RULES
from kvledgerd.core.kinds.rules import MEMORY, Copy, Gone
from kvledgerd.core.orders import Order
from kvledgerd.core.pinned import pinned_bytes, pinned_cells, pinned_objects
from kvledgerd.core.pools import Extent, paged
from kvledgerd.core.runs import Runs
from kvledgerd.core.state import State

__all__ = ["VICTIMS_MAX", "Admission", "Need", "admit"]

ARENAS_MAX = 256
SHARES = 16
VICTIMS_MAX = 65_536
"""Copies that make room in one decision, which is one turn of the event loop and one event of the log."""
MEMORY_KINDS = tuple(kind for kind in Kind if kind is not Kind.DISK_PREFIX)

Need = tuple[Kind, int]
"""Kind and bytes of one object."""


class Admission(NamedTuple):
    """Places for new objects, in their order, and the copies that make room for them."""

    places: list[tuple[int, int]]
    victims: list[Copy]

    def events(self) -> tuple[Event, ...]:
        """Return the eviction that has to be applied before the places are taken."""
        if not self.victims:
            return ()
        names = tuple((cell.id, slot) for cell, slot in self.victims)
        return (ObjectsEvicted(names, memory=True, disk=False, reason="room"),)


def admit(
    state: State,
    tenant: str,
    needs: list[Need],
    protect: dict[int, int] | None = None,
    new_objects: int | None = None,
) -> Admission | Decision:
    """Find places for new objects.

    Args:
        state: The cache; not changed.
        tenant: Whose objects they are.
        needs: Kind and bytes of each object.
        protect: What the new objects build on and what must not make room for them: cells, each with a mask of slots.
        new_objects: How many of them are not counted yet; all if None.

    Returns:
        The admission, or a decision that makes room first and then decides anew: a new arena is on its way, or a silent
        engine's holdings are revoked.

    Raises:
        CapacityError: a cap would be passed and nothing may go.
    """
    places: dict[int, tuple[int, int]] = {}
    room = _Room(state, tenant, protect or {})
    crowded = room.count(len(needs) if new_objects is None else new_objects)
    if crowded is not None:
        return crowded
    for kind in Kind:
        indices = [i for i, need in enumerate(needs) if need[0] is kind]
        if not indices:
            continue
        found = room.find(kind, [needs[i][1] for i in indices])
        if isinstance(found, Decision):
            return found
        places |= dict(zip(indices, found, strict=True))
    return Admission([places[i] for i in range(len(needs))], room.victims)


class _Room:
    """What one decision finds free, and what it lets go to make room."""

    def __init__(self, state: State, tenant: str, protect: dict[int, int]) -> None:
        self.state = state
        self.tenant = tenant
        self.protect = protect
        self.victims: list[Copy] = []
        self.gone: Gone = {}
        self.freed: dict[Kind, list[Extent]] = {kind: [] for kind in Kind}
        self.ending = 0  # victims that lie nowhere else; an object that is on disk too does not end

    def count(self, new: int) -> Decision | None:
        """Let copies go until `new` objects more pass no cap on their number, or return what makes room first."""
        state, cap = self.state, self.state.config.max_objects
        kinds = sorted(MEMORY_KINDS, key=lambda kind: -len(self._order(kind)))
        going = (self._let_go(kind, cell) for kind in kinds if new <= cap for cell in self._oldest(kind))
        while state.objects + new - self.ending > cap:
            if next(going, None) is None:
                return (_revoke_silent(state, self.tenant) if new <= cap else None) or _crowded(state, new)
        return None

    def _order(self, kind: Kind) -> Order:
        orders = self.state.orders.get(self.tenant)
        return orders[kind] if orders is not None else Order()

    def _oldest(self, kind: Kind) -> Iterator[Cell]:
        """Yield the cells that may give up copies of a kind, in their order, as what they gave up makes room."""
        later: list[Cell] = []
        for cell in self._order(kind):
            yield from self._upwards(kind, cell, later)
        for cell in later:
            yield from self._upwards(kind, cell, later)

    def _upwards(self, kind: Kind, cell: Cell, later: list[Cell]) -> Iterator[Cell]:
        """Yield a cell, and if its rows go then the block before it, a leaf by now; what was revisited comes later."""
        yield cell
        while is_leaf_bound(cell, kind) and not cell.memory & ~self.gone.get(cell.id, 0):
            before = cell.node.parent.cell(cell.layout) if cell.node.parent is not None else None
            if before is None:
                return
            if before.revisited:
                later.append(before)
                return
            yield before
            cell = before

    def find(self, kind: Kind, lengths: list[int]) -> list[tuple[int, int]] | Decision:
        """Return a place for each object of one kind, or a decision that makes room first."""
        state, pool = self.state, self.state.pool(self.tenant, kind)
        total = sum(map(paged, lengths))
        cap = state.config.kind_bytes.get(kind, state.config.memory_bytes)
        if total > cap:
            _refuse(state, self.tenant, kind, total)
        freed = self.freed[kind]
        if pool.live_bytes - sum(e[2] for e in freed) + total <= cap:
            places = Runs(pool, lengths, freed).plan() if freed else pool.plan(lengths)
            growth = _grow(state, self.tenant, kind, lengths) if places is None else None
            if places is not None or growth is not None:
                return places or growth or []
        places = self._evict(kind, Runs(pool, lengths, freed), pool.live_bytes + total - cap)
        if places is not None:
            return places
        return _revoke_silent(state, self.tenant) or _refuse(state, self.tenant, kind, total)

    def _evict(self, kind: Kind, runs: Runs, least: int) -> list[tuple[int, int]] | None:
        """Let copies go, of `least` bytes or more, until everything fits; None if it never does."""
        for cell in self._oldest(kind):
            extents = self._let_go(kind, cell)
            for extent in extents:
                runs.free(extent)
            places = runs.plan_if_due() if extents and runs.freed_bytes >= least else None
            if places is not None:
                return places
        return None

    def _let_go(self, kind: Kind, cell: Cell) -> list[Extent]:
        """Let a cell's copies of a kind go with all that goes with them; return the extents of this kind."""
        known = self.state.layouts[cell.layout]
        chosen = [(copy, known.kind_of(*copy)) for copy in RULES[kind].victims(known, cell, self.gone, MEMORY)]
        if not any(other is kind for _, other in chosen) or any(self._protects(copy) for copy, _ in chosen):
            return []
        if len(self.victims) + len(chosen) > VICTIMS_MAX:
            _refuse_at_once(kind)
        already = len(self.freed[kind])
        for copy, other in chosen:
            self._drop(known, copy, other)
        return self.freed[kind][already:]

    def _protects(self, copy: Copy) -> bool:
        return bool(self.protect.get(copy[0].id, 0) >> copy[1] & 1)

    def _drop(self, known: KnownLayout, copy: Copy, kind: Kind) -> None:
        cell, slot = copy
        self.gone[cell.id] = self.gone.get(cell.id, 0) | 1 << slot
        self.ending += not cell.disk >> slot & 1
        self.freed[kind].append((cell.word(slot, ARENA), cell.word(slot, OFFSET), paged(known.length_of(cell, slot))))
        self.victims.append(copy)


def _grow(state: State, tenant: str, kind: Kind, lengths: list[int]) -> Decision | None:
    """Ask for one more arena, or wait for one that is being made; None if the cap does not allow it."""
    for job in state.jobs.values():
        arena = state.arenas[job.arena] if isinstance(job, ArenaJob) else None
        if arena is not None and (arena.tenant, arena.kind) == (tenant, kind):
            return Decision(park=Park((job.id,)))
    unplaced = state.pool(tenant, kind).unplaced(lengths) or lengths
    size = _arena_size(state, tenant, kind, paged(max(unplaced)))
    if state.growth_failed or not size or len(state.arenas) >= ARENAS_MAX:
        return None
    number = state.serial
    event = ArenaRequested(number, state.next_arena, tenant, kind, size)
    effect: Effect = MakeArena(number, state.next_arena, tenant, kind, size)
    return Decision((event,), effects=((Ack.WRITTEN, effect),), park=Park((number,)))


def _arena_size(state: State, tenant: str, kind: Kind, least: int) -> int:
    """Return the bytes of the next arena, 0 if there is no room for one of `least` bytes.

    A share stays free for every kind that has no arena yet, so that the first kind to come can not take all memory from
    those that the next layout brings.
    """
    config = state.config
    share = config.memory_bytes // SHARES
    usual = max(min(config.arena_bytes, share), paged(config.memory_bytes // ARENAS_MAX), least)
    owners = {arena.kind: None for arena in state.arenas.values() if arena.tenant == tenant}
    waiting = sum(1 for other in MEMORY_KINDS if other is not kind and other not in owners)
    left = config.memory_bytes - state.arena_bytes() - waiting * share
    size = min(usual, left)
    return size - size % PAGE if size >= least else 0


def _revoke_silent(state: State, tenant: str) -> Decision | None:
    for engine in state.engines.values():
        if engine.silent and engine.tenant == tenant and (engine.leases or engine.units):
            events: list[Event] = [LeaseEnded(number, "revoked: silent") for number in engine.leases]
            events += [UnitAborted(number, "revoked: silent") for number in engine.units]
            return Decision(tuple(events), park=Park(()))
    return None


def _crowded(state: State, new: int) -> NoReturn:
    pinned = pinned_objects(state)
    raise CapacityError(
        f"{state.objects} objects are kept, {new} more would pass the cap of {state.config.max_objects}"
        + f"; topologies pin {pinned} of them" * bool(pinned),
        field="max_objects",
        remedy="release leases, evict disk prefixes, " + "drop topologies, " * bool(pinned) + "or raise the cap",
    )


def _refuse_at_once(kind: Kind) -> NoReturn:
    raise CapacityError(
        f"more than {VICTIMS_MAX} copies would have to make room for {kind.name} in one decision",
        field="unit",
        remedy="commit smaller units, or evict prefixes that nobody needs",
    )


def _refuse(state: State, tenant: str, kind: Kind, total: int) -> NoReturn:
    pool = state.pool(tenant, kind)
    pinned = pinned_bytes(state, pinned_cells(state).values(), kind, tenant)
    raise CapacityError(
        f"{total} bytes of {kind.name} do not fit: {pool.live_bytes} are leased, pinned or built upon, "
        + f"{pinned} of these by topologies, " * bool(pinned)
        + f"{pool.free_bytes} are free; {state.config.memory_bytes - state.arena_bytes()} bytes are kept for kinds "
        f"that have no memory yet",
        field="memory_bytes",
        remedy="release leases, commit smaller units, "
        + "drop topologies, " * bool(pinned)
        + "or give the daemon more memory",
    )
