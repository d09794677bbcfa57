"""States as plain values: equal states have equal values, and a state is made again from its value.

Receipts, generations, cells, arenas and records are numbered in the order in which they are met, so that two histories
that differ only in numbers meet. Eviction orders stay, and those of jobs and engines. What the core must never read
(the place of a copy that is gone) is left out, and poisoned when the state is made again.
"""

from __future__ import annotations

from array import array
from copy import copy
from typing import Any

import msgspec

from kvledger.kinds import Kind
from kvledger_storage.events import OfferRecord
from kvledgerd.core.holdings import (
    ArenaJob,
    Engine,
    Job,
    KnownLayout,
    Lease,
    OffloadJob,
    RestoreJob,
    Unit,
    VerifyJob,
)
from kvledgerd.core.index import FIELDS, Cell, Node, Tree
from kvledgerd.core.orders import Order
from kvledgerd.core.pools import Arena, Pool
from kvledgerd.core.state import State
from model.scope import Scope

__all__ = ["Digests", "Plain", "Sides", "build", "flatten", "packed"]

Plain = tuple[Any, ...]
"""The value of a state."""
Digests = tuple[int, dict[int, int]] | None
"""Digest of a state without its counters, and of each of its cells."""
TENANT = "default"
POISON = array("Q", [2**62 + 12345])
ENGINE_KEYS = (b"A" * 16, b"B" * 16)
GONE = 99
"""Node of an offer whose blocks are gone."""
KINDS = {int(kind): kind for kind in Kind}


class Sides:
    """What lies around the state: bytes in memory and on disk, jobs under way, and what engines wait for or read.

    Attributes:
        memory: (arena, offset) of each allocated object to its content, 0 if undefined.
        generations: The generation table: (arena, offset) to generation.
        disk: (segment, offset) of each record to its content.
        pending: Job to what the shell has to do: (what, data).
        parked: Engine to the label of its request, the receipt that it names, and the jobs that it waits for.
        handles: Lease to its handles: (offer or -1 for rows, end token, arena, offset, content, generation).
    """

    __slots__ = ("disk", "generations", "handles", "memory", "parked", "pending")

    def __init__(self) -> None:
        self.memory: dict[tuple[int, int], int] = {}
        self.generations: dict[tuple[int, int], int] = {}
        self.disk: dict[tuple[int, int], int] = {}
        self.pending: dict[int, tuple[str, list[Any]]] = {}
        self.parked: dict[int, tuple[str, int, list[int]]] = {}
        self.handles: dict[int, list[Any]] = {}


class _Numbers(dict):
    """Numbers in the order in which they are asked for, from 1 on; 0 stays 0."""

    def __missing__(self, key: object) -> int:
        value = self[key] = len(self)
        return value


def flatten(scope: Scope, state: State, sides: Sides) -> Plain:
    """Return the value of a state with its surroundings."""
    return _Flattening(scope, state, sides).whole()


