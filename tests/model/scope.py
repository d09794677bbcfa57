"""The small scopes that the explorer walks: two engines, two prompts that share a block, every kind of state.

Memory is so small that everything that can be evicted is: of the paged scope it holds two blocks of rows where three
are wanted, and one window where two are. In the second scope both engines may bring the same objects at once. In the
third there are states alone, in two arenas, and the daemon works by itself: it moves objects, writes to disk what would
be lost, and stops restores when the disk fails. A scope is data: blocks, prompts and objects have numbers that stay,
which is what makes two states comparable.
"""

from functools import cached_property
from typing import Any

from kvledger.geometry import BOUNDARY, Geometry, UnitObject
from kvledger.hashing import ChainHasher, token_bytes
from kvledger.kinds import Form, Kind
from kvledger.layout import Layout
from kvledger.wire.requests import Boundary
from kvledgerd.core.config import PAGE, CoreConfig, DiskWritePolicy
from kvledgerd.core.placement.sureness import SHARES
from support.world import ROOT_KEY, group, layout

__all__ = ["SCOPES", "STORED", "Scope"]

BLOCK = 4
STORED = ("A reserve 0", "A put", "job copy ok", "A commit")
_BEGINNINGS: dict[str, tuple[str, ...]] = {
    "empty": (),
    "stored": STORED,
    "on disk": (*STORED, "A offload drop 0", "job write ok"),
    "adopted": (*STORED, "restart all", "A joins", "B joins"),
    "restoring": (*STORED, "A offload drop 0", "job write ok", "A restore 0"),
    "offloading": (*STORED, "A offload drop 0", "B acquire 0"),
    "silent": (*STORED, "A acquire 0", "A silent"),
    "dead copy": ("A reserve 0", "A put", "A gone", "A joins"),
    "growing": ("restart none", "A joins", "B joins", "A reserve 0"),
}
_BOTH = ("A reserve 0", "B reserve 1", "A put", "B put", "job copy ok", "job copy ok")
_MORE: dict[str, dict[str, tuple[str, ...]]] = {
    "paged": {
        "both": ("A reserve shared", *STORED[1:], "B reserve 1", "B put"),
        "half": (*STORED, "A offload drop 0", "job write ok", "B reserve 1", "B put", "job copy ok", "B commit"),
    },
    "residue": {"both": _BOTH, "parted": (*_BOTH, "A commit", "B commit")},
}
"""Further beginnings of some scopes: both engines are about to publish, a prompt whose first block lies on disk only,
and two boundaries on one block."""
_APART = (
    *STORED,
    *("A reserve 1", *STORED[1:]),
    *("A reserve 2", "job arena ok", *STORED[1:]),
    "A evict M memory 0",
)
_ALONE: dict[str, tuple[str, ...]] = {
    "stored": STORED,
    "apart": _APART,
    "moving": (*_APART, "memory due"),
    "failing": (*STORED, "A offload drop 0", "job write ok", "disk degrades"),
}
"""Beginnings of the third scope: two arenas that are half empty, an object that is moving, a disk that fails."""


