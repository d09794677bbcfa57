"""What the state says about bytes outside it: this object lies there, under this generation and fingerprint.

A claim is compared with what is found. While a daemon runs, a claim may have been overtaken by events in between, so
what does not fit it counts only if a later state still makes the very same claim.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.geometry import bits
from kvledger.kinds import Kind
from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk import RecordKey, RecordType
from kvledger_storage.disk.record import NodeName
from kvledger_storage.disk_events import MANIFEST
from kvledgerd.core.copies.records import blob_of, place_of
from kvledgerd.core.index import ARENA, COMMIT, DISK_GENERATION, GENERATION, OFFSET, Cell
from kvledgerd.core.state import State

__all__ = ["DiskClaim", "MemoryClaim", "claims_of", "disk_claims", "holds", "memory_claims"]


class MemoryClaim(NamedTuple):
    """An object lies in an arena: `length` bytes at `offset`, with this generation and fingerprint."""

    cell: int
    slot: int
    arena: int
    offset: int
    length: int
    generation: int
    fingerprint: bytes


class DiskClaim(NamedTuple):
    """A record lies on disk; of a manifest the state knows neither generation nor fingerprint."""

    cell: int
    slot: int
    ref: BlobRef
    key: RecordKey


def memory_claims(state: State) -> Iterator[MemoryClaim]:
    """Yield what the state says about memory."""
    for cell in state.cells.values():
        yield from _in_memory(state, cell)


def _in_memory(state: State, cell: Cell) -> Iterator[MemoryClaim]:
    known = state.layouts[cell.layout]
    for slot in bits(cell.memory):
        place = (cell.word(slot, ARENA), cell.word(slot, OFFSET), known.length_of(cell, slot))
        yield MemoryClaim(cell.id, slot, *place, cell.word(slot, GENERATION), cell.fingerprint(slot))


def disk_claims(state: State) -> Iterator[DiskClaim]:
    """Yield what the state says about the disk."""
    for cell in state.cells.values():
        yield from _on_disk(state, cell)


def _on_disk(state: State, cell: Cell) -> Iterator[DiskClaim]:
    known = state.layouts[cell.layout]
    digest, at = known.layout.digest, NodeName(*place_of(cell))
    for slot in bits(cell.disk):
        ref = blob_of(known, cell, slot)
        generation, kind = cell.word(slot, DISK_GENERATION), int(known.slot_kinds[slot])
        head = (cell.id, slot, generation, digest, kind, ref.length, cell.record_print(slot))
        key = RecordKey(*head, RecordType.OBJECT, cell.word(slot, COMMIT), at, cell.precision(slot))
        yield DiskClaim(cell.id, slot, ref, key)
    if cell.manifest is not None:
        kind, length = int(Kind.DISK_PREFIX), cell.manifest[2]
        key = RecordKey(cell.id, 0, 0, digest, kind, length, b"", RecordType.MANIFEST, 0, at)
        yield DiskClaim(cell.id, MANIFEST, BlobRef(*cell.manifest), key)


def claims_of(state: State, cell: Cell, slot: int) -> tuple[MemoryClaim | None, DiskClaim | None]:
    """Return what the state says about one object."""
    in_memory = next((claim for claim in _in_memory(state, cell) if claim.slot == slot), None)
    return in_memory, next((claim for claim in _on_disk(state, cell) if claim.slot == slot), None)


def holds(state: State, claim: MemoryClaim | DiskClaim) -> bool:
    """Tell whether a state makes the same claim."""
    cell = state.cells.get(claim.cell)
    if cell is None:
        return False
    claims = _in_memory(state, cell) if isinstance(claim, MemoryClaim) else _on_disk(state, cell)
    return claim in claims