class _Flattening:
    def __init__(self, scope: Scope, state: State, sides: Sides) -> None:
        self.scope = scope
        self.state = state
        self.sides = sides
        self.n = _Numbers({0: 0})
        self.blob = _Numbers({(0, 0): 0})
        arenas = sorted(state.arenas.values(), key=lambda a: (a.kind, a.id))
        self.sorted_arenas = arenas
        self.arena = {a.id: i for i, a in enumerate(arenas, 1)}
        self.cells = sorted(state.cells.values(), key=self._place)
        self.cell = {cell.id: i for i, cell in enumerate(self.cells, 1)}
        self.engine = {e.number: ENGINE_KEYS.index(e.key) for e in state.engines.values()}

    def whole(self) -> Plain:
        state, arena = self.state, self.arena
        tree = state.trees[1]
        blocks = self.scope.block_numbers
        return (
            [self._cell(cell) for cell in self.cells],
            sorted([blocks[node.hash], node.holds] for node in tree.nodes.values()),
            tree.root.holds,
            [[int(a.kind), a.bytes, a.live, a.ready] for a in self.sorted_arenas],
            [
                [int(kind), pool.live_bytes, [[arena[a], o, n] for a, o, n in pool.extents()]]
                for (_, kind), pool in sorted(state.pools.items())
            ],
            [[self.engine[e.number], e.silent] for e in state.engines.values()],
            [self._lease(lease) for lease in sorted(state.leases.values(), key=lambda x: self.engine[x.engine])],
            [self._unit(unit) for unit in state.units.values()],
            [self._job(job) for job in state.jobs.values()],
            [state.disk_bytes, state.objects, state.growth_failed],
            [
                [kind, [self.cell[number] for number in order.first], [self.cell[number] for number in order.usual]]
                for kind, order in enumerate(state.orders[TENANT])
                if order
            ],
            self._sides(),
            self._made_anew(),
        )

    def _made_anew(self) -> list[int]:
        """Return the sizes of what `build` derives, so that a state in which one of them is wrong is another state."""
        state = self.state
        held = [len(e.leases) for e in state.engines.values()] + [len(e.units) for e in state.engines.values()]
        return [len(state.nodes), len(state.restoring), *held, *sorted(p.free_bytes for p in state.pools.values())]

    def _place(self, cell: Cell) -> tuple[int, int, int]:
        return self.scope.block_numbers[cell.node.hash], cell.residue, self.scope.residue_numbers[cell.residue_hash]

    def _cell(self, cell: Cell) -> list[Any]:
        n, words, slots = self.n, cell.words, []
        memory, disk = cell.memory, cell.disk
        for slot, held in enumerate(cell.states):
            if not held:
                continue
            a, offset, generation, low, high, commit, segment, blob, disk_generation = words[
                slot * FIELDS : slot * FIELDS + FIELDS
            ]
            assert high == 0
            one = [slot, held, low, n[commit]]
            one += [self.arena.get(a, -a), offset, n[generation]] if memory >> slot & 1 else [0, 0, 0]
            one += [self.blob[segment, blob], n[disk_generation]] if disk >> slot & 1 else [0, 0]
            slots.append(one)
        return [
            self.scope.block_numbers[cell.node.hash],
            cell.residue,
            self.scope.residue_numbers[cell.residue_hash],
            [cell.unverified, cell.uncoupled, cell.damaged, cell.pins, cell.follows, cell.used, cell.revisited],
            sorted([self.arena[a], o, size, kind] for a, o, size, kind in cell.limbo or ()),
            [self.blob[cell.manifest[:2]], cell.manifest[2]] if cell.manifest else [],
            slots,
        ]

    def _node(self, node: Node) -> int:
        return self.scope.block_numbers[node.hash]

    def _lease(self, lease: Lease) -> list[Any]:
        numbers = {node.id: self._node(node) for node in (self.state.trees[1].root, *self.state.nodes.values())}
        offers = [
            [numbers.get(o.node, GONE), o.residue, self.scope.residue_numbers[o.residue_hash], o.replay, o.ready]
            for o in lease.offers
        ]
        return [
            self.n[lease.id],
            self.engine[lease.engine],
            self._node(lease.node),
            [self.cell[c.id] for c in lease.blocks],
            offers,
            [self.cell[c.id] if c is not None else 0 for c in lease.boundaries],
        ]

    def _unit(self, unit: Unit) -> list[Any]:
        n, residue = self.n, self.scope.residue_numbers[unit.residue_hash]
        return [
            n[unit.id],
            self.engine.get(unit.engine, -1),
            self._node(unit.node),
            unit.first_block,
            unit.boundary,
            [unit.residue, residue],
            [[self.arena[p[0]], p[1]] if p is not None else [] for p in unit.places],
            unit.filled,
            [int.from_bytes(fingerprint, "big") for fingerprint in unit.prints],
            [self.cell[c.id] for c in unit.pinned],
            [n[job] for job in unit.jobs],
            unit.aborted,
            self.engine.get(unit.holder, -1),  # each engine has one connection here, of its own number
        ]

    def _job(self, job: Job) -> list[Any]:
        n = self.n
        if isinstance(job, ArenaJob):
            return ["arena", n[job.id], self.arena[job.arena]]
        objects = [[self.cell[cell.id], slot] for cell, slot in job.objects]
        if isinstance(job, VerifyJob):
            return ["verify", n[job.id], objects]
        if isinstance(job, OffloadJob):
            return ["offload", n[job.id], objects, self.cell[job.boundary.id], job.drop_memory]
        return ["restore", n[job.id], objects, n[job.generation], [[self.arena[a], o] for a, o in job.places]]

    def _sides(self) -> list[Any]:
        sides, n, arena, blob = self.sides, self.n, self.arena, self.blob
        places = self._allocated()
        return [
            sorted([arena[p[0]], p[1], sides.memory.get(p, 0), n[sides.generations.get(p, 0)]] for p in places),
            sorted([blob[place], content] for place, content in sides.disk.items()),
            [[n[job], what, self._data(what, data)] for job, (what, data) in sides.pending.items()],
            [
                [engine, label, n[unit], [n[j] for j in jobs]]
                for engine, (label, unit, jobs) in sorted(sides.parked.items())
            ],
            [
                [n[lease], [[i, end, arena[a], o, content, n[g]] for i, end, a, o, content, g in handles]]
                for lease, handles in sides.handles.items()
            ],
        ]

    def _data(self, what: str, data: list[Any]) -> list[Any]:
        if what == "arena":
            return [self.arena[data[0]]]
        if what == "read":
            return [[self.arena[a], o, content, self.blob[seg, off]] for a, o, content, (seg, off) in data]
        return [[self.arena[a], *rest] for a, *rest in data]

    def _allocated(self) -> list[tuple[int, int]]:
        """Return the places that some object, reservation or restore owns; what lies elsewhere means nothing."""
        found = []
        for cell in self.state.cells.values():
            words, memory = cell.words, cell.memory
            found += [
                (words[slot * FIELDS], words[slot * FIELDS + 1])
                for slot in range(len(cell.states))
                if memory >> slot & 1
            ]
            found += [(a, o) for a, o, _, _ in cell.limbo or ()]
        for unit in self.state.units.values():
            found += [place for place in unit.places if place is not None]
        for job in self.state.jobs.values():
            if isinstance(job, RestoreJob):
                found += job.places
        return found


