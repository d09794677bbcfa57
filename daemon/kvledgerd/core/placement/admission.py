"""Admission: where new objects go, what has to make room, or why they are refused. Checked and taken in one decision.

In order: free extents; more memory for the kind (`kvledgerd.core.placement.growth`); other objects that move aside,
where enough is free and lies apart (`kvledgerd.core.placement.relocation`); eviction by kind, never what is
leased or pinned; memory of other kinds; leases and units of engines that fell silent. What then still does not fit is
refused, and the refusal names the cap, its use and the remedy. An epoch at the end of its share makes room among its
own first.
"""

from typing import NamedTuple, NoReturn

from kvledger.counts import counted
from kvledger.errors import CapacityError
from kvledger.kinds import Kind
from kvledger_storage.copy_events import ROOM
from kvledger_storage.events import Event, LeaseEnded, ObjectsEvicted, UnitAborted
from kvledgerd.core.decision import Decision, Park
from kvledgerd.core.epoch.epochs import FULL_SHARE, Epoch
from kvledgerd.core.epoch.shares import keep_share, keep_whole_share, refuse_share, share_of, whole_share
from kvledgerd.core.index import Copy
from kvledgerd.core.placement.caps import Amount, Passed, Scopes, first_passed
from kvledgerd.core.placement.growth import Wanted, more_memory
from kvledgerd.core.placement.pools import paged
from kvledgerd.core.placement.relocation import make_way
from kvledgerd.core.placement.room import Room
from kvledgerd.core.placement.runs import Runs
from kvledgerd.core.placement.sureness import MEMORY_KINDS, most_bytes, usual_bytes
from kvledgerd.core.state import State
from kvledgerd.core.topology.pinned import pinned_bytes, pinned_cells, pinned_objects

__all__ = ["Admission", "Need", "admit"]

Need = tuple[Kind, int]
"""Kind and bytes of one object."""


class Admission(NamedTuple):
    """Places for new objects, in their order, the copies that make room for them, and kinds that wanted memory."""

    places: list[tuple[int, int]]
    victims: list[Copy]
    short: tuple[Kind, ...]

    def events(self) -> tuple[Event, ...]:
        """Return the eviction that has to be applied before the places are taken."""
        if not self.victims:
            return ()
        names = tuple((cell.id, slot) for cell, slot in self.victims)
        return (ObjectsEvicted(names, memory=True, disk=False, reason=ROOM, short=self.short),)


def admit(
    state: State,
    tenant: str,
    needs: list[Need],
    protect: dict[int, int] | None = None,
    new_objects: int | None = None,
    epoch: Epoch | None = None,
    *,
    moving: bool = False,
) -> Admission | Decision:
    """Find places for new objects.

    Args:
        state: The cache; not changed.
        tenant: Whose objects they are.
        needs: Kind and bytes of each object.
        protect: What the new objects build on and what must not make room for them: cells, each with a mask of slots.
        new_objects: How many of them are not counted yet; all if None.
        epoch: The epoch whose share they come out of; None for none.
        moving: Whether other objects may move so that they find a place.

    Returns:
        The admission, or a decision that makes room first and then decides anew: a new arena is on its way, or a silent
        engine's holdings are revoked.

    Raises:
        CapacityError: a cap would be passed and nothing may go.
    """
    indices: dict[Kind, list[int]] = {}
    for index, (kind, _) in enumerate(needs):
        indices.setdefault(kind, []).append(index)
    lengths = {kind: [needs[i][1] for i in mine] for kind, mine in indices.items()}
    seeking = _Seeking(state, tenant, protect or {}, epoch, lengths, moving=moving)
    crowded = seeking.count(len(needs) if new_objects is None else new_objects, len(needs))
    crowded = crowded or seeking.keep_whole_share()
    if crowded is not None:
        return crowded
    places = [(0, 0)] * len(needs)
    for kind in sorted(indices):
        found = seeking.find(kind, lengths[kind])
        if isinstance(found, Decision):
            return found
        for index, place in zip(indices[kind], found, strict=True):
            places[index] = place
        seeking.chosen |= dict.fromkeys(arena for arena, _ in found)
    return Admission(places, seeking.room.victims, tuple(seeking.short))


