"""More memory for a kind: where the next arena comes from, if there is to be one.

Each kind of a tenant is sure of a share: its quota if it has one, else one arena as soon as a layout of the tenant
brings the kind. What nobody is owed goes to whoever comes first. So there are five sources, cheap to dear: memory that
is free and owed to nobody else; an empty arena that another kind can spare; an arena of a kind that holds more than its
share, for one that holds less; where what was evicted of a kind is asked for again and again, an arena together with
its quota (`kvledgerd.core.placement.ghosts`); and, for what does not fit even when all of its own kind has gone that
may, an arena of any kind that keeps one, or what an operator fixed for it. An arena never changes its tenant.
"""

from functools import cached_property
from typing import NamedTuple

from kvledger.kinds import Kind
from kvledger_storage.events import ArenaRekinded, ArenaRequested, Event, ObjectsEvicted, QuotaMoved
from kvledgerd.core.config import DRILL_TENANT, PAGE
from kvledgerd.core.decision import Ack, ClearArena, Decision, Effect, MakeArena, Park
from kvledgerd.core.holdings import ArenaJob
from kvledgerd.core.index import Copy
from kvledgerd.core.placement.caps import Amount, Scopes, first_passed
from kvledgerd.core.placement.emptying import emptied
from kvledgerd.core.placement.ghosts import Ghosts, outweighs
from kvledgerd.core.placement.lending import emptiable_bytes, still_free, still_placed
from kvledgerd.core.placement.pools import Arena, paged
from kvledgerd.core.placement.sureness import (
    ARENAS_MAX,
    MEMORY_KINDS,
    awaited_bytes,
    firm_bytes,
    held_bytes,
    present_tenants,
    sure_bytes,
    usual_bytes,
)
from kvledgerd.core.state import State

__all__ = ["Wanted", "more_ahead", "more_memory"]


class Wanted(NamedTuple):
    """What found no place.

    Attributes:
        tenant: Whose it is.
        kind: Its kind.
        lengths: Bytes of each object.
        protect: What must not make room for it: cells, each with a mask of slots.
        chosen: Arenas that stay as they are, since other objects of the same unit find their places there.
        parts: Bytes of each object of the other kinds of the same unit.
        had: Bytes that are free of the kind, or become free by what goes already.
        pressed: Letting go whatever may go of the kind has not made enough room.
    """

    tenant: str
    kind: Kind
    lengths: list[int]
    protect: dict[int, int]
    chosen: dict[int, None]
    parts: dict[Kind, list[int]]
    had: int
    pressed: bool = False


def more_memory(state: State, wanted: Wanted) -> Decision | None:
    """Return a decision that gets a kind one more arena, or waits for one under way; None if there is none for it.

    A request that is decided anew after each arena comes to an end. Call a kind of it *free* if its part fits into
    what is free, *placed* if it fits once all of the kind goes that may. Arenas of kinds that the request does not
    bring only become fewer, and new ones are bounded by the caps. `earned` moves to each kind once, since what was
    missed is forgiven. `owed` lowers what kinds lack of what they are sure of, which nothing else raises. Among kinds
    of the request `lent` moves an arena from a placed kind, which stays so, to one that is not; `spare` from a free
    kind, which stays so and thereby placed, to one that is not free. So neither is undone.
    """
    for job in state.jobs.values():
        arena = state.arenas[job.arena] if isinstance(job, ArenaJob) else None
        if arena is not None and (arena.tenant, arena.kind) == (wanted.tenant, wanted.kind):
            return Decision(park=Park((job.id,)))
    search = _Search(state, wanted)
    if wanted.pressed:
        return search.lent() if search.enough() else None
    return search.new() or search.spare() or search.owed() or search.earned()


