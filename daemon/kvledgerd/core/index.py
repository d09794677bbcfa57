"""The index: chain hashes of whole blocks as a tree, and what each layout keeps at its nodes.

A tree belongs to one index key (tenant, hash algorithm, tokenizer digest, block size). A node is one block of tokens;
layouts are not part of the hash, so below a node lies one cell for each layout that stores something there. A boundary
is a cell as well, told apart by the residue after the node. Matching and allocation are separate code over this one
structure.

There are as many nodes and cells as blocks, so both are made to be small and quick to make again. What a cell keeps of
its objects is packed bytes, replaced as a whole; of the few things that hang on a node a single one needs no list. The
first fields of both are those of their rows in an image (`kvledgerd.snapshots.plain`), which are read straight into
them: making a million of them one by one would be most of a start.
"""

import struct
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final, TypeVar

import msgspec

from kvledger.geometry import bits
from kvledgerd.core.transitions import IN_MEMORY, ON_DISK_TOO, STATES, Happening, ObjectState, follow

__all__ = [
    "ARENA",
    "ASKED",
    "BLOB",
    "COMMIT",
    "DISK_GENERATION",
    "FIELDS",
    "FP_HIGH",
    "FP_LOW",
    "GENERATION",
    "OFFSET",
    "PRECISION_FIELDS",
    "READ",
    "RECORD_FIELDS",
    "SEGMENT",
    "WEIGHED",
    "Cell",
    "Copies",
    "Copy",
    "Node",
    "Tree",
    "cells_along",
    "held_by",
    "joined",
    "new_cell",
    "new_node",
    "object_words",
    "parted",
]

ARENA, OFFSET, GENERATION, FP_LOW, FP_HIGH, COMMIT, SEGMENT, BLOB, DISK_GENERATION = range(9)
FIELDS: Final = 6
"""Integers that a cell keeps for each of its slots wherever the object is: `ARENA` to `COMMIT`."""
RECORD_FIELDS: Final = 3
"""Those that it keeps besides once one of its objects is on disk: `SEGMENT`, `BLOB`, `DISK_GENERATION`."""
PRECISION_FIELDS: Final = 3
"""Those that it keeps besides once one of its records is not exact: the precision, and the record's fingerprint."""
ASKED, READ, WEIGHED = 1, 2, 4
"""Marks of a cell: an engine asked for its disk copy; a look-up has read it; it was passed over for the disk."""

_HASH: Final = struct.Struct("32s")
_WORD: Final = struct.Struct("<Q")
_PLACE: Final = struct.Struct("<3Q")
_PRINT: Final = struct.Struct("<2Q")
_OBJECT: Final = struct.Struct("<3Q16sQ")
_BYTES: Final = _WORD.size
_WORDS: Final = tuple(struct.Struct(f"<{count}Q") for count in range(FIELDS + 1))
_LOW: Final = 2**64 - 1
_LATER: Final[Any] = None
T = TypeVar("T")


def joined(kept: Sequence[T], one: T) -> Sequence[T]:
    """Return these and one more: one alone as a tuple, more as a list, which grows in place."""
    if isinstance(kept, list):
        kept.append(one)
        return kept
    return [*kept, one] if kept else (one,)


def parted(kept: Sequence[T], one: T) -> Sequence[T]:
    """Return these without one of them, as `joined` keeps them."""
    if len(kept) == 1 and kept[0] is one:
        return ()
    left = list(kept)
    left.remove(one)
    return left if len(left) > 1 else tuple(left)


def held_by(states: bytes) -> tuple[int, int]:
    """Return the bit masks of the slots with a memory copy and with a disk copy, as their states tell them."""
    memory = disk = 0
    for slot, number in enumerate(states):
        state = STATES[number]
        memory |= (state in IN_MEMORY) << slot
        disk |= (state in ON_DISK_TOO) << slot
    return memory, disk