class Scope:
    """One layout with two prompts.

    Attributes:
        name: Its name on the command line.
        layout: The layout.
        prompts: Boundary of each prompt's end.
        shared: The block that both begin with, as a unit without boundary.
        lengths: Tokens of each prompt.
        blocks: Chain hash of each block, the root's empty one first.
        parents: Number of each block's parent.
        residues: Hash of each residue, the empty one first.
        config: Caps, in pages of what fits.
        beginnings: Labels that lead to each state from which exploration begins; ``job copy ok`` answers the oldest
            copy.
    """

    def __init__(
        self, name: str, made: Layout, prompts: list[list[int]], kind_pages: dict[Kind, int], **config: Any
    ) -> None:
        self.name = name
        self.layout = made
        self.geometry = Geometry(made)
        self.prompts = [_boundary(tokens) for tokens in prompts]
        self.lengths = [len(tokens) for tokens in prompts]
        self.shared = _boundary(prompts[0][:BLOCK])
        self.blocks, self.parents = [b""], [0]
        for prompt in self.prompts:
            self._add_blocks(prompt.hashes)
        self.residues = list(dict.fromkeys([b"", *(p.residue_hash for p in self.prompts)]))
        self.beginnings = _BEGINNINGS | _MORE.get(name, {})
        self.config = CoreConfig(
            memory_bytes=2 * SHARES * PAGE,
            arena_bytes=2 * PAGE,
            disk_bytes=18 * PAGE,
            kind_bytes={kind: kind_pages.get(kind, 2) * PAGE for kind in Kind},
            max_leases=1,
            max_units=1,
            **config,
        )

    def _add_blocks(self, hashes: bytes) -> None:
        parent = 0
        for start in range(0, len(hashes), 32):
            one = hashes[start : start + 32]
            if one not in self.blocks:
                self.blocks.append(one)
                self.parents.append(parent)
            parent = self.blocks.index(one)

    @cached_property
    def block_numbers(self) -> dict[bytes, int]:
        """Number of each block by its hash."""
        return {one: number for number, one in enumerate(self.blocks)}

    @cached_property
    def residue_numbers(self) -> dict[bytes, int]:
        """Number of each residue by its hash."""
        return {one: number for number, one in enumerate(self.residues)}

    def content(self, node: int, residue: int, item: UnitObject, engine: int) -> int:
        """Return what an engine writes into an object: a number from which place, group and writer can be told."""
        where = len(self.blocks) * len(self.residues) + residue if item.block == BOUNDARY else 0
        return ((((where + 1) * 16 + node) * 16 + item.group) * 2 + engine) + 1


def _boundary(tokens: list[int]) -> Boundary:
    hasher, packed = ChainHasher(ROOT_KEY, BLOCK), token_bytes(tokens)
    hashes, residue = hasher.blocks(packed), len(tokens) % BLOCK
    parent = hashes[-32:] if hashes else hasher.root()
    rest = packed[4 * (len(tokens) - residue) :]
    return Boundary(hashes, residue, hasher.residue(parent, rest) if residue else b"")


def _rows(name: str, kind: Kind, to: str = "") -> object:
    return group(name, kind, tokens_per_row=BLOCK, rows_per_page=1, coupled_to=to)


def _paged() -> Scope:
    made = layout(
        _rows("C", Kind.COMPRESSED_KV),
        _rows("X", Kind.INDEXER_STATE, "C"),
        group("S", Kind.SWA_WINDOW, Form.PAGED_WINDOW, rows_per_page=BLOCK, window=BLOCK),
        group("M", Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT),
        block_tokens=BLOCK,
    )
    pages = {Kind.SWA_WINDOW: 1}
    return Scope("paged", made, [[1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 9, 10, 11, 12]], pages)


def _residue() -> Scope:
    made = layout(
        _rows("C", Kind.COMPRESSED_KV),
        _rows("X", Kind.INDEXER_STATE, "C"),
        group("S", Kind.SWA_WINDOW, Form.SNAPSHOT, window=BLOCK),
        group("T", Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT, coupled_to="C", halo_rows=BLOCK),
        block_tokens=BLOCK,
    )
    return Scope("residue", made, [[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 9, 10]], {})


def _alone() -> Scope:
    made = layout(group("M", Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT), block_tokens=BLOCK)
    prompts = [[first, first + 1, first + 2, first + 3] for first in (1, 5, 9)]
    works = {"compact_percent": 40, "disk_write": DiskWritePolicy.ON_EVICT}
    scope = Scope("alone", made, prompts, {Kind.UNCOMPRESSED_TAIL: 4}, **works)
    scope.beginnings = _ALONE
    return scope


SCOPES = {scope.name: scope for scope in (_paged(), _residue(), _alone())}
"""Boundaries after whole blocks with a paged window, boundaries inside a block with states of form snapshot, and states
alone under a daemon that works by itself."""
