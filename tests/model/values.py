"""States as values: equal states have equal values, whatever numbers their histories happened to give.

A state is looked at part by part: its arenas, its blocks, each cell, each pool, what engines hold, what lies around. A
part has a *shape*, which is everything about it but such numbers, and *names*, which are the numbers in the order in
which the part mentions them: receipts, records, arenas, cells. Names are numbered anew in the order of their first
mention, so that two histories that differ only in numbers meet. Eviction orders stay, and those of jobs and engines.
What the core must never read (the place of a copy that is gone) is left out.

A step changes few parts, and what it makes of them was mostly seen before: a part is read once (`model.parts`) and then
known by its raw content. A value is the numbers of the shapes and the names, some two hundred bytes, from which
`model.building` makes the state again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from kvledger.kinds import Kind
from kvledgerd.core.epoch.epochs import Epoch
from kvledgerd.core.holdings import ArenaJob, Engine, Job, Lease, OffloadJob, RelocationJob, RestoreJob, Unit, VerifyJob
from kvledgerd.core.index import Cell, Node, Tree
from kvledgerd.core.placement.ghosts import Ghosts
from kvledgerd.core.placement.orders import Order
from kvledgerd.core.placement.pools import Arena, Pool
from kvledgerd.core.state import State
from model import parts
from model.parts import ARENA, CELL, ENGINE, NODE, RECORD, Raw, Shape
from model.scope import Scope
from model.sides import ENGINE_KEYS, TENANT, Place, Sides

__all__ = ["Seen", "Values"]

PARTS_KEPT = 200_000
"""Parts of one sort that are remembered before all of them are forgotten, which costs time and no more."""
GONE, NOBODY = 99, 98
"""Node of an offer whose blocks are gone, and engine of a unit that outlived it."""
KINDS = tuple(Kind)

_ARENA = attrgetter("kind", "bytes", "live", "ready")
_CELL_FIELDS = (
    *("node.hash", "residue", "residue_hash", "unverified", "uncoupled", "damaged", "pins", "follows", "used"),
    *("revisited", "marks", "approx", "precisions", "manifest", "memory", "disk"),
)
_CELL = attrgetter(*_CELL_FIELDS)
_LEASE = attrgetter("id", "engine", "node.hash")
_UNIT_FIELDS = (
    *("id", "engine", "node.hash", "first_block", "boundary", "residue", "residue_hash"),
    *("aborted", "approx", "holder"),
)
_UNIT = attrgetter(*_UNIT_FIELDS)
_COUNTS = attrgetter("disk_bytes", "objects", "growth_failed")
_GHOSTS = attrgetter("bytes", "seen", "again", "missed")
_BY_KIND, _ID = attrgetter("kind", "id"), attrgetter("id")


class Part(NamedTuple):
    """One part: number of its shape, its names, places whose content belongs to the value, and of a cell its block."""

    shape: int
    names: tuple[int, ...]
    places: tuple[Place, ...]
    at: tuple[Any, ...]


class _Parts(dict[Raw, Part]):
    """Parts of one sort by their raw content."""

    def __init__(self, values: Values, read: Callable[[Scope, Any], parts.Read]) -> None:
        super().__init__()
        self._values, self._read = values, read

    def __missing__(self, raw: Raw) -> Part:
        if len(self) >= PARTS_KEPT:
            self.clear()
        shape, names, places = self._read(self._values.scope, raw)
        part = self[raw] = Part(self._values.number(shape), names, places, shape[1:4])
        return part


class _Names(dict[int, int]):
    """Numbers in the order in which they are asked for, from 1 on."""

    last = 0

    def __missing__(self, name: int) -> int:
        if name >= ENGINE:
            return GONE if name >= NODE else NOBODY
        self.last += 1
        self[name] = self.last
        return self.last


class Seen:
    """What was read of a state: groups of parts, and the parts of single objects."""

    __slots__ = ("groups", "single")

    def __init__(self, groups: dict[str, Any], single: dict[Any, Part]) -> None:
        self.groups, self.single = groups, single

    def without(self, changed: Iterable[Any]) -> Seen:
        """Return what still holds after some objects or fields have changed."""
        groups, single = self.groups.copy(), self.single.copy()
        for one in changed:
            single.pop(one, None)
            for name in _STALE[one if type(one) is str else type(one)]:
                groups.pop(name, None)
        return Seen(groups, single)


class Values:
    """The values of one scope's states.

    Attributes:
        scope: The scope.
        shapes: Every shape that was met, by number.
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.shapes: list[Shape] = []
        self._numbers: dict[Shape, int] = {}
        sorts = "arenas tree cell orders pool engines lease unit job counts pending parked handles contents disk"
        self._parts = {sort: _Parts(self, getattr(parts, sort)) for sort in sorts.split()}
        self._cells = self._parts["cell"]

    def number(self, shape: Shape) -> int:
        """Return the number of a shape."""
        number = self._numbers.setdefault(shape, len(self.shapes))
        if number == len(self.shapes):
            self.shapes.append(shape)
        return number

    def of(self, state: State, sides: Sides, since: Seen | None = None) -> tuple[bytes, Seen]:
        """Return the value of a state with its surroundings, and what was read of it.

        Args:
            state: The state.
            sides: Its surroundings.
            since: What was read of it before, and still holds; nothing if None.
        """
        seen = Seen({}, {}) if since is None else since
        groups = seen.groups
        for name, read in _READERS.items():
            if name not in groups:
                groups[name] = read(self, state, sides, seen)
        names = _Names(groups["names"])
        found = [*chain.from_iterable([groups[name] for name in _IN_ORDER])]
        mentioned = chain(*[part[1] for part in found], groups["generations"])
        numbers = bytes(map(names.__getitem__, mentioned))
        if sides.disk:
            records = sorted([(names[RECORD + record], content) for (_, record), content in sides.disk.items()])
            found.append(self._parts["disk"][tuple(records)])
        return array("I", [len(found), *[part[0] for part in found]]).tobytes() + numbers, seen

    # --- reading a state, group by group; each returns parts ------------------------------------------------------

    def _arenas(self, state: State, sides: Sides, seen: Seen) -> list[Part]:
        del sides, seen
        arenas = sorted(state.arenas.values(), key=_BY_KIND)
        return [self._parts["arenas"][tuple(map(_ARENA, arenas))]]

    def _tree(self, state: State, sides: Sides, seen: Seen) -> list[Part]:
        del sides, seen
        tree = state.trees[1]
        return [self._parts["tree"][(tree.root.holds, *[(node.hash, node.holds) for node in tree.nodes.values()])]]

    def _cell_parts(self, state: State, sides: Sides, seen: Seen) -> list[Part]:
        """Return the parts of all cells in the order of their blocks."""
        del sides
        single = seen.single
        found = [single.get(cell) or self._cell(cell, single) for cell in state.cells.values()]
        found.sort(key=itemgetter(3))
        return found

    def _cell(self, cell: Cell, single: dict[Any, Part]) -> Part:
        limbo = tuple(cell.limbo) if cell.limbo else ()
        single[cell] = part = self._cells[(*_CELL(cell), cell.states, cell.words, cell.records, limbo)]
        return part

    def _orders(self, state: State, sides: Sides, seen: Seen) -> list[Part]:
        del sides, seen
        orders = enumerate(state.orders[TENANT])
        return [self._parts["orders"][tuple([(k, tuple(o.first), tuple(o.usual)) for k, o in orders if o])]]

    def _pools(self, state: State, sides: Sides, seen: Seen) -> list[Part]:
        del sides
        pools, single = state.pools, seen.single
        mine = [(kind, pools[TENANT, kind]) for kind in KINDS if (TENANT, kind) in pools]
        return [single.get(pool) or self._pool(kind, pool, single) for kind, pool in mine]

    def _pool(self, kind: Kind, pool: Pool, single: dict[Any, Part]) -> Part:
        raw = (kind, pool.live_bytes, pool.entries, pool.free_bytes, tuple(pool.extents()))
        single[pool] = part = self._parts["pool"][raw]
        return part

    def _engines(self, state: State, sides: Sides, seen: Seen) -> list[Part]:
        del sides, seen
        return [self._parts["engines"][tuple([_engine(engine) for engine in state.engines.values()])]]

    def _leases(self, state: State, sides: Sides, seen: Seen) -> list[Part]:
        del sides
        names = seen.groups["names"]
        leases = sorted(state.leases.values(), key=lambda held: names[ENGINE + held.engine])
        return [self._parts["lease"][_lease(lease)] for lease in leases]

    def _units(self, state: State, sides: Sides, seen: Seen) -> list[Part]:
        del sides, seen
        return [self._parts["unit"][_unit(unit)] for unit in state.units.values()]

    def _jobs(self, state: State, sides: Sides, seen: Seen) -> list[Part]:
        del sides, seen
        return [self._parts["job"][_job(job)] for job in state.jobs.values()]

    def _counts(self, state: State, sides: Sides, seen: Seen) -> list[Part]:
        del sides, seen
        records = tuple(sorted([(kind, *amount) for (_, kind), amount in state.disk_use.items()]))
        quotas = tuple(sorted([(kind, *quota) for (_, kind), quota in state.quotas.items()]))
        ghosts = tuple(sorted([(kind, tuple(g.sizes.items()), *_GHOSTS(g)) for (_, kind), g in state.ghosts.items()]))
        told = state.epochs[1].state, state.degraded
        raw = (*_COUNTS(state), len(state.nodes), len(state.restoring), records, quotas, ghosts, *told)
        return [self._parts["counts"][raw]]

    def _around(self, state: State, sides: Sides, seen: Seen) -> list[Part]:
        del state, seen
        found = [self._parts["pending"][item] for item in sides.pending.items()]
        if sides.parked:
            found.append(self._parts["parked"][tuple(sorted(sides.parked.items()))])
        return found + [self._parts["handles"][item] for item in sides.handles.items()]

    def _places(self, state: State, sides: Sides, seen: Seen) -> list[Place]:
        del state, sides
        groups = (seen.groups[name] for name in ("cells", "units", "jobs"))
        return [place for group in groups for part in group for place in part[2]]

    def _contents(self, state: State, sides: Sides, seen: Seen) -> list[Part]:
        del state
        get = sides.memory.get
        return [self._parts["contents"][tuple([get(place, 0) for place in seen.groups["places"]])]]

    def _generations(self, state: State, sides: Sides, seen: Seen) -> list[int]:
        del state
        get = sides.generations.get
        return [get(place, 0) for place in seen.groups["places"]]

    def _names(self, state: State, sides: Sides, seen: Seen) -> dict[int, int]:
        """Return the names that have a number by what they name: cells by their block, arenas by their kind."""
        del sides
        names = {0: 0, NODE: 0}
        single, blocks = seen.single, self.scope.block_numbers
        cells = sorted(state.cells.values(), key=lambda cell: single[cell][3])
        names.update([(CELL + cell.id, number) for number, cell in enumerate(cells, 1)])
        arenas = sorted(state.arenas.values(), key=_BY_KIND)
        names.update([(ARENA + arena.id, number) for number, arena in enumerate(arenas, 1)])
        names.update([(ENGINE + e.number, ENGINE_KEYS.index(e.key)) for e in state.engines.values()])
        names.update([(NODE + node.id, blocks[node.hash]) for node in state.nodes.values()])
        return names


