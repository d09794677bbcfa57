"""A state made again from its value; see `model.values`.

What a value leaves out, since the core must never read it, is poisoned.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from copy import copy
from functools import lru_cache
from typing import Any

from kvledger.kinds import Kind
from kvledger_storage.events import OfferRecord
from kvledgerd.core.epoch.epochs import Epoch
from kvledgerd.core.holdings import ArenaJob, Engine, Lease, OffloadJob, RelocationJob, RestoreJob, Unit, VerifyJob
from kvledgerd.core.index import (
    ARENA,
    FIELDS,
    FP_LOW,
    RECORD_FIELDS,
    SEGMENT,
    Cell,
    Node,
    Tree,
    joined,
    new_cell,
    new_node,
)
from kvledgerd.core.known_layout import ROW_KINDS, KnownLayout
from kvledgerd.core.placement.caps import Amount
from kvledgerd.core.placement.ghosts import Ghosts
from kvledgerd.core.placement.orders import Order
from kvledgerd.core.placement.pools import Arena, Pool
from kvledgerd.core.state import Quota, State
from model.parts import Shape
from model.scope import Scope
from model.sides import ENGINE_KEYS, TENANT, Place, Sides
from model.unlearning import Unlearning
from model.values import Values

__all__ = ["build"]

POISON = (2**62 + 12345).to_bytes(8, "little")
KINDS = {int(kind): kind for kind in Kind}
FIRST_SERIAL = 1000
"""Receipts of a state that was made again are below it."""


def build(values: Values, value: bytes) -> tuple[State, Sides]:
    """Make a state and its surroundings from their value."""
    numbers = array("I", value[:4])
    end = 4 * (numbers[0] + 1)
    numbers.frombytes(value[4:end])
    made = _Building(values.scope, iter(value[end:]))
    for number in numbers[1:]:
        shape = values.shapes[number]
        _MAKERS[shape[0]](made, shape)
    epoch = made.state.epochs[1]  # the only one, so its account is that of everything
    epoch.memory = {kind: pool.live_bytes for (_, kind), pool in made.state.pools.items()}
    epoch.disk = made.state.disk_bytes
    return made.state, made.sides


class _Building:
    """A state that is being made, part by part in the order of a value."""

    def __init__(self, scope: Scope, names: Iterator[int]) -> None:
        self.scope, self.names = scope, names
        self.state, self.sides = State(scope.config), Sides()
        self.state.stopped, self.state.incarnation, self.state.serial = False, 1, FIRST_SERIAL
        self.state.boot_id, self.state.log_id = b"b" * 16, b"l" * 16
        self.state.next_engine = 1 + len(ENGINE_KEYS)
        self.state.epochs[1] = Epoch(1, TENANT, scope.layout.model, scope.layout.weights_digest)
        self.state.next_layout = self.state.next_epoch = 2
        self.nodes: list[Node] = []
        self.cells: list[Cell] = []
        self.places: list[Place] = []

    def take(self, count: int) -> list[int]:
        """Return the next names."""
        return [next(self.names) for _ in range(count)]

    def take_cells(self, count: int) -> list[Cell]:
        """Return the cells that the next names name."""
        return [self.cells[number - 1] for number in self.take(count)]


def _arenas(made: _Building, shape: Shape) -> None:
    state = made.state
    for number, (kind, size, live, ready) in enumerate(shape[1], 1):
        arena = state.arenas[number] = Arena(number, TENANT, KINDS[kind], size)
        arena.live, arena.ready = live, ready
    state.next_arena = len(shape[1]) + 1


@lru_cache
def _known(scope: Scope) -> KnownLayout:
    key = (TENANT, scope.layout.hash_algorithm, scope.layout.tokenizer_digest, scope.layout.block_tokens)
    return KnownLayout(1, TENANT, scope.layout, Tree(1, key, new_node(0, None, b"")), Epoch(1, TENANT, "", ""))


def _tree(made: _Building, shape: Shape) -> None:
    scope, state, known = made.scope, made.state, copy(_known(made.scope))
    root = new_node(0, None, b"")
    root.holds = shape[1]
    tree = known.tree = Tree(1, known.tree.key, root)
    known.epoch = state.epochs[1]
    made.nodes = [root] * len(scope.blocks)
    for number, holds in shape[2]:
        parent = made.nodes[scope.parents[number]]
        node = made.nodes[number] = new_node(number, parent, scope.blocks[number])
        node.holds = holds
        parent.children = joined(parent.children, node)
        state.nodes[number] = tree.nodes[node.hash] = node
    state.next_node = len(scope.blocks)
    state.trees[1], state.tree_numbers[tree.key] = tree, 1
    state.layouts[1], state.layout_numbers[TENANT, scope.layout.digest, 0] = known, 1


def _cell(made: _Building, shape: Shape) -> None:
    _, block, residue, chain, marks, limbo, manifest, slots = shape
    scope, state, node, names = made.scope, made.state, made.nodes[block], made.names
    count = len(scope.geometry.block_slots) if residue < 0 else len(scope.geometry.boundary_slots)
    cell = new_cell(state.next_cell, node, 1, count, residue, scope.residues[chain])
    state.next_cell += 1
    cell.unverified, cell.uncoupled, cell.damaged, cell.pins, cell.follows, cell.used, *told = marks
    cell.revisited, cell.marks, cell.approx, cell.precisions = told
    cell.words = POISON * (FIELDS * count)
    for slot, held, content, offset, on_disk in slots:
        cell.states = cell.states[:slot] + bytes((held,)) + cell.states[slot + 1 :]
        cell.set_words(slot, FP_LOW, content, 0, next(names))
        if offset >= 0:
            cell.memory |= 1 << slot
            arena = next(names)
            cell.set_words(slot, ARENA, arena, offset, next(names))
            made.places.append((arena, offset))
        if on_disk:
            cell.disk |= 1 << slot
            cell.records = cell.records or POISON * (RECORD_FIELDS * count)
            cell.set_words(slot, SEGMENT, 1, next(names), next(names))
    cell.limbo = [(next(names), *extent) for extent in limbo] or None
    made.places += [extent[:2] for extent in cell.limbo or ()]
    cell.manifest = (1, next(names), manifest) if manifest else None
    cell.kinds = state.layouts[1].kinds_in(cell)
    if cell.kinds and residue < 0 and node.parent is not None and node.parent.cells:
        node.parent.cells[0].below += 1
    state.cells[cell.id] = cell
    made.cells.append(cell)
    name = "cells" if residue < 0 else "boundaries"
    setattr(node, name, joined(getattr(node, name), cell))
    state.touch(cell)


def _orders(made: _Building, shape: Shape) -> None:
    rows, states = made.state.reuse[TENANT] = (Unlearning(), Unlearning())
    reuse = [rows if kind in ROW_KINDS else states for kind in range(Kind.DISK_PREFIX)]
    orders = made.state.orders[TENANT] = [*map(Order, reuse), Order()]
    for kind, first, usual in shape[1]:
        goes_first = [(cell, 0) for cell in made.take_cells(first)]
        queue = [(-1, [(cell, 0) for cell in made.take_cells(usual)])] if usual else []
        orders[kind].unpack(goes_first, queue)


def _pool(made: _Building, shape: Shape) -> None:
    _, kind, live, entries, _, extents = shape
    pool = made.state.pools[TENANT, KINDS[kind]] = Pool()
    pool.arenas = {a.id: a for a in made.state.arenas.values() if a.ready and a.kind == kind}
    pool.live_bytes, pool.entries = live, entries
    for offset, length in extents:
        pool._insert(next(made.names), offset, length)


def _engines(made: _Building, shape: Shape) -> None:
    for key, silent, _, _ in shape[1]:
        number = ENGINE_KEYS.index(key) + 1
        engine = made.state.engines[number] = Engine(number, key, TENANT, 1000, 1, key[:1].decode())
        engine.silent = silent


def _lease(made: _Building, shape: Shape) -> None:
    _, block, blocks, offers = shape
    number, engine = made.take(2)
    lease = made.state.leases[number] = Lease(number, engine + 1, 1, made.nodes[block])
    lease.blocks = made.take_cells(blocks)
    told = zip(made.take(len(offers)), offers, strict=True)
    lease.offers = [OfferRecord(n, r, made.scope.residues[h], replay, ready) for n, (r, h, replay, ready) in told]
    lease.boundaries = [made.cells[c - 1] if c else None for c in made.take(len(offers))]
    made.state.engines[engine + 1].leases[number] = None


def _unit(made: _Building, shape: Shape) -> None:
    _, block, first, boundary, residue, chain, aborted, approx, offsets, filled, prints, pinned, jobs = shape
    scope, node, (number, engine, holder) = made.scope, made.nodes[block], made.take(3)
    unit = made.state.units[number] = Unit(number, engine + 1, 1, node.path(), node)
    unit.first_block, unit.boundary, unit.residue, unit.residue_hash = first, boundary, residue, scope.residues[chain]
    unit.objects = _objects(scope, first, unit.end(scope.layout.block_tokens), boundary)
    unit.places = [(next(made.names), offset) if offset >= 0 else None for offset in offsets]
    made.places += [place for place in unit.places if place is not None]
    unit.filled = list(filled)
    unit.prints = [p.to_bytes(16, "big") if p else b"" for p in prints]
    unit.pinned = made.take_cells(pinned)
    unit.jobs = dict.fromkeys(made.take(jobs))
    unit.aborted, unit.approx, unit.holder = aborted, approx, holder + 1
    if not aborted:
        made.state.engines[engine + 1].units[number] = None


@lru_cache
def _objects(scope: Scope, first: int, end: int, boundary: bool) -> list[Any]:  # noqa: FBT001  a cache has no names
    return scope.geometry.unit_objects(first, end, boundary=boundary)


def _arena_job(made: _Building, shape: Shape) -> None:
    del shape
    number, arena = made.take(2)
    made.state.jobs[number] = ArenaJob(number, arena)


def _objects_of(made: _Building, shape: Shape) -> tuple[int, list[tuple[Cell, int]]]:
    """Return a job's number and objects."""
    number = next(made.names)
    return number, list(zip(made.take_cells(len(shape[1])), shape[1], strict=True))


