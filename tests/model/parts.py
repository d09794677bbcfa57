"""The parts of a state, told apart into shape and names; see `model.values`.

Each function reads the raw content of one part. Names of different sorts lie in different ranges, so that one table
numbers them all.
"""

from __future__ import annotations

import struct
from typing import Any

from kvledgerd.core.index import FIELDS, RECORD_FIELDS
from model.scope import Scope

__all__ = [
    "ARENA",
    "CELL",
    "ENGINE",
    "NODE",
    "RECORD",
    "Raw",
    "Read",
    "Shape",
    "arenas",
    "cell",
    "contents",
    "counts",
    "disk",
    "engines",
    "handles",
    "job",
    "lease",
    "orders",
    "parked",
    "pending",
    "pool",
    "tree",
    "unit",
]

RECORD, ARENA, CELL, ENGINE, NODE = (1 << bit for bit in range(50, 55))
"""Where the names of each sort begin; receipts begin at 0."""

Raw = tuple[Any, ...]
Shape = tuple[Any, ...]
"""What sort of part it is, and everything about it but names."""
Places = tuple[tuple[int, int], ...]
Read = tuple[Shape, tuple[int, ...], Places]

_WORDS, _RECORD = struct.Struct(f"<{FIELDS}Q"), struct.Struct(f"<{RECORD_FIELDS}Q")


def arenas(scope: Scope, raw: Raw) -> Read:
    """Read all arenas: kind, bytes, bytes in use and readiness of each, in the order of their numbers."""
    del scope
    return ("arenas", tuple((int(kind), *rest) for kind, *rest in raw)), (), ()


def tree(scope: Scope, raw: Raw) -> Read:
    """Read the tree: what holds the root, and (hash, holds) of each block."""
    numbers = scope.block_numbers
    return ("tree", raw[0], tuple(sorted((numbers[chain], holds) for chain, holds in raw[1:]))), (), ()


def cell(scope: Scope, raw: Raw) -> Read:
    """Read a cell: of each slot that holds something its state, fingerprint and copies."""
    node, residue, chain, *marks, manifest, memory, disk_mask, states, packed, records, limbo = raw
    names, slots, places = list[int](), list[tuple[int, ...]](), list[tuple[int, int]]()
    for slot, held in enumerate(states):
        if not held:
            continue
        at, offset, generation, low, high, commit = _WORDS.unpack_from(packed, slot * _WORDS.size)
        assert not high
        names.append(commit)
        in_memory, on_disk = memory >> slot & 1, disk_mask >> slot & 1
        if in_memory:
            names += (ARENA + at, generation)
            places.append((at, offset))
        if on_disk:
            segment, blob, disk_generation = _RECORD.unpack_from(records, slot * _RECORD.size)
            assert segment == 1
            names += (RECORD + blob, disk_generation)
        slots.append((slot, held, low, offset if in_memory else -1, on_disk))
    ordered = sorted(limbo, key=lambda extent: (extent[3], extent[:2]))
    names += [ARENA + at for at, *_ in ordered]
    names += [RECORD + manifest[1]] if manifest else []
    places += [(at, offset) for at, offset, _, _ in ordered]
    where = scope.block_numbers[node], residue, scope.residue_numbers[chain]
    rest = tuple(extent[1:] for extent in ordered), manifest[2] if manifest else 0
    return ("cell", *where, tuple(marks), *rest, tuple(slots)), tuple(names), tuple(places)


def orders(scope: Scope, raw: Raw) -> Read:
    """Read the eviction orders: of each kind the cells that go first, and all others."""
    del scope
    shape = ("orders", tuple((kind, len(first), len(usual)) for kind, first, usual in raw))
    return shape, tuple(CELL + c for _, *queues in raw for queue in queues for c in queue), ()


def pool(scope: Scope, raw: Raw) -> Read:
    """Read a pool: its kind, bytes and objects in use, bytes free, and free extents."""
    del scope
    kind, live, entries, free, extents = raw
    shape = ("pool", int(kind), live, entries, free, tuple((offset, length) for _, offset, length in extents))
    return shape, tuple(ARENA + at for at, _, _ in extents), ()


