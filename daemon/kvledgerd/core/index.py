"""The index: chain hashes of whole blocks as a tree, and what each layout keeps at its nodes.

A tree belongs to one index key (tenant, hash algorithm, tokenizer digest, block size). A node is one block of tokens;
layouts are not part of the hash, so below a node lies one cell for each layout that stores something there. A boundary
is a cell as well, told apart by the residue after the node. Matching and allocation are separate code over this one
structure.
"""

from array import array
from collections.abc import Iterator

from kvledgerd.core.transitions import IN_MEMORY, ON_DISK_TOO, STATES, Happening, ObjectState, follow

__all__ = [
    "ARENA",
    "BLOB",
    "COMMIT",
    "DISK_GENERATION",
    "FIELDS",
    "FP_HIGH",
    "FP_LOW",
    "GENERATION",
    "OFFSET",
    "SEGMENT",
    "Cell",
    "Node",
    "Tree",
    "cells_along",
]

ARENA, OFFSET, GENERATION, FP_LOW, FP_HIGH, COMMIT, SEGMENT, BLOB, DISK_GENERATION = range(9)
FIELDS = 9
"""Integers that a cell keeps for each of its slots, in one array."""


class Cell:
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
        limbo: Memory to be freed when the last pin goes: (arena, offset, length, kind number).
        manifest: Disk record of the boundary's manifest, None if there is none.
        words: `FIELDS` integers for each slot.
    """

    __slots__ = (
        "below",
        "damaged",
        "disk",
        "follows",
        "id",
        "kinds",
        "layout",
        "limbo",
        "lineage",
        "manifest",
        "memory",
        "node",
        "pins",
        "pooled",
        "residue",
        "residue_hash",
        "revisited",
        "states",
        "uncoupled",
        "unverified",
        "used",
        "words",
    )

    def __init__(self, number: int, node: "Node", layout: int, slots: int, residue: int, residue_hash: bytes) -> None:
        self.id = number
        self.node = node
        self.layout = layout
        self.residue = residue
        self.residue_hash = residue_hash
        self.memory = self.disk = self.unverified = self.uncoupled = self.damaged = 0
        self.pins = self.pooled = self.below = self.kinds = self.lineage = 0
        self.follows = self.revisited = False
        self.used = residue >= 0
        self.limbo: list[tuple[int, int, int, int]] | None = None
        self.manifest: tuple[int, int, int] | None = None
        self.states = bytearray(slots)
        self.words = array("Q", bytes(8 * FIELDS * slots))

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
        return self.words[slot * FIELDS + field]

    def set_words(self, slot: int, first: int, *values: int) -> None:
        """Set consecutive integers of a slot from field `first` on."""
        start = slot * FIELDS + first
        self.words[start : start + len(values)] = array("Q", values)

    def fingerprint(self, slot: int) -> bytes:
        """Return the committed XXH3-128 of an object, 16 bytes big-endian."""
        return (self.word(slot, FP_HIGH) << 64 | self.word(slot, FP_LOW)).to_bytes(16, "big")

    def move(self, slot: int, happening: Happening) -> ObjectState:
        """Carry out one transition and keep the masks true; raises TransitionError and changes nothing."""
        after = follow(STATES[self.states[slot]], happening)
        bit = 1 << slot
        self.memory = self.memory | bit if after in IN_MEMORY else self.memory & ~bit
        self.disk = self.disk | bit if after in ON_DISK_TOO else self.disk & ~bit
        if not self.memory & bit:
            self.unverified &= ~bit
        if after is ObjectState.QUARANTINED:
            self.damaged |= bit
        elif after is ObjectState.COMMITTED:
            self.damaged &= ~bit
        self.states[slot] = after if (self.memory | self.disk) & bit else ObjectState.VACANT
        return after


class Node:
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

    __slots__ = ("boundaries", "cells", "children", "depth", "hash", "holds", "id", "parent")

    def __init__(self, number: int, parent: "Node | None", chain_hash: bytes) -> None:
        self.id = number
        self.parent = parent
        self.hash = chain_hash
        self.depth: int = parent.depth + 1 if parent is not None else 0
        self.children: list[Node] = []
        self.cells: list[Cell] = []
        self.boundaries: list[Cell] = []
        self.holds = 0

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
        for start in range(0, len(hashes), 32):
            node = known(hashes[start : start + 32])
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
