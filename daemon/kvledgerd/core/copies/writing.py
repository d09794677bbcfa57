"""Beginning to write a boundary to disk: its job, its records, and the manifest by which it is found again."""

from collections.abc import Mapping, Sequence

import msgspec

from kvledger.kinds import Kind
from kvledger_storage.events import BoundaryName, OffloadStarted
from kvledgerd.core.copies.manifest import encode_manifest
from kvledgerd.core.copies.parts import BoundaryPath
from kvledgerd.core.copies.precisions import Precision
from kvledgerd.core.copies.records import place_of, prefix_place, quantised_as
from kvledgerd.core.decision import DiskWrite, Effect, WriteRecord
from kvledgerd.core.holdings import OffloadJob, RestoreJob
from kvledgerd.core.index import ARENA, COMMIT, GENERATION, OFFSET, Cell, Copy
from kvledgerd.core.known_layout import KnownLayout

__all__ = ["Order", "begin_write", "precisions_for", "shares", "to_write"]


class Order(msgspec.Struct, frozen=True):
    """What is to be written, and for whom.

    Attributes:
        job: Number of the job.
        cell: Number of the boundary's cell if it has none yet.
        engine: Who asked, 0 for the daemon itself.
        reason: Why, for people.
        residue: Tokens of the boundary after its last whole block.
        residue_hash: Their hash.
        precisions: In which precision each object is written, as `precisions_for` gives them.
    """

    job: int
    cell: int
    engine: int
    reason: str
    residue: int
    residue_hash: bytes
    precisions: tuple[int, ...] = ()


def precisions_for(
    wanted: Mapping[Kind, Precision], known: KnownLayout, objects: list[Copy], *, exact: bool = False
) -> tuple[int, ...]:
    """Return in which precision each of these objects is written; empty if all are written as they were committed.

    Args:
        wanted: The precision that an operator chose for each kind.
        known: Their layout.
        objects: What is to be written.
        exact: Nothing more may be lost of them.
    """
    found = []
    for cell, slot in objects:
        precision = Precision.APPROX if cell.approx >> slot & 1 else Precision.EXACT
        chosen = wanted.get(known.slot_kinds[slot], Precision.EXACT)
        found.append(chosen if chosen and not exact and known.quantised_length(cell, slot) else precision)
    return tuple(map(int, found)) if any(found) else ()


def shares(job: OffloadJob | RestoreJob, objects: list[Copy]) -> bool:
    """Tell whether a job writes or reads one of these objects."""
    mine = {(c.id, s): None for c, s in job.objects}
    return any((c.id, s) in mine for c, s in objects)


def to_write(known: KnownLayout, objects: list[Copy], again: Sequence[Copy] = ()) -> list[Copy]:
    """Return which of a boundary's objects have no disk copy; kinds are read back apart, so they lie apart.

    Args:
        known: Its layout.
        objects: All that a resume there needs.
        again: What of it is written in spite of its disk copy.
    """
    anew = {(c.id, s): None for c, s in again}
    lacking = ((c, s) for c, s in objects if not c.disk >> s & 1 or (c.id, s) in anew)
    return sorted(lacking, key=lambda copy: known.slot_kinds[copy[1]])


def begin_write(
    known: KnownLayout, at: BoundaryPath, objects: list[Copy], todo: list[Copy], order: Order
) -> tuple[OffloadStarted, Effect]:
    """Return the event that begins to write a boundary, and the effect that does it.

    Args:
        known: Its layout.
        at: The boundary.
        objects: All that a resume there needs, for the manifest.
        todo: What of it is written, as `to_write` gives it.
        order: For whom, and under which number.
    """
    name = BoundaryName(at.node.id, order.residue, order.residue_hash)
    names = tuple((c.id, s) for c, s in todo)
    event = OffloadStarted(order.job, order.engine, known.number, name, names, order.reason, order.precisions)
    boundary = at.cell.id if at.cell is not None else order.cell
    precisions = order.precisions or (0,) * len(todo)
    records = tuple(_record(known, c, s, precision) for (c, s), precision in zip(todo, precisions, strict=True))
    manifest = encode_manifest(known, at, objects)
    last, before = (*[node.hash for node in at.path[-1:-3:-1]], b"", b"")[:2]
    place = prefix_place(at.node.depth, last, before, order.residue, order.residue_hash)
    return event, DiskWrite(order.job, known.layout.digest, boundary, order.job, records, manifest, place)


def _record(known: KnownLayout, cell: Cell, slot: int, precision: int) -> WriteRecord:
    return WriteRecord(
        cell.id,
        slot,
        cell.word(slot, GENERATION),
        known.slot_kinds[slot],
        cell.word(slot, ARENA),
        cell.word(slot, OFFSET),
        known.length_of(cell, slot),
        cell.fingerprint(slot),
        cell.word(slot, COMMIT),
        place_of(cell),
        precision,
        quantised_as(known, precision, cell, slot),
    )