def engines(scope: Scope, raw: Raw) -> Read:
    """Read the engines in their order: key, silence, and how much each holds."""
    del scope
    return ("engines", raw), (), ()


def lease(scope: Scope, raw: Raw) -> Read:
    """Read a lease: its end, blocks, offers and boundaries."""
    number, engine, node, blocks, offers, boundaries = raw
    names = [number, ENGINE + engine, *(CELL + c for c in blocks)]
    names += [NODE + offer.node for offer in offers]
    names += [CELL + c if c is not None else 0 for c in boundaries]
    told = tuple((o.residue, scope.residue_numbers[o.residue_hash], o.replay, o.ready) for o in offers)
    return ("lease", scope.block_numbers[node], len(blocks), told), tuple(names), ()


def unit(scope: Scope, raw: Raw) -> Read:
    """Read a unit: its end, what was filled, and where."""
    (
        number,
        engine,
        node,
        first,
        boundary,
        residue,
        chain,
        aborted,
        approx,
        holder,
        where,
        filled,
        prints,
        pinned,
        jobs,
    ) = raw
    names = [number, ENGINE + engine, ENGINE + holder]  # each engine has one connection here, of its own number
    names += [ARENA + place[0] for place in where if place]
    names += [*(CELL + c for c in pinned), *jobs]
    end = scope.block_numbers[node], first, boundary, residue, scope.residue_numbers[chain]
    offsets = tuple(place[1] if place else -1 for place in where)
    written = tuple(int.from_bytes(fingerprint, "big") for fingerprint in prints)
    shape = ("unit", *end, aborted, approx, offsets, filled, written, len(pinned), len(jobs))
    return shape, tuple(names), tuple(place for place in where if place)


def job(scope: Scope, raw: Raw) -> Read:
    """Read a job."""
    del scope
    what, number, *rest = raw
    if what == "arena":
        return (what,), (number, ARENA + rest[0]), ()
    names = [number, *(CELL + c for c, _ in rest[0])]
    slots = tuple(slot for _, slot in rest[0])
    if what == "verify":
        return (what, slots), tuple(names), ()
    if what == "offload":
        return (what, slots, *rest[2:]), (*names, CELL + rest[1]), ()
    if what == "relocation":
        generation, places, sources = rest[1:]
        names += [generation, *(ARENA + at for at, _ in places)]
        names += [name for at, _, older in sources for name in (ARENA + at, older)]
        shape = (what, slots, tuple(offset for _, offset in places), tuple(offset for _, offset, _ in sources))
        return shape, tuple(names), places
    generation, places, void = rest[1:]
    names += [generation, *(ARENA + at for at, _ in places)]
    return (what, slots, tuple(offset for _, offset in places), void), tuple(names), places


def counts(scope: Scope, raw: Raw) -> Read:
    """Read what is counted, sizes of what is made anew, so that a wrong size makes another state, and shares."""
    del scope
    return ("counts", *raw), (), ()


def pending(scope: Scope, raw: Raw) -> Read:
    """Read what the shell has to do."""
    del scope
    number, (what, data) = raw
    records = tuple(RECORD + item[-1] for item in data) if what == "read" else ()
    told = tuple(item[1:-1] if what == "read" else item[1:] for item in data)
    return ("pending", what, told), (number, *(ARENA + item[0] for item in data), *records), ()


def parked(scope: Scope, raw: Raw) -> Read:
    """Read who waits for what."""
    del scope
    names = tuple(name for _, (_, number, jobs) in raw for name in (number, *jobs))
    return ("parked", tuple((engine, label, len(jobs)) for engine, (label, _, jobs) in raw)), names, ()


def handles(scope: Scope, raw: Raw) -> Read:
    """Read what a lease's owner holds."""
    del scope
    number, held = raw
    names = (number, *(name for h in held for name in (ARENA + h[2], h[5])))
    return ("handles", tuple((h[0], h[1], h[3], h[4]) for h in held)), names, ()


def contents(scope: Scope, raw: Raw) -> Read:
    """Read what lies at the places that the other parts mention."""
    del scope
    return ("contents", raw), (), ()


def disk(scope: Scope, raw: Raw) -> Read:
    """Read what the records hold; they are numbered already."""
    del scope
    return ("disk", raw), (), ()
