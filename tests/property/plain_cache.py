"""What a cache with room for everything answers, said with dictionaries: the plain model of the stateful test.

A place is the tokens before it: a block is named by all tokens up to its end, a boundary by all tokens before it. It
keeps objects of groups, each in memory, on disk, or both. Nothing here knows arenas, cells, hashes or events.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["BLOCK", "Lease", "PlainCache", "Thing", "Unit", "blocks_of", "end_of"]

BLOCK, ROW = 16, 4
GROUPS = ("C", "X", "M")
"""Rows, the keys that index them, and a state that is true at one boundary."""
Place = tuple[str, tuple[int, ...]]
Name = tuple[Place, str]


@dataclass
class Thing:
    """An object: who wrote it, and where its copies are."""

    seed: int
    memory: bool = True
    disk: bool = False


@dataclass
class Unit:
    """A reservation: its objects in order, those of them that it brings, and what was filled in."""

    objects: list[Name]
    brings: list[Name]
    seed: int
    filled: set[Name] = field(default_factory=set)

    @property
    def pins(self) -> set[Place]:
        """Places that it keeps, since something that it builds on is there."""
        return {place for place, group in self.objects if (place, group) not in self.brings}


@dataclass
class Lease:
    """A lease: places that it keeps, by offer, and the blocks up to the deepest."""

    blocks: list[Place]
    offers: list[tuple[int, Place | None]]

    @property
    def pins(self) -> list[Place]:
        """Places that it keeps, each as often as it does."""
        return [*self.blocks, *(place for _, place in self.offers if place is not None)]


def blocks_of(tokens: list[int]) -> list[Place]:
    """Return the places of the whole blocks of a prompt."""
    return [("block", tuple(tokens[:end])) for end in range(BLOCK, len(tokens) + 1, BLOCK)]


def end_of(tokens: list[int]) -> Place:
    """Return the place of the boundary behind a prompt."""
    return ("end", tuple(tokens))


class PlainCache:
    """What is stored, leased and reserved.

    Attributes:
        things: Objects by place and group.
        prefixes: Boundaries that lie on disk with a manifest.
        leases: Open leases by engine and receipt.
        units: Open reservations by engine and receipt.
    """

    def __init__(self) -> None:
        self.things: dict[Name, Thing] = {}
        self.prefixes: set[Place] = set()
        self.leases: list[dict[int, Lease]] = [{}, {}]
        self.units: list[dict[int, Unit]] = [{}, {}]

    # --- what is there ------------------------------------------------------------------------------------------

    def pins(self) -> Counter[Place]:
        """Return how often each place is kept."""
        found: Counter[Place] = Counter()
        for held in (*self.leases, *self.units):
            for one in held.values():
                found.update(one.pins)
        return found

    def parts(self, tokens: list[int], *, boundary: bool = True) -> list[Name]:
        """Return the objects of a unit that ends a prompt, or of a resume there, in the order of the wire."""
        found = [(place, group) for place in blocks_of(tokens) for group in ("C", "X")]
        if boundary:
            residue = len(tokens) % BLOCK >= ROW
            found += [(end_of(tokens), group) for group in GROUPS if group == "M" or residue]
        return found

    def complete(self, tokens: list[int]) -> bool:
        """Tell whether everything for a resume behind a prompt is stored."""
        return all(name in self.things for name in self.parts(tokens))

    def ready(self, tokens: list[int]) -> bool:
        """Tell whether all of that is in memory."""
        return all(self.things[name].memory for name in self.parts(tokens))

    def is_known(self, tokens: list[int]) -> bool:
        """Tell whether the blocks of a prompt are in the index: something is kept at or behind the last one."""
        whole = tuple(tokens[: len(tokens) - len(tokens) % BLOCK])
        kept = [place for place, _ in self.things] + list(self.pins())
        kept += [place for units in self.units for unit in units.values() for place, _ in unit.objects]
        return not whole or any(at[: len(whole)] == whole for _, at in kept)

    def claimed(self, tokens: list[int]) -> int:
        """Return what a plain hash cache would claim of a prompt, tokens."""
        for number, place in enumerate(blocks_of(tokens)):
            if not any((place, group) in self.things for group in ("C", "X")):
                return number * BLOCK
        return len(tokens) // BLOCK * BLOCK

    def usable(self, tokens: list[int], most: int) -> list[tuple[int, ...]]:
        """Return every stored boundary on a prompt's path at which up to `most` tokens could be reused."""
        ends = [at for (sort, at), group in self.things if sort == "end" and group == "M" and len(at) <= most]
        whole = [at for at in ends if list(at[: len(at) - len(at) % BLOCK]) == tokens[: len(at) - len(at) % BLOCK]]
        return [at for at in whole if self.complete(list(at))]

    # --- what is done -------------------------------------------------------------------------------------------

    def bring(self, objects: list[Name]) -> list[Name]:
        """Return which objects of a unit are not there; of rows and keys both are, or neither counts."""
        lacking = {name for name in objects if name not in self.things}
        couples = {"C": "X", "X": "C"}
        return [n for n in objects if n in lacking or (n[0], couples.get(n[1], "")) in lacking]

    def publish(self, unit: Unit) -> tuple[int, int, int]:
        """Store what a unit brings and return how many objects were kept, were there already, and differ from those."""
        lacking = self.bring(unit.brings)
        there = [name for name in unit.brings if name not in lacking]
        differing = sum(1 for name in there if self.things[name].seed != unit.seed)
        for name in lacking:
            self.remove(name)  # half a couple goes when the whole one comes
            self.things[name] = Thing(unit.seed)
        return len(lacking), len(there), differing

    def remove(self, name: Name) -> None:
        """Drop all copies of an object."""
        self.things.pop(name, None)
        self.forget_bare(name[0])

    def forget_bare(self, place: Place) -> None:
        """Forget the manifest of a boundary of which nothing is on disk any more."""
        if not any(one.disk for (at, _), one in self.things.items() if at == place):
            self.prefixes.discard(place)

    def evict(self, names: list[Name], *, disk: bool) -> tuple[int, int]:
        """Drop copies that nobody keeps; return how many were dropped, and how many are kept."""
        pins = self.pins()
        there = [n for n in names if n in self.things and (disk or self.things[n].memory)]
        free = [name for name in there if not pins[name[0]]]
        for name in free:
            if disk or not self.things[name].disk:
                self.remove(name)
            else:
                self.things[name].memory = False
        return len(free), len(there) - len(free)

    def offload(self, tokens: list[int], *, drop: bool) -> tuple[int, int]:
        """Write a boundary to disk; return how many objects were written, and how many were there already."""
        things = [self.things[name] for name in self.parts(tokens)]
        written = sum(1 for one in things if not one.disk)
        for one in things:
            one.disk = True
        self.prefixes.add(end_of(tokens))
        pins = self.pins()
        for name in self.parts(tokens) if drop else []:
            self.things[name].memory &= bool(pins[name[0]])
        return written, len(things) - written

    def restore(self, tokens: list[int]) -> int:
        """Read a boundary back; return how many objects were read."""
        cold = [self.things[name] for name in self.parts(tokens) if not self.things[name].memory]
        for one in cold:
            one.memory = True
        return len(cold)

    def forget(self, tokens: list[int]) -> tuple[int, int]:
        """Give up a boundary's manifest and what the boundary itself has on disk; return records dropped, and kept."""
        place = end_of(tokens)
        if place not in self.prefixes:
            return 0, 0
        if self.pins()[place]:
            return 0, 1
        mine = [name for name in self.things if name[0] == place and self.things[name].disk]
        for name in mine:
            self.things[name].disk = False
            if not self.things[name].memory:
                del self.things[name]
        self.prefixes.discard(place)
        return len(mine) + 1, 0