def build(scope: Scope, plain: Plain, digests: Digests = None) -> tuple[State, Sides]:
    """Make a state and its surroundings from their value.

    Args:
        scope: The scope.
        plain: What `flatten` returned.
        digests: Digest and cells' digests of the same state, so that a change that is not noted can be seen.
    """
    cells, nodes, root_holds, arenas, pools, engines, leases, units, jobs, counts, orders, sides, _ = plain
    state = State(scope.config)
    state.stopped, state.incarnation, state.boot_id, state.log_id = False, 1, b"b" * 16, b"l" * 16
    by_number = _tree(scope, state, nodes, root_holds)
    found = [_cell(scope, state, by_number, number, one) for number, one in enumerate(cells, 1)]
    state.next_cell = len(found) + 1
    _orders(state, found, orders)
    _memory(state, arenas, pools)
    for key, silent in engines:
        engine = Engine(key + 1, ENGINE_KEYS[key], TENANT, 1000, 1, "AB"[key])
        engine.silent = silent
        state.engines[key + 1] = engine
    state.next_engine = 3
    for one in leases:
        _lease(state, by_number, found, scope, one)
    for one in units:
        _unit(scope, state, by_number, found, one)
    for one in jobs:
        _job(state, found, one)
    state.disk_bytes, state.objects, state.growth_failed = counts
    state.serial = 1000
    if digests is None:
        for cell in found:
            state.touch(cell)
    else:
        state._digest, known = digests
        state._cell_digests = dict(known)
    return state, _sides(sides)