_READERS: dict[str, Callable[[Values, State, Sides, Seen], Any]] = {
    "arenas": Values._arenas,
    "tree": Values._tree,
    "cells": Values._cell_parts,
    "names": Values._names,
    "orders": Values._orders,
    "pools": Values._pools,
    "engines": Values._engines,
    "leases": Values._leases,
    "units": Values._units,
    "jobs": Values._jobs,
    "counts": Values._counts,
    "around": Values._around,
    "places": Values._places,
    "contents": Values._contents,
    "generations": Values._generations,
}
_IN_ORDER = [name for name in _READERS if name not in {"names", "places", "generations"}]
_LYING = ("places", "contents", "generations")
_STALE: dict[type | str, tuple[str, ...]] = {
    Arena: ("arenas",),
    "arenas": ("arenas", "names"),
    Tree: ("tree", "names"),
    Node: ("tree",),
    "nodes": ("tree", "names", "counts"),
    "trees": ("tree", "names"),
    Cell: ("cells", *_LYING),
    "cells": ("cells", "names", *_LYING),
    Order: ("orders",),
    "orders": ("orders",),
    Pool: ("pools",),
    "pools": ("pools",),
    Engine: ("engines",),
    "engines": ("engines", "names", "leases"),
    Lease: ("leases",),
    "leases": ("leases",),
    Unit: ("units", *_LYING),
    "units": ("units", *_LYING),
    "jobs": ("jobs", *_LYING),
    "restoring": ("counts",),
    "counts": ("counts",),
    Ghosts: ("counts",),
    **dict.fromkeys(("disk_use", "quotas", "ghosts"), ("counts",)),
    "reuse": (),  # nothing is learnt here
    "pending": ("around",),
    "parked": ("around",),
    "handles": ("around",),
    "memory": ("contents",),
    "generations": ("generations",),
    **dict.fromkeys(("disk", "_dirty", "outcomes", "endings"), ()),
    **dict.fromkeys((OffloadJob, RestoreJob, RelocationJob), ("jobs",)),
    Epoch: ("counts",),  # what it holds is what all others tell of
}
"""Which groups of parts have to be read again after a change: of an object, or of a field of the state."""