def _verify_job(made: _Building, shape: Shape) -> None:
    number, objects = _objects_of(made, shape)
    made.state.jobs[number] = VerifyJob(number, objects)


def _offload_job(made: _Building, shape: Shape) -> None:
    number, objects = _objects_of(made, shape)
    job = made.state.jobs[number] = OffloadJob(number, *made.take_cells(1), objects)
    job.void, job.asked = shape[2:]


def _relocation_job(made: _Building, shape: Shape) -> None:
    number, objects = _objects_of(made, shape)
    generation = next(made.names)
    places = [(next(made.names), offset) for offset in shape[2]]
    sources = [(next(made.names), offset, next(made.names)) for offset in shape[3]]
    made.state.jobs[number] = RelocationJob(number, generation, objects, places, sources)
    made.places += places


def _restore_job(made: _Building, shape: Shape) -> None:
    number, objects = _objects_of(made, shape)
    generation = next(made.names)
    places = [(next(made.names), offset) for offset in shape[2]]
    job = made.state.jobs[number] = RestoreJob(number, generation, objects, places)
    job.void = shape[3]
    made.places += places
    for cell, slot in objects if not job.void else ():
        made.state.restoring[cell.id, slot] = number


def _counts(made: _Building, shape: Shape) -> None:
    state = made.state
    state.disk_bytes, state.objects, state.growth_failed, _, _, records, quotas, ghosts, *told = shape[1:]
    state.epochs[1].state, state.degraded = told
    state.disk_use = {(TENANT, kind): Amount(*rest) for kind, *rest in records}
    state.quotas = {(TENANT, kind): Quota(*rest) for kind, *rest in quotas}
    for kind, sizes, *numbers in ghosts:
        one = state.ghosts[TENANT, kind] = Ghosts()
        one.sizes.update(sizes)
        one.bytes, one.seen, one.again, one.missed = numbers


