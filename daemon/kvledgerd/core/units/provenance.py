"""Strict provenance: no state of one run is ever joined with rows of another.

Two engines that compute the same prefix rarely arrive at the same bits. A layout with `strict_provenance` forbids to
resume from a mixture. The *lineage* of a position is a hash over the fingerprints of all rows before it. Every cell of
such a layout keeps the lineage of its end, as the run had it that stored the cell: over that run's own rows. What is
stored now can be used together exactly where each cell's lineage is that of the rows that are stored before it now.

A run's own rows are what its unit brings, so that a unit brings all rows from its first block on, whatever is stored
already; bytes that are stored with the same fingerprint are the same bytes and are kept once. Rows before its first
block are the run's own if it read them, and it did if its engine holds a lease on them when it reserves. Equal lineage
means equal rows up to a collision of 64-bit hashes, and equal fingerprints mean equal bytes as everywhere else here.
"""

from collections.abc import Iterable

import xxhash

from kvledger.errors import CommitRefusedError
from kvledger.geometry import BOUNDARY, UnitObject, bits
from kvledgerd.core.commands import Caller
from kvledgerd.core.holdings import Unit
from kvledgerd.core.index import Cell, Copy, Node
from kvledgerd.core.kinds.rules import Candidate
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.state import State

__all__ = ["Lineage", "brings", "lineage_before", "note_lineage", "of_other_runs"]

_REMEDY = "abort; look up again, and go on from what is stored"


def _extend(before: int, prints: Iterable[bytes]) -> int:
    rows = b"".join(prints)
    return xxhash.xxh3_64_intdigest(before.to_bytes(8, "little") + rows) if rows else before


def _own_rows(known: KnownLayout, cell: Cell) -> int:
    """Return the mask of a cell's slots that hold rows, where all that belong there do; -1 if one lacks."""
    if cell.is_block:
        mask = known.rows_mask
    else:
        position = cell.node.depth * known.layout.block_tokens + cell.residue
        mask = sum(known.geometry.boundary_need(group, position) for group in known.geometry.rows)
    return mask if (cell.memory | cell.disk) & mask == mask else -1


def _as_stored(known: KnownLayout, before: int, cell: Cell) -> int | None:
    """Return the lineage at a cell's end after rows of lineage `before`, by what is stored; None if a row lacks."""
    mask = _own_rows(known, cell)
    return None if mask < 0 else _extend(before, (cell.fingerprint(slot) for slot in bits(mask)))


class Lineage:
    """The lineage of a path as it is stored.

    Args:
        known: A layout with strict provenance.
        cells: What it keeps of each block of a path.

    Attributes:
        at: Lineage at the end of each number of blocks, up to the first that can not be joined.
        depth: How many blocks can be joined.
    """

    __slots__ = ("_known", "at", "depth")

    def __init__(self, known: KnownLayout, cells: Iterable[Cell | None]) -> None:
        self._known = known
        self.at = [0]
        for cell in cells:
            lineage = _as_stored(known, self.at[-1], cell) if cell is not None else None
            if lineage is None or cell is None or cell.lineage != lineage:
                break
            self.at.append(lineage)
        self.depth = len(self.at) - 1

    def why_mixed(self, at: Candidate) -> str:
        """Return why what is stored at a boundary that lacks nothing comes from more than one run; empty if not."""
        if at.depth > self.depth:
            start = self.depth * self._known.layout.block_tokens
            return f"what is stored of the block at {start} belongs to other rows than those before it and in it"
        cell = at.cell if at.cell is not None and at.cell.memory | at.cell.disk else None
        if cell is not None and cell.lineage != _as_stored(self._known, self.at[at.depth], cell):
            return f"the states at {at.position} belong to other rows than those that are stored"
        return ""


def lineage_before(state: State, caller: Caller, known: KnownLayout, path: list[Node], first_block: int) -> int:
    """Return the lineage on which a unit builds; raises CommitRefusedError if nobody can tell that its run read it."""
    if not first_block:
        return 0
    lineage = Lineage(known, (node.cell(known.number) for node in path[:first_block]))
    held = (state.leases[number] for number in state.engines[caller.engine].leases)
    end = path[first_block - 1] if len(path) >= first_block else None
    read = any(one.layout == known.number and any(cell.node is end for cell in one.blocks) for one in held)
    if not read or lineage.depth < first_block:
        raise CommitRefusedError(
            f"under strict provenance nobody can tell that the run behind this unit read the rows before block "
            f"{first_block}",
            field="first_block",
            remedy="hold a hit on them while the unit is reserved, or let the unit bring all rows from block 0 on",
        )
    return lineage.at[first_block]


def brings(item: UnitObject, first_block: int) -> bool:
    """Tell whether a unit has to bring an object though it may be stored: all that its run made itself."""
    return item.block == BOUNDARY or item.block >= first_block


def of_other_runs(known: KnownLayout, unit: Unit) -> list[Copy]:
    """Return what is stored along a unit's path that belongs to other rows than the unit's, and has to go.

    Raises:
        CommitRefusedError: What is stored can be used, and belongs to another run than the unit.
    """
    before = Lineage(known, (node.cell(known.number) for node in unit.path[: unit.first_block]))
    if before.depth < unit.first_block or before.at[-1] != unit.lineage:
        text = f"the rows before block {unit.first_block} are not those any more on which the unit builds"
        raise CommitRefusedError(text, field="unit", remedy=_REMEDY)
    going: list[Copy] = []
    lineage = unit.lineage
    for where, cell, own in _places(known, unit):
        mine = _extend(lineage, own)
        if cell is not None and cell.memory | cell.disk and cell.lineage != mine:
            if own and cell.lineage == _as_stored(known, lineage, cell):
                raise CommitRefusedError(
                    f"the rows {where} differ from those that another run stored, and strict provenance joins no two",
                    field="unit",
                    remedy=_REMEDY,
                )
            going += [(cell, slot) for slot in bits(cell.memory | cell.disk)]
        lineage = mine
    return going


def note_lineage(known: KnownLayout, unit: Unit) -> None:
    """Let every cell that a unit was published in keep its lineage."""
    lineage = unit.lineage
    for _, cell, own in _places(known, unit):
        lineage = _extend(lineage, own)
        if cell is not None:
            cell.lineage = lineage


def _places(known: KnownLayout, unit: Unit) -> list[tuple[str, Cell | None, list[bytes]]]:
    """Return each block of a unit and then its boundary: for people, its cell, and fingerprints of the unit's rows."""
    rows: dict[int, dict[int, bytes]] = {}
    for item, fingerprint in zip(unit.objects, unit.prints, strict=True):
        if item.group in known.geometry.rows:
            rows.setdefault(item.block, {})[item.slot] = fingerprint
    size, found = known.layout.block_tokens, list[tuple[str, Cell | None, list[bytes]]]()
    for block in range(unit.first_block, len(unit.path)):
        own = [fingerprint for _, fingerprint in sorted(rows.get(block, {}).items())]
        found.append((f"of [{block * size}, {(block + 1) * size})", unit.path[block].cell(known.number), own))
    if unit.boundary:
        own = [fingerprint for _, fingerprint in sorted(rows.get(BOUNDARY, {}).items())]
        cell = unit.node.boundary(known.number, unit.residue, unit.residue_hash)
        found.append((f"of the residue of {unit.residue} tokens", cell, own))
    return found