_KNOWN: dict[str, KnownLayout] = {}


def _tree(scope: Scope, state: State, nodes: list[Any], root_holds: int) -> list[Node | None]:
    model = _KNOWN.get(scope.name)
    key = (TENANT, scope.layout.hash_algorithm, scope.layout.tokenizer_digest, scope.layout.block_tokens)
    root = Node(0, None, b"")
    root.holds = root_holds
    tree = Tree(1, key, root)
    if model is None:
        model = _KNOWN[scope.name] = KnownLayout(1, TENANT, scope.layout, tree)
    known = copy(model)
    known.tree = tree
    by_number: list[Node | None] = [root, *([None] * (len(scope.blocks) - 1))]
    for number, holds in nodes:
        parent = by_number[scope.parents[number]]
        assert parent is not None
        node = by_number[number] = Node(number, parent, scope.blocks[number])
        node.holds = holds
        parent.children.append(node)
        state.nodes[number] = tree.nodes[node.hash] = node
    state.next_node = len(scope.blocks)
    state.trees[1], state.tree_numbers[key] = tree, 1
    state.layouts[1], state.layout_numbers[TENANT, scope.layout.digest] = known, 1
    return by_number


def _cell(scope: Scope, state: State, nodes: list[Node | None], number: int, plain: list[Any]) -> Cell:
    at, residue, chain, marks, limbo, manifest, slots = plain
    node = nodes[at]
    assert node is not None
    geometry = scope.geometry
    count = len(geometry.block_slots) if residue < 0 else len(geometry.boundary_slots)
    cell = Cell(number, node, 1, count, residue, scope.residues[chain])
    cell.unverified, cell.uncoupled, cell.damaged, cell.pins, cell.follows, cell.used, cell.revisited = marks
    cell.limbo = [(a, o, size, kind) for a, o, size, kind in limbo] or None
    cell.manifest = (1, manifest[0], manifest[1]) if manifest else None
    states = cell.states
    cell.words = words = POISON * (FIELDS * count)
    memory = disk = 0
    for slot, held, content, commit, arena, offset, generation, blob, disk_generation in slots:
        states[slot] = held
        base = slot * FIELDS
        words[base + 3], words[base + 4], words[base + 5] = content, 0, commit
        if arena:
            memory |= 1 << slot
            words[base], words[base + 1], words[base + 2] = arena, offset, generation
        if blob:
            disk |= 1 << slot
            words[base + 6], words[base + 7], words[base + 8] = 1, blob, disk_generation
    cell.memory, cell.disk = memory, disk
    cell.kinds = state.layouts[1].kinds_in(cell)
    state.cells[number] = cell
    (node.cells if residue < 0 else node.boundaries).append(cell)
    return cell


def _orders(state: State, cells: list[Cell], orders: list[Any]) -> None:
    for cell in cells:
        before = cell.node.parent.cell(1) if cell.kinds and cell.residue < 0 and cell.node.parent is not None else None
        if before is not None:
            before.below += 1
    state.orders[TENANT] = [Order() for _ in range(len(Kind) + 1)]
    for kind, first, usual in orders:
        order = state.orders[TENANT][kind]
        order.first.update((number, cells[number - 1]) for number in first)
        order.usual.update((number, cells[number - 1]) for number in usual)


def _memory(state: State, arenas: list[Any], pools: list[Any]) -> None:
    by_kind: dict[int, dict[int, Arena]] = {}
    for number, (kind, size, live, ready) in enumerate(arenas, 1):
        arena = state.arenas[number] = Arena(number, TENANT, KINDS[kind], size)
        arena.live, arena.ready = live, ready
        if ready:
            by_kind.setdefault(kind, {})[number] = arena
    state.next_arena = len(arenas) + 1
    for kind, live, extents in pools:
        pool = state.pools[TENANT, KINDS[kind]] = Pool()
        pool.arenas = by_kind.get(kind, {})
        pool.live_bytes = live
        for arena, offset, length in extents:
            pool._insert(arena, offset, length)