class _Seeking:
    """Places that one decision looks for, and the room that it makes for them."""

    def __init__(
        self,
        state: State,
        tenant: str,
        protect: dict[int, int],
        epoch: Epoch | None,
        lengths: dict[Kind, list[int]],
        *,
        moving: bool,
    ) -> None:
        self.state = state
        self.tenant = tenant
        self.protect = protect
        self.epoch = epoch
        self.lengths = lengths
        self.moving = moving
        self.caps = state.config.memory()
        self.room = Room(state, tenant, protect)
        self.short: list[Kind] = []
        self.chosen: dict[int, None] = {}  # arenas in which other objects of the same unit find their places

    def count(self, objects: int, entries: int) -> Decision | None:
        """Let copies go until the new ones pass no cap on their number, or return what makes room first.

        Args:
            objects: Objects that are not counted yet.
            entries: Objects that come into memory.
        """
        passed = self._too_many(objects, entries)
        if passed is None:
            return None
        possible = passed.wanted <= passed.cap
        kinds = sorted(MEMORY_KINDS, key=lambda kind: -len(self.room.order(kind))) if possible else ()
        going = (self.room.let_go(kind, cell) for kind in kinds for cell in self.room.oldest(kind))
        while passed is not None:
            if next(going, None) is None:
                return (_revoke_silent(self.state, self.tenant) if possible else None) or _crowded(self.state, passed)
            passed = self._too_many(objects, entries)
        return None

    def _too_many(self, objects: int, entries: int) -> Passed | None:
        """Return the cap on a number that would be passed, with what goes already taken off."""
        state, room = self.state, self.room
        kept = state.objects - room.ending
        if kept + objects > state.config.max_objects and objects:
            return Passed("max_objects", state.config.max_objects, kept, objects)
        more, going = Amount(0, entries), len(room.victims)
        mine = sum(pool.entries for (tenant, _), pool in state.pools.items() if tenant == self.tenant)
        whole = sum(pool.entries for pool in state.pools.values())
        use = Scopes(tenant=Amount(0, mine - going), whole=Amount(0, whole - going))
        return first_passed(self.caps, Kind.COMPRESSED_KV, use, Scopes(tenant=more, whole=more))

    def find(self, kind: Kind, lengths: list[int]) -> list[tuple[int, int]] | Decision:
        """Return a place for each object of one kind, or a decision that makes room first."""
        state, pool = self.state, self.state.pool(self.tenant, kind)
        wanted = Amount(sum(map(paged, lengths)), len(lengths))
        freed = self.room.freed[kind]
        cap = self.caps.of(kind).kind
        if wanted.bytes > cap.bytes or wanted.entries > cap.entries or self._is_beyond(kind, wanted.bytes):
            _refuse(state, self.tenant, kind, wanted)
        over = self._keep_share(kind, wanted)
        if over is not None:
            return over
        fits, runs = self._fits(kind, wanted), Runs(pool, lengths, freed) if freed else None
        if fits:
            places = runs.plan() if runs is not None else pool.plan(lengths)
            more = self._grow(kind, lengths) or self._make_way(kind, lengths) if places is None else None
            if places is not None or more is not None:
                return places or more or []
            self.short.append(kind)
        places = self._evict(kind, runs or Runs(pool, lengths, freed), wanted, fits=fits)
        if places is not None:
            return places
        lent = self._grow(kind, lengths, pressed=True) if self._fits(kind, wanted) else None
        return lent or _revoke_silent(state, self.tenant) or _refuse(state, self.tenant, kind, wanted)

    def _is_beyond(self, kind: Kind, wanted: int) -> bool:
        """Tell whether a kind could never hold so much; what its arenas hold it could in any case."""
        pool = self.state.pool(self.tenant, kind)
        return wanted > pool.live_bytes + pool.free_bytes and wanted > most_bytes(self.state, self.tenant, kind)

    def keep_whole_share(self) -> Decision | None:
        """Keep within the share of the epoch in all kinds together, or return what makes room first."""
        epoch = self.epoch
        if epoch is None or epoch.share == FULL_SHARE:
            return None
        total = sum(paged(size) for sizes in self.lengths.values() for size in sizes)
        if keep_whole_share(self.state, self.room, epoch, total):
            return None
        share = whole_share(epoch, self.caps)
        return _revoke_silent(self.state, self.tenant) or refuse_share(epoch, "all kinds", total, share)

    def _keep_share(self, kind: Kind, wanted: Amount) -> Decision | None:
        """Keep within the share of the epoch, or return what makes room first."""
        epoch = self.epoch
        if epoch is None or epoch.share == FULL_SHARE or keep_share(self.state, self.room, epoch, kind, wanted.bytes):
            return None
        share = share_of(epoch, self.state.config.memory(), kind)
        return _revoke_silent(self.state, self.tenant) or refuse_share(epoch, kind.name, wanted.bytes, share)

    def _grow(self, kind: Kind, lengths: list[int], *, pressed: bool = False) -> Decision | None:
        had = self.state.pool(self.tenant, kind).free_bytes + self.room.freed_bytes[kind]
        parts = {other: sizes for other, sizes in self.lengths.items() if other is not kind}
        wanted = Wanted(self.tenant, kind, lengths, self.protect, self.chosen, parts, had, pressed)
        return more_memory(self.state, wanted)

    def _make_way(self, kind: Kind, lengths: list[int]) -> Decision | None:
        """Let other objects move, where enough is free and lies apart; nothing has to go for that."""
        return make_way(self.state, self.tenant, kind, lengths) if self.moving and not self.room.victims else None

    def _fits(self, kind: Kind, wanted: Amount) -> bool:
        """Tell whether the caps of the kind take so much more, with what goes already taken off."""
        pool, room = self.state.pool(self.tenant, kind), self.room
        left = Amount(pool.live_bytes - room.freed_bytes[kind], pool.entries - len(room.freed[kind]))
        return first_passed(self.caps, kind, Scopes(left), Scopes(wanted)) is None

    def _evict(self, kind: Kind, runs: Runs, wanted: Amount, *, fits: bool) -> list[tuple[int, int]] | None:
        """Let copies go until everything fits and passes no cap; None if it never does."""
        cap, pool = self.caps.of(kind).kind, self.state.pool(self.tenant, kind)
        least = Amount(pool.live_bytes + wanted.bytes - cap.bytes, pool.entries + wanted.entries - cap.entries)
        freed = self.room.freed[kind]
        for cell in self.room.oldest(kind):
            extents = self.room.let_go(kind, cell)
            for extent in extents:
                runs.free(extent)
            if not fits and self.room.freed_bytes[kind] >= least.bytes and len(freed) >= least.entries:
                fits = self._fits(kind, wanted)
            places = runs.plan_if_due() if extents and fits else None
            if places is not None:
                return places
        return runs.plan() if fits else None