class Cell(msgspec.Struct, array_like=True, eq=False):
    """Everything that one layout keeps at one block or boundary.

    Attributes:
        id: Its number, never used again.
        node: Its node; a boundary's node is that of its last whole block.
        layout: Number of the layout.
        residue: Tokens after the node; -1 for a block.
        residue_hash: Their hash.
        memory: Bit mask of the slots with a memory copy.
        disk: Bit mask of the slots with a disk copy.
        pooled: Device pools that have a copy of something of it; which copies, they know themselves.
        approx: Slots of which no exact copy is left, wherever what is left lies (`kvledgerd.core.copies.precisions`).
        unverified: Slots whose memory copy was adopted and not yet compared with its fingerprint.
        uncoupled: Slots of indexers whose rows come from another commit.
        damaged: Slots whose last copy was found damaged, until they are stored anew.
        pins: Leases and jobs that keep its copies where they are.
        revisited: A look-up ended at this block since the path went on behind it.
        below: How many of the blocks right behind it have memory copies in this layout.
        kinds: Bit mask, by number, of the kinds of its memory copies and its manifest; kept by `aging.reorder`.
        follows: Its rows lie right behind those of the block before it, in one reservation.
        used: A boundary stands on it, or a look-up handed it out; a block that is not used is material.
        lineage: Of a layout with strict provenance, hash of the rows up to its end as the run had them that stored it.
        marks: What was noted for the disk: `ASKED`, `READ`, `WEIGHED`.
        usage: When it was last used, in pages of memory given out before, and how often
            (`kvledgerd.core.placement.reuse`); of a block what ended at it, or went behind it since.
        limbo: Memory to be freed when the last pin goes: (arena, offset, length, kind number).
        manifest: Disk record of the boundary's manifest, None if there is none.
        states: A byte for each slot.
        words: `FIELDS` integers for each slot, little-endian.
        records: `RECORD_FIELDS` integers for each slot, little-endian; empty while nothing is on disk.
        precisions: `PRECISION_FIELDS` integers for each slot, little-endian; empty while all records are exact.
        digest: Its part of the state's digest, as it was last computed.
    """

    id: int
    layout: int
    residue: int
    residue_hash: bytes
    states: bytes
    words: bytes
    records: bytes
    precisions: bytes
    pins: int
    follows: bool
    used: bool
    revisited: bool
    lineage: int
    marks: int
    usage: int
    limbo: list[tuple[int, int, int, int]] | None
    manifest: tuple[int, int, int] | None
    # A row ends here; whoever reads one sets what follows
    node: "Node" = _LATER
    memory: int = 0
    disk: int = 0
    approx: int = 0
    unverified: int = 0
    uncoupled: int = 0
    damaged: int = 0
    pooled: int = 0
    below: int = 0
    kinds: int = 0
    digest: int = 0

    def __repr__(self) -> str:
        return f"<Cell {self.id} of layout {self.layout}>"

    @property
    def is_block(self) -> bool:
        """Whether it keeps a block; otherwise it keeps a boundary."""
        return self.residue < 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is kept and nothing holds it; that something was damaged is kept until it is stored anew."""
        return not (self.memory or self.disk or self.pins or self.manifest or self.damaged or self.pooled)

    def state(self, slot: int) -> ObjectState:
        """Return the state of one object."""
        return STATES[self.states[slot]]

    def word(self, slot: int, field: int) -> int:
        """Return one integer of a slot."""
        if field < FIELDS:
            found: int = _WORD.unpack_from(self.words, (slot * FIELDS + field) * _BYTES)[0]
        else:
            found = _WORD.unpack_from(self.records, (slot * RECORD_FIELDS + field - FIELDS) * _BYTES)[0]
        return found

    def place(self, slot: int) -> tuple[int, int, int]:
        """Return arena, offset and generation of a slot."""
        found: tuple[int, int, int] = _PLACE.unpack_from(self.words, slot * FIELDS * _BYTES)
        return found

    def set_words(self, slot: int, first: int, *values: int) -> None:
        """Set consecutive integers of a slot from field `first` on; they are all in `words` or all in `records`."""
        if first < FIELDS:
            self.words = _replaced(self.words, slot * FIELDS + first, values)
        else:
            records = self.records or bytes(len(self.states) * RECORD_FIELDS * _BYTES)
            self.records = _replaced(records, slot * RECORD_FIELDS + first - FIELDS, values)

    def fingerprint(self, slot: int) -> bytes:
        """Return the committed XXH3-128 of an object, 16 bytes big-endian."""
        low, high = _PRINT.unpack_from(self.words, (slot * FIELDS + FP_LOW) * _BYTES)
        print_: int = high << 64 | low
        return print_.to_bytes(16, "big")

    def precision(self, slot: int) -> int:
        """Return in which precision the disk copy of an object is kept, as a `Precision`; 0 if there is none."""
        found: int = _PLACE.unpack_from(self.precisions, slot * PRECISION_FIELDS * _BYTES)[0] if self.precisions else 0
        return found

    def record_print(self, slot: int) -> bytes:
        """Return the XXH3-128 of the record that holds an object, 16 bytes big-endian."""
        if not self.precision(slot):
            return self.fingerprint(slot)
        low, high = _PRINT.unpack_from(self.precisions, (slot * PRECISION_FIELDS + 1) * _BYTES)
        print_: int = high << 64 | low
        return print_.to_bytes(16, "big")

    def set_precision(self, slot: int, precision: int, fingerprint: bytes = b"") -> None:
        """Note the precision of an object's disk copy; an object without a memory copy is approximate from now on.

        Args:
            slot: The object.
            precision: A `Precision`.
            fingerprint: Of the record; of one that holds the committed bytes it is that of the object.
        """
        precisions = self.precisions or bytes(len(self.states) * PRECISION_FIELDS * _BYTES)
        value = int.from_bytes(fingerprint, "big")
        precisions = _replaced(precisions, slot * PRECISION_FIELDS, (precision, value & _LOW, value >> 64))
        self.precisions = precisions if any(precisions) else b""
        if precision and not self.memory >> slot & 1:
            self.approx |= 1 << slot

    def set_fingerprint(self, slot: int, fingerprint: bytes) -> None:
        """Note the XXH3-128 of an object whose bytes are others now, 16 bytes big-endian."""
        value = int.from_bytes(fingerprint, "big")
        self.set_words(slot, FP_LOW, value & _LOW, value >> 64)

    def move(self, slot: int, happening: Happening) -> ObjectState:
        """Carry out one transition and keep the masks true; raises TransitionError and changes nothing."""
        return self._move(1 << slot, STATES[self.states[slot]], happening)

    def move_alike(self, mask: int, happening: Happening) -> list[tuple[int, ObjectState]]:
        """Carry out one transition of several objects, all at once that are in the same state.

        Returns:
            Masks of those that were in the same state, each with the state that they are in now.
        """
        states, alike = self.states, dict[int, int]()
        if states.count(states[0]) == len(states):
            return [(mask, self._move(mask, STATES[states[0]], happening))]
        for slot in bits(mask):
            alike[states[slot]] = alike.get(states[slot], 0) | 1 << slot
        return [(part, self._move(part, STATES[before], happening)) for before, part in alike.items()]

    def publish(self, objects: dict[int, bytes], *, approx: bool) -> None:
        """Take objects into vacant slots.

        Args:
            objects: Of each slot, in their order, what `object_words` makes of its object.
            approx: Whether they are approximations.
        """
        mask = 0
        for slot in objects:
            mask |= 1 << slot
        if mask & (self.memory | self.disk):
            raise ValueError(f"cell {self.id} has slots of {mask:b} that are not vacant")
        self._move(mask, ObjectState.COPYING, Happening.COMMIT)
        if len(objects) < len(self.states):
            size = FIELDS * _BYTES
            objects = {slot: self.words[slot * size : slot * size + size] for slot in range(len(self.states))} | objects
        self.words = b"".join(objects.values())
        self.approx |= mask if approx else 0

    def _move(self, mask: int, before: ObjectState, happening: Happening) -> ObjectState:
        after = follow(before, happening)
        self.memory = self.memory | mask if after in IN_MEMORY else self.memory & ~mask
        self.disk = self.disk | mask if after in ON_DISK_TOO else self.disk & ~mask
        if not self.memory & mask:
            self.unverified &= ~mask
        if after is ObjectState.QUARANTINED:
            self.damaged |= mask
        elif after is ObjectState.COMMITTED:
            self.damaged &= ~mask
        self.states = _with_state(self.states, mask, after if (self.memory | self.disk) & mask else ObjectState.VACANT)
        if self.approx or self.precisions:
            for slot in bits(mask):
                self._keep_exactness(slot)
        if not self.disk:
            self.records = b""
        return after

    def _keep_exactness(self, slot: int) -> None:
        """Forget the precision of a record that is gone, and note when the last exact copy of an object is."""
        bit = 1 << slot
        if not (self.memory | self.disk) & bit:
            self.approx &= ~bit
        elif not self.memory & bit and self.precision(slot):
            self.approx |= bit
        if not self.disk & bit and self.precision(slot):
            self.set_precision(slot, 0)


def object_words(place: tuple[int, int], generation: int, fingerprint: bytes, commit: int) -> bytes:
    """Return the `FIELDS` integers of an object, packed; its place is arena and offset, its fingerprint big-endian."""
    return _OBJECT.pack(place[0], place[1], generation, fingerprint[::-1], commit)


def _replaced(packed: bytes, first: int, values: tuple[int, ...]) -> bytes:
    """Return packed integers with those from number `first` on replaced by `values`."""
    start, fresh = first * _BYTES, _WORDS[len(values)].pack(*values)
    return packed[:start] + fresh + packed[start + len(fresh) :]


@lru_cache(4096)
def _with_state(states: bytes, mask: int, state: int) -> bytes:
    """Return the states of a cell with those of a mask changed; cells that are alike share them."""
    changed = bytearray(states)
    for slot in bits(mask):
        changed[slot] = state
    return bytes(changed)


Copy = tuple[Cell, int]
"""A cell and one of its slots."""
Copies = tuple[Cell, int]
"""A cell with a mask of its slots."""


class Node(msgspec.Struct, array_like=True, eq=False):
    """One block of tokens in a tree.

    Attributes:
        id: Its number, never used again; 0 is never one.
        parent: The block before it, None for a root.
        hash: Its chain hash.
        depth: Blocks from the root to its end.
        children: Blocks that follow it.
        cells: What layouts keep of this block.
        boundaries: What layouts keep at boundaries whose last whole block this is.
        holds: Units and jobs that end here and keep it from being pruned.
    """

    id: int
    hash: bytes
    holds: int
    # A row ends here, as above
    parent: "Node | None" = None
    depth: int = 0
    children: "Sequence[Node]" = ()
    cells: Sequence[Cell] = ()
    boundaries: Sequence[Cell] = ()

    def __repr__(self) -> str:
        return f"<Node {self.id}, {self.depth} deep>"

    def cell(self, layout: int) -> Cell | None:
        """Return what a layout keeps of this block."""
        for cell in self.cells:
            if cell.layout == layout:
                return cell
        return None

    def boundary(self, layout: int, residue: int, residue_hash: bytes) -> Cell | None:
        """Return what a layout keeps at one boundary; what was stored last is asked for most, and looked at first."""
        for cell in reversed(self.boundaries):
            if cell.layout == layout and cell.residue == residue and cell.residue_hash == residue_hash:
                return cell
        return None

    def upwards(self) -> "Iterator[Node]":
        """Yield this node and its ancestors, the root left out."""
        node: Node | None = self
        while node is not None and node.parent is not None:
            yield node
            node = node.parent

    def path(self) -> "list[Node]":
        """Return the blocks from the first one to this one."""
        found: list[Node] = []
        node = self
        while node.parent is not None:
            found.append(node)
            node = node.parent
        found.reverse()
        return found

    @property
    def is_prunable(self) -> bool:
        """Whether nothing is kept at, below or for this node."""
        return not (self.cells or self.boundaries or self.children or self.holds or self.parent is None)


def new_node(number: int, parent: Node | None, chain_hash: bytes) -> Node:
    """Return a block on which nothing hangs yet, and of which its parent does not know."""
    return Node(number, chain_hash, 0, parent, parent.depth + 1 if parent is not None else 0)


def new_cell(number: int, node: Node, layout: int, slots: int, residue: int = -1, residue_hash: bytes = b"") -> Cell:
    """Return a cell of so many empty slots, of which its node does not know."""
    # By position: nothing is made as often, and names would take three times as long
    records = precisions = b""
    follows = revisited = False
    pins = lineage = marks = usage = 0
    limbo = manifest = None
    return Cell(
        number, layout, residue, residue_hash, bytes(slots), bytes(slots * FIELDS * _BYTES), records, precisions,
        pins, follows, residue >= 0, revisited, lineage, marks, usage, limbo, manifest, node,
    )  # fmt: skip


class Tree:
    """All blocks of one index key."""

    __slots__ = ("id", "key", "nodes", "root")

    def __init__(self, number: int, key: tuple[str, str, str, int], root: Node) -> None:
        self.id = number
        self.key = key
        self.root = root
        self.nodes: dict[bytes, Node] = {}

    def match(self, hashes: bytes) -> list[Node]:
        """Return the nodes of the leading blocks that are known; `hashes` holds 32 bytes a block.

        A hash stands for all tokens before it, so it is known behind its own parent only.
        """
        found, before, known = [], self.root, self.nodes.get
        for (chain_hash,) in _HASH.iter_unpack(hashes):
            node = known(chain_hash)
            if node is None or node.parent is not before:
                break
            found.append(node)
            before = node
        return found


def cells_along(path: list[Node], layout: int) -> list[Cell | None]:
    """Return what a layout keeps of each block of a path.

    In the usual case it keeps something of every block, and no call is spent on a block.
    """
    found: list[Cell | None] = [cell for node in path for cell in node.cells if cell.layout == layout]
    return found if len(found) == len(path) else [node.cell(layout) for node in path]