def _lease(state: State, nodes: list[Node | None], cells: list[Cell], scope: Scope, plain: list[Any]) -> None:
    number, engine, node, blocks, offers, boundaries = plain
    at = nodes[node]
    assert at is not None
    lease = state.leases[number] = Lease(number, engine + 1, 1, at)
    lease.blocks = [cells[c - 1] for c in blocks]
    lease.offers = [OfferRecord(o, r, scope.residues[h], replay, ready) for o, r, h, replay, ready in offers]
    lease.boundaries = [cells[c - 1] if c else None for c in boundaries]
    state.engines[engine + 1].leases[number] = None


def _unit(scope: Scope, state: State, nodes: list[Node | None], cells: list[Cell], plain: list[Any]) -> None:
    number, engine, at, first, boundary, (residue, chain), places, filled, prints, pinned, jobs, aborted, holder = plain
    node = nodes[at]
    assert node is not None
    unit = state.units[number] = Unit(number, engine + 1, 1, [*node.upwards()][::-1], node)
    unit.first_block, unit.boundary, unit.residue, unit.residue_hash = first, boundary, residue, scope.residues[chain]
    unit.objects = _objects(scope, first, unit.end(scope.layout.block_tokens), boundary=boundary)
    unit.places = [(p[0], p[1]) if p else None for p in places]
    unit.filled = list(filled)
    unit.prints = [p.to_bytes(16, "big") if p else b"" for p in prints]
    unit.pinned = [cells[c - 1] for c in pinned]
    unit.jobs = dict.fromkeys(jobs)
    unit.aborted = aborted
    unit.holder = holder + 1
    if not aborted:
        state.engines[engine + 1].units[number] = None


_OBJECTS: dict[tuple[str, int, int, bool], list[Any]] = {}


def _objects(scope: Scope, first: int, end: int, *, boundary: bool) -> list[Any]:
    key = (scope.name, first, end, boundary)
    if key not in _OBJECTS:
        _OBJECTS[key] = scope.geometry.unit_objects(first, end, boundary=boundary)
    return _OBJECTS[key]


def _job(state: State, cells: list[Cell], plain: list[Any]) -> None:
    what, number, *rest = plain
    if what == "arena":
        state.jobs[number] = ArenaJob(number, rest[0])
        return
    objects = [(cells[c - 1], slot) for c, slot in rest[0]]
    if what == "verify":
        state.jobs[number] = VerifyJob(number, objects)
    elif what == "offload":
        state.jobs[number] = OffloadJob(number, cells[rest[1] - 1], objects, drop_memory=rest[2])
    else:
        state.jobs[number] = RestoreJob(number, rest[1], objects, [(a, o) for a, o in rest[2]])
        for cell, slot in objects:
            state.restoring[cell.id, slot] = number


def _sides(plain: list[Any]) -> Sides:
    memory, disk, pending, parked, handles = plain
    sides = Sides()
    for arena, offset, content, generation in memory:
        sides.memory[arena, offset] = content
        sides.generations[arena, offset] = generation
    sides.disk = {(1, blob): content for blob, content in disk}
    for job, what, data in pending:
        if what == "read":
            sides.pending[job] = (what, [(a, o, content, (1, blob)) for a, o, content, blob in data])
        else:
            sides.pending[job] = (what, data)
    sides.parked = {engine: (label, unit, jobs) for engine, label, unit, jobs in parked}
    sides.handles = {lease: list(held) for lease, held in handles}
    return sides


def packed(plain: Plain) -> bytes:
    """Return a value as bytes."""
    return msgspec.msgpack.encode(plain)