def _revoke_silent(state: State, tenant: str) -> Decision | None:
    for engine in state.engines.values():
        if engine.silent and engine.tenant == tenant and (engine.leases or engine.units):
            events: list[Event] = [LeaseEnded(number, "revoked: silent") for number in engine.leases]
            events += [UnitAborted(number, "revoked: silent") for number in engine.units]
            return Decision(tuple(events), park=Park(()))
    return None


def _crowded(state: State, passed: Passed) -> NoReturn:
    pinned = pinned_objects(state)
    raise passed.refusal(
        f"{counted(passed.wanted, 'object')} would not fit",
        "release leases, evict disk prefixes" + ", drop topologies" * bool(pinned),
        f"topologies pin {counted(pinned, 'object')}" * bool(pinned),
    )


def _refuse(state: State, tenant: str, kind: Kind, wanted: Amount) -> NoReturn:
    pool, caps, use = state.pool(tenant, kind), state.config.memory(), state.memory_use(tenant, kind)
    pinned = pinned_bytes(state, pinned_cells(state).values(), kind, tenant)
    held = f"{pool.live_bytes} are leased, pinned or built upon, " + f"{pinned} of these by topologies, " * bool(pinned)
    held += f"{pool.free_bytes} are free"
    remedy = "release leases, commit smaller units" + ", drop topologies" * bool(pinned)
    # An arena is what memory is given out in, so where the kind's own caps hold, one more of them is what lacks.
    size = max(usual_bytes(state.config, tenant), wanted.bytes - pool.free_bytes)
    more = Scopes(wanted, Amount(size), Amount(size))
    passed = first_passed(caps, kind, use, more)
    if passed is not None:
        raise passed.refusal(f"{wanted.bytes} bytes of {kind.name} do not fit", remedy, held)
    raise CapacityError(
        f"{wanted.bytes} bytes of {kind.name} do not fit: {held}; what is left of memory_bytes is kept for other kinds",
        field="memory_bytes",
        remedy=f"{remedy}, give {kind.name} a quota, or raise memory_bytes",
    )