def _engine(engine: Engine) -> Raw:
    return engine.key, engine.silent, len(engine.leases), len(engine.units)


def _lease(lease: Lease) -> Raw:
    blocks, boundaries = tuple(map(_ID, lease.blocks)), tuple([c and c.id for c in lease.boundaries])
    return (*_LEASE(lease), blocks, tuple(lease.offers), boundaries)


def _unit(unit: Unit) -> Raw:
    pinned, lists = tuple(map(_ID, unit.pinned)), (tuple(unit.places), tuple(unit.filled), tuple(unit.prints))
    return (*_UNIT(unit), *lists, pinned, tuple(unit.jobs))


def _job(job: Job) -> Raw:
    if isinstance(job, ArenaJob):
        return "arena", job.id, job.arena
    objects = tuple([(cell.id, slot) for cell, slot in job.objects])
    if isinstance(job, VerifyJob):
        return "verify", job.id, objects
    if isinstance(job, OffloadJob):
        return "offload", job.id, objects, job.boundary.id, job.void, job.asked
    if isinstance(job, RelocationJob):
        return "relocation", job.id, objects, job.generation, tuple(job.places), tuple(job.sources)
    assert isinstance(job, RestoreJob)
    return "restore", job.id, objects, job.generation, tuple(job.places), job.void