def more_ahead(state: State) -> Decision | None:
    """Return a decision that makes an arena before it is needed, for a kind that grows; None if there is none.

    To give memory its pages takes far longer than to write to them, so who needs an arena should find it made. A kind
    grows as long as less than half an arena of it is free and what nobody else is owed leaves room for another.
    """
    made = [state.arenas[job.arena] for job in state.jobs.values() if isinstance(job, ArenaJob)]
    growing = [(arena.tenant, arena.kind) for arena in made]
    for (tenant, kind), pool in state.pools.items():
        least = usual_bytes(state.config, tenant) // 2
        if pool.live_bytes and pool.free_bytes < least and (tenant, kind) not in growing:
            found = _Search(state, Wanted(tenant, kind, [PAGE], {}, {}, {}, pool.free_bytes)).new()
            if found is not None:
                return Decision(found.events, effects=found.effects)
    return None


class _Search:
    """The search for one arena."""

    def __init__(self, state: State, wanted: Wanted) -> None:
        self.state = state
        self.wanted = wanted
        self.tenant, self.kind = wanted.tenant, wanted.kind

    @cached_property
    def least(self) -> int:
        """The bytes that an arena has to have: those of the largest object that finds no place."""
        pool, lengths = self.state.pool(self.tenant, self.kind), self.wanted.lengths
        return paged(max(pool.unplaced(lengths) or lengths))

    @cached_property
    def usual(self) -> int:
        """The bytes that an arena will have if nothing is in the way."""
        return max(usual_bytes(self.state.config, self.tenant), self.least)

    def new(self) -> Decision | None:
        """Ask for an arena from memory that is free and owed to nobody else."""
        state, size = self.state, self._new_bytes()
        if state.growth_failed or not size or len(state.arenas) >= ARENAS_MAX:
            return None
        number = state.serial
        event = ArenaRequested(number, state.next_arena, self.tenant, self.kind, size)
        effect: Effect = MakeArena(number, state.next_arena, self.tenant, self.kind, size)
        return Decision((event,), effects=((Ack.WRITTEN, effect),), park=Park((number,)))

    def _new_bytes(self) -> int:
        """Return the bytes of a new arena, 0 if the caps or what others are owed leave no room for one."""
        state = self.state
        if self.tenant == DRILL_TENANT and held_bytes(state, self.tenant, self.kind):
            return 0
        use, caps = state.memory_use(self.tenant, self.kind), state.config.memory()
        free, own = caps.bytes - use.whole.bytes, caps.tenant_bytes - use.tenant.bytes
        if min(free, own) < PAGE:
            return 0  # as in all caches that are full; what the others are owed is a longer walk
        size = min(self.usual, free - self._owed_elsewhere(), own)
        size -= size % PAGE
        more = Scopes(tenant=Amount(size), whole=Amount(size))
        return size if size >= self.least and first_passed(caps, self.kind, use, more) is None else 0

    def _owed_elsewhere(self) -> int:
        """Return what other kinds, other tenants, and tenants yet to come lack of what they are sure of."""
        state = self.state
        if self.tenant == DRILL_TENANT:
            return 0  # it takes so little that it comes before every promise
        tenants = present_tenants(state, self.tenant)
        owed = sum(
            max(0, sure_bytes(state, tenant, kind) - held_bytes(state, tenant, kind))
            for tenant in tenants
            for kind in MEMORY_KINDS
            if (tenant, kind) != (self.tenant, self.kind)
        )
        return owed + awaited_bytes(state, self.tenant)

    def spare(self) -> Decision | None:
        """Take an empty arena of another kind."""
        parts = self.wanted.parts
        for arena in filter(self._can_spare, self._arenas(empty=True)):
            if arena.kind not in parts or still_free(self.state, arena, parts[arena.kind]):
                return self._rekind(arena, [])
        return None

    def owed(self) -> Decision | None:
        """Take back what this kind is sure of from one that holds more than it is sure of."""
        lacks = self._sure(self.kind) - held_bytes(self.state, self.tenant, self.kind)
        if lacks <= 0 or self.usual > lacks:
            return None
        return self._taken([arena for arena in self._arenas() if self._can_spare(arena)])

    def lent(self) -> Decision | None:
        """Take an arena of any kind that is left one, or what an operator fixed; a quota that has moved moves on."""
        state, parts = self.state, self.wanted.parts
        for arena in self._arenas():
            quota = state.quotas.get((self.tenant, int(arena.kind)))
            least = firm_bytes(state, self.tenant, arena.kind)
            if held_bytes(state, self.tenant, arena.kind) - arena.bytes < least:
                continue
            if arena.kind in parts and not still_placed(state, arena, parts[arena.kind], self.wanted.protect):
                continue
            found = self._taken([arena], moves=quota is not None and not quota.fixed)
            if found is not None:
                return found
        return None

    def enough(self) -> bool:
        """Tell whether all arenas that `lent` could ever take would do: if not, none of them is to be emptied."""
        lacking = sum(map(paged, self.wanted.lengths)) - self.wanted.had
        for kind in MEMORY_KINDS:
            if lacking <= 0 or kind is self.kind:
                continue
            part = sum(map(paged, self.wanted.parts.get(kind, ())))
            kept = max(part, firm_bytes(self.state, self.tenant, kind))
            over = held_bytes(self.state, self.tenant, kind) - kept
            if over > 0:
                lacking -= min(over, emptiable_bytes(self.state, self.tenant, kind, self.wanted.protect))
        return lacking <= 0

    def earned(self) -> Decision | None:
        """Take quota and arena from the kind whose evicted copies are missed least, if this one's are missed more."""
        state, mine = self.state, self._ghosts(self.kind)
        if not mine.missed:
            return None
        fixed = [kind for kind in MEMORY_KINDS if (q := state.quotas.get((self.tenant, int(kind)))) and q.fixed]
        if self.kind in fixed:
            return None
        givers = [
            kind
            for kind in MEMORY_KINDS
            if kind is not self.kind and kind not in fixed and outweighs(mine, self._ghosts(kind), self.usual)
        ]
        for kind in sorted(givers, key=lambda kind: self._ghosts(kind).missed):
            floor = usual_bytes(state.config)
            spare = held_bytes(state, self.tenant, kind) - floor
            found = self._taken([a for a in self._arenas() if a.kind is kind and a.bytes <= spare], moves=True)
            if found is not None:
                return found
        return None

    def _ghosts(self, kind: Kind) -> Ghosts:
        return self.state.ghosts.get((self.tenant, int(kind))) or Ghosts()

    def _sure(self, kind: Kind) -> int:
        return sure_bytes(self.state, self.tenant, kind)

    def _arenas(self, *, empty: bool = False) -> list[Arena]:
        """Return the arenas of this tenant's other kinds that are large enough, those with least in them first."""
        others = (a for a in self.state.arenas.values() if not (empty and a.live) and a.kind is not self.kind)
        right = [a for a in others if a.tenant == self.tenant and a.ready and a.id not in self.wanted.chosen]
        return sorted((a for a in right if a.bytes >= self.least), key=lambda a: (a.live, a.id))

    def _can_spare(self, arena: Arena) -> bool:
        return held_bytes(self.state, self.tenant, arena.kind) - arena.bytes >= self._sure(arena.kind)

    def _taken(self, arenas: list[Arena], *, moves: bool = False) -> Decision | None:
        """Empty the first of some arenas that can be emptied, and take it."""
        for arena in arenas:
            victims = emptied(self.state, arena, self.wanted.protect)
            if victims is not None:
                return self._rekind(arena, victims, moves=moves)
        return None

    def _rekind(self, arena: Arena, victims: list[Copy], *, moves: bool = False) -> Decision:
        events: list[Event] = []
        if moves:
            events.append(QuotaMoved(self.tenant, arena.kind, self.kind, arena.bytes))
        if victims:
            names = tuple((cell.id, slot) for cell, slot in victims)
            reason = f"memory for {self.kind.name}"
            events.append(ObjectsEvicted(names, memory=True, disk=False, reason=reason, short=(arena.kind,)))
        job = self.state.serial
        events.append(ArenaRekinded(job, arena.id, self.kind))
        effect: Effect = ClearArena(job, arena.id, self.kind)
        return Decision(tuple(events), effects=((Ack.WRITTEN, effect),), park=Park((job,)))
