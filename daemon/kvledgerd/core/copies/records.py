"""Records on disk: where they lie, and which have to be given back when copies are dropped.

Nobody but the core knows which records are still needed, so every decision that drops disk copies hands them out.
"""

from kvledger.geometry import bits
from kvledger_storage.blob_ref import BlobRef
from kvledgerd.core.copies.precisions import QUANTISED
from kvledgerd.core.decision import Ack, DropBlobs, Effect, Quantised, ReadRecord
from kvledgerd.core.disk_commands import PlaceName
from kvledgerd.core.index import BLOB, COMMIT, DISK_GENERATION, SEGMENT, Cell, Copy
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.state import State
from kvledgerd.core.structure import bare_manifests

__all__ = [
    "blob_of",
    "drop_effects",
    "dropped_refs",
    "place_of",
    "prefix_place",
    "quantised_as",
    "read_of",
    "records_of",
    "unused_refs",
]


def blob_of(known: KnownLayout, cell: Cell, slot: int) -> BlobRef:
    """Return where an object's record lies."""
    return BlobRef(cell.word(slot, SEGMENT), cell.word(slot, BLOB), known.stored_length(cell, slot))


def records_of(known: KnownLayout, cell: Cell) -> list[BlobRef]:
    """Return where all records of a cell lie, its manifest's last."""
    refs = [blob_of(known, cell, slot) for slot in bits(cell.disk)]
    return refs if cell.manifest is None else [*refs, BlobRef(*cell.manifest)]


def read_of(known: KnownLayout, cell: Cell, slot: int, place: tuple[int, int]) -> ReadRecord:
    """Return how an object's record is read, to `place`: arena and offset in its data, bytes."""
    return ReadRecord(
        known.slot_kinds[slot],
        blob_of(known, cell, slot),
        cell.id,
        slot,
        cell.word(slot, DISK_GENERATION),
        *place,
        known.length_of(cell, slot),
        cell.record_print(slot),
        cell.word(slot, COMMIT),
        place_of(cell),
        cell.precision(slot),
        quantised_as(known, cell.precision(slot), cell, slot),
    )


def quantised_as(known: KnownLayout, precision: int, cell: Cell, slot: int) -> Quantised | None:
    """Return how an object is kept in some precision, None if that keeps all of its bytes."""
    if precision not in QUANTISED:
        return None
    return Quantised(precision, known.quantised_length(cell, slot), *known.page_of(slot))


def dropped_refs(state: State, copies: list[Copy]) -> list[BlobRef]:
    """Return the records that nobody needs once these objects have no disk copy, manifests of boundaries included."""
    going: dict[int, int] = {}
    refs = []
    for cell, slot in copies:
        if cell.disk >> slot & 1:
            refs.append(blob_of(state.layouts[cell.layout], cell, slot))
            going[cell.id] = going.get(cell.id, 0) | 1 << slot
    for number, mask in going.items():
        cell = state.cells[number]
        if not cell.disk & ~mask:
            ending = bare_manifests(cell) if cell.is_block else [cell]
            refs += [BlobRef(*boundary.manifest) for boundary in ending if boundary.manifest is not None]
    return refs


def place_of(cell: Cell) -> PlaceName:
    """Return the place of a prefix that a cell is, as its records name it."""
    node = cell.node
    before = node.parent.hash if node.parent is not None else b""
    return prefix_place(node.depth, node.hash, before, cell.residue, cell.residue_hash)


def prefix_place(depth: int, node: bytes, before: bytes, residue: int, residue_hash: bytes) -> PlaceName:
    """Return a place by its hashes; where there is none, the record has zeros."""
    return depth, node or bytes(32), before or bytes(32), residue, residue_hash or bytes(32)


def drop_effects(refs: list[BlobRef]) -> tuple[tuple[Ack, Effect], ...]:
    """Return the effect that gives records back, none if there are none."""
    return ((Ack.DURABLE, DropBlobs(tuple(refs))),) if refs else ()


def unused_refs(state: State, refs: tuple[BlobRef, ...]) -> list[BlobRef]:
    """Return those records that nothing in the state names; a walk over all cells, for answers that nobody awaits."""
    used: dict[tuple[int, int], None] = {}
    for cell in state.cells.values():
        if cell.manifest is not None:
            used[cell.manifest[:2]] = None
        for slot in bits(cell.disk):
            used[cell.word(slot, SEGMENT), cell.word(slot, BLOB)] = None
    return [ref for ref in refs if (ref.segment, ref.offset) not in used]