def _pending(made: _Building, shape: Shape) -> None:
    _, what, told = shape
    number = next(made.names)
    data = [(next(made.names), *item) for item in told]
    if what == "read":
        data = [(*item, next(made.names)) for item in data]
    made.sides.pending[number] = (what, tuple(data))


def _parked(made: _Building, shape: Shape) -> None:
    for engine, label, jobs in shape[1]:
        made.sides.parked[engine] = (label, next(made.names), tuple(made.take(jobs)))


def _handles(made: _Building, shape: Shape) -> None:
    number = next(made.names)
    held = ((offer, end, next(made.names), at, content, next(made.names)) for offer, end, at, content in shape[1])
    made.sides.handles[number] = tuple(held)


def _contents(made: _Building, shape: Shape) -> None:
    for place, content in zip(made.places, shape[1], strict=True):
        made.sides.memory[place] = content
        made.sides.generations[place] = next(made.names)


def _disk(made: _Building, shape: Shape) -> None:
    made.sides.disk = {(1, number): content for number, content in shape[1]}


_MAKERS: dict[str, Callable[[_Building, Shape], None]] = {
    "arenas": _arenas,
    "tree": _tree,
    "cell": _cell,
    "orders": _orders,
    "pool": _pool,
    "engines": _engines,
    "lease": _lease,
    "unit": _unit,
    "arena": _arena_job,
    "verify": _verify_job,
    "offload": _offload_job,
    "restore": _restore_job,
    "relocation": _relocation_job,
    "counts": _counts,
    "pending": _pending,
    "parked": _parked,
    "handles": _handles,
    "contents": _contents,
    "disk": _disk,
}
