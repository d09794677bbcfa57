"""Room in a device pool: where new objects go and which copies make room, checked and taken in one decision.

As in memory (`kvledgerd.core.placement.admission`): free pages first, then eviction by kind, least recently used leaf
first, and never what is leased, asked for or pinned. The pages are the engine's, so only its own pool makes room for
it, and it is told what went: until it writes there the bytes are still in its hands, and it may put them into memory.
"""

from typing import NamedTuple, NoReturn

from kvledger.errors import CapacityError
from kvledger.geometry import UnitObject, bits
from kvledger.kinds import Kind
from kvledgerd.core.device_pools.device import DevicePool
from kvledgerd.core.device_pools.device_caps import device_use
from kvledgerd.core.index import Cell, Copy
from kvledgerd.core.kinds import RULES
from kvledgerd.core.kinds.rules import Gone
from kvledgerd.core.placement.caps import Amount, Passed, Scopes, first_passed, scopes_of, total
from kvledgerd.core.placement.pools import Extent
from kvledgerd.core.placement.room import VICTIMS_MAX
from kvledgerd.core.placement.runs import Runs
from kvledgerd.core.state import State

__all__ = ["DeviceRoom", "find_room"]


class DeviceRoom(NamedTuple):
    """First byte in the pool of each new object, in their order, and the copies that make room for them."""

    offsets: list[int]
    victims: list[Copy]


def find_room(state: State, pool: DevicePool, needs: list[UnitObject], protect: dict[int, int]) -> DeviceRoom:
    """Find pages for new objects.

    Args:
        state: The cache; not changed.
        pool: The device pool.
        needs: The objects.
        protect: What they build on and what must not make room for them: cells, each with a mask of slots.

    Raises:
        CapacityError: the region of a group is too small, or a cap would be passed, and nothing may go.
    """
    offsets: dict[int, int] = {}
    search = _Search(state, pool, protect)
    for group in sorted({item.group for item in needs}):
        indices = [i for i, item in enumerate(needs) if item.group == group]
        found = search.find(group, [needs[i].length for i in indices])
        offsets |= dict(zip(indices, found, strict=True))
    search.keep_caps()
    return DeviceRoom([offsets[i] for i in range(len(needs))], search.victims)


class _Search:
    """What one decision finds free, and what it lets go to make room."""

    def __init__(self, state: State, pool: DevicePool, protect: dict[int, int]) -> None:
        self.state = state
        self.pool = pool
        self.protect = protect
        self.victims: list[Copy] = []
        self.gone: Gone = {}
        self.freed: dict[int, list[Extent]] = {group: [] for group in pool.places}
        self.used = device_use(state)
        self.wanted: dict[Kind, Amount] = {}

    def find(self, group: int, lengths: list[int]) -> list[int]:
        """Return the first byte of each object of one group."""
        places = self.pool.places.get(group)
        if places is None:
            _refuse_group(self.pool, group)
        kind, size = self._kind(group), sum(places.paged(length) for length in lengths)
        self.wanted[kind] = total((self.wanted.get(kind, Amount()), Amount(size, len(lengths))))
        found = places.plan(lengths) if not self.freed[group] else None
        if found is None:
            found = self._evict(group, Runs(places, lengths, self.freed[group]))
        if found is None:
            _refuse_room(self.pool, group, size)
        return [self.pool.starts[group] + offset for _, offset in found]

    def _evict(self, group: int, runs: Runs) -> list[tuple[int, int]] | None:
        found = runs.plan()
        for number in self.pool.cells if found is None else ():
            extents = self._let_go(self._kind(group), self.state.cells[number], group)
            for extent in extents:
                runs.free(extent)
            found = runs.plan_if_due() if extents else None
            if found is not None:
                return found
        return found

    def keep_caps(self) -> None:
        """Let copies go until no cap is passed, oldest first."""
        for number in self.pool.cells:
            over = self._over()
            if over is None:
                return
            kind, passed = over
            narrow = passed.name.startswith("device_kind")
            for one in (kind,) if narrow else dict.fromkeys(map(self._kind, self.pool.places)):
                self._let_go(one, self.state.cells[number], None)
        over = self._over()
        if over is not None:
            what = f"pages for {over[0].name} in device pool {self.pool.id}"
            raise over[1].refusal(what, "free pages, release hits, fill or give up what was asked for")

    def _over(self) -> tuple[Kind, Passed] | None:
        """Return a kind for which a cap is passed, and the cap; None if none is."""
        caps, tenant = self.state.config.device(), self.pool.known.tenant
        for kind, more in self.wanted.items():
            whole = total(self.wanted.values())
            use = scopes_of(self.used, tenant, kind)
            passed = first_passed(caps, kind, use, Scopes(more, whole, whole))
            if passed is not None:
                return kind, passed
        return None

    def _kind(self, group: int) -> Kind:
        return self.pool.known.layout.groups[group].kind

    def _let_go(self, kind: Kind, cell: Cell, group: int | None) -> list[Extent]:
        """Let a cell's copies of a kind go with all that goes with them; return the extents of the group."""
        known = self.pool.known
        going = RULES[kind].victims(known, cell, self.gone, self.pool)
        chosen = [(other, slot) for other, mask in going for slot in bits(mask)]
        if not any(self._is_wanted(copy, kind, group) for copy in chosen) or any(map(self._protects, chosen)):
            return []
        if len(self.victims) + len(chosen) > VICTIMS_MAX:
            remedy = "ask for smaller units, or free prefixes that nobody needs"
            raise CapacityError(
                f"more than {VICTIMS_MAX} copies would have to make room in one decision", field="end", remedy=remedy
            )
        already = len(self.freed[group]) if group is not None else 0
        for copy in chosen:
            self._drop(copy)
        return self.freed[group][already:] if group is not None else []

    def _is_wanted(self, copy: Copy, kind: Kind, group: int | None) -> bool:
        index = self.pool.known.slot_groups[copy[1]]
        return index == group if group is not None else self._kind(index) is kind

    def _protects(self, copy: Copy) -> bool:
        return bool(self.protect.get(copy[0].id, 0) >> copy[1] & 1)

    def _drop(self, copy: Copy) -> None:
        cell, slot = copy
        pool, group = self.pool, self.pool.known.slot_groups[slot]
        size = pool.places[group].paged(pool.known.length_of(cell, slot))
        offset = pool.copies[cell.id, slot].offset - pool.starts[group]
        self.gone[cell.id] = self.gone.get(cell.id, 0) | 1 << slot
        self.freed[group].append((pool.id, offset, size))
        key = (pool.known.tenant, self._kind(group))
        self.used[key] = total((self.used[key], Amount(-size, -1)))
        self.victims.append(copy)


def _refuse_group(pool: DevicePool, group: int) -> NoReturn:
    spec = pool.known.layout.groups[group]
    raise CapacityError(
        f"device pool {pool.id} has no pages for {spec.name} ({spec.kind.name})",
        field="pages",
        remedy="register the pool with pages for every cacheable group",
    )


def _refuse_room(pool: DevicePool, group: int, total: int) -> NoReturn:
    spec, places = pool.known.layout.groups[group], pool.places[group]
    raise CapacityError(
        f"{total} bytes of {spec.name} ({spec.kind.name}) do not fit device pool {pool.id}: "
        f"{places.live_bytes} are leased, asked for, pinned or built upon, {places.free_bytes} are free",
        field="pages",
        remedy="release hits, fill or give up what was asked for, or give the group more pages",
    )
