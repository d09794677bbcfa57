"""The bytes of one prefix, from memory or disk, each object compared with what the log says was committed.

For whoever has to show what a model was handed: the objects from the first block to one place of one layout, with
everything that the log knows of them. Nothing is asked of the daemon: its arenas are read as `kvledger check` reads
them, and an object that moved or went meanwhile is told as such.
"""

from collections.abc import Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import NamedTuple

import msgspec

from kvledger.errors import NotFoundError
from kvledger.geometry import bits
from kvledger.layout import Layout
from kvledger_storage.disk import fingerprint_of
from kvledgerd.audit.names import ObjectName
from kvledgerd.checking.arena_memory import ArenaMemory
from kvledgerd.checking.claims import claims_of
from kvledgerd.checking.disk_records import DiskRecords
from kvledgerd.checking.following import Followed
from kvledgerd.core.copies.precisions import Precision
from kvledgerd.core.index import COMMIT, Cell
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.state import State

__all__ = ["Prefix", "PrefixBytes", "PrefixObject", "prefix_bytes"]


class PrefixObject(msgspec.Struct, kw_only=True):
    """What the log says of one object, and what was found of it.

    Attributes:
        name: Its name.
        file: Where its bytes are put, empty if there are none.
        group: Name of its group.
        kind: Its kind.
        shard: Rank.
        page: Page within the block, of paged windows.
        first_token: First token of its block; of what belongs to a boundary, the boundary's position.
        at_boundary: Whether it belongs to a boundary.
        state: Its state.
        length: Bytes.
        fingerprint: XXH3-128 that these bytes have to have, hexadecimal.
        precision: What they are to the object, as `disk_precision` names it; also `approx`.
        commit_id: What it was committed with.
        read_from: `memory` or `disk`; empty if its bytes were not to be had.
        wrong: What does not fit, or why there are no bytes; empty if they are those that the log knows.
    """

    name: str
    file: str = ""
    group: str
    kind: str
    shard: int
    page: int
    first_token: int
    at_boundary: bool
    state: str
    length: int
    fingerprint: str
    precision: str = "exact"
    commit_id: int
    read_from: str = ""
    wrong: str = ""


class PrefixBytes(NamedTuple):
    """One object with its bytes; None if they are not to be had."""

    told: PrefixObject
    data: bytes | None


class Prefix(NamedTuple):
    """A prefix as the log has it.

    Attributes:
        log_id: Which log.
        seq: The event after which it was looked at.
        layout: Its layout, whole.
        hashes: Chain hashes of its blocks, 32 bytes each.
        position: Where it ends, tokens.
        objects: Reads its objects, one after the other.
    """

    log_id: bytes
    seq: int
    layout: Layout
    hashes: bytes
    position: int
    objects: Iterator[PrefixBytes]


def prefix_bytes(data: Path, name: ObjectName) -> Prefix:
    """Return the prefix that ends where an object lies.

    Args:
        data: The data directory.
        name: The object.

    Raises:
        NotFoundError: There is no log, or no such object now.
        LogError: The log is damaged, contradicts itself, or is of a newer version.
    """
    followed = Followed(data, newest=True)
    followed.to_end()
    end = followed.state.cells.get(name.cell)
    if end is None or not (end.memory | end.disk) >> name.slot & 1:
        remedy = "`kvledger audit objects` lists what there is"
        raise NotFoundError(f"nothing is stored as {name} now", field="object", remedy=remedy)
    known, path = followed.state.layouts[end.layout], end.node.path()
    position = end.node.depth * known.layout.block_tokens + max(end.residue, 0)
    log_id = followed.identity.log_id
    hashes = b"".join(node.hash for node in path)
    return Prefix(log_id, followed.seq, known.layout, hashes, position, _objects(data, log_id, followed.state, end))


def _objects(data: Path, log_id: bytes, state: State, end: Cell) -> Iterator[PrefixBytes]:
    known = state.layouts[end.layout]
    cells = [cell for node in end.node.path() if (cell := node.cell(end.layout)) is not None]
    cells += [] if end.is_block else [end]
    records, memory = DiskRecords(data, log_id, deep=True), _memory(data, log_id)
    with nullcontext() if memory is None else closing(memory):
        for cell in cells:
            for slot in bits(cell.memory | cell.disk):
                yield _read(state, known, cell, slot, memory, records)


def _memory(data: Path, log_id: bytes) -> ArenaMemory | None:
    """Return the arenas of the daemon that serves from here; None if there is none, or none that may be read."""
    try:
        pid = int((data / "log" / "lock").read_text(encoding="ascii"))
        return ArenaMemory(pid, log_id, deep=True)
    except (OSError, ValueError):
        return None


def _read(
    state: State, known: KnownLayout, cell: Cell, slot: int, memory: ArenaMemory | None, records: DiskRecords
) -> PrefixBytes:
    in_memory, on_disk = claims_of(state, cell, slot)
    told = _told(known, cell, slot)
    found = None
    if in_memory is not None and memory is not None:
        found, told.read_from = memory.copy(in_memory), "memory"
    if found is None and on_disk is not None:
        found, told.read_from = records.copy(on_disk), "disk"
        told.length, told.fingerprint = on_disk.key.length, on_disk.key.fingerprint.hex()
        told.precision = Precision(on_disk.key.precision).name.lower()
    if found is None:
        told.read_from = ""
        told.wrong = "its bytes are not to be had: it lies in memory that can not be read, or has gone meanwhile"
    elif fingerprint_of(found).hex() != told.fingerprint:
        told.wrong = "the bytes are not those that were committed"
    return PrefixBytes(told, found)


def _told(known: KnownLayout, cell: Cell, slot: int) -> PrefixObject:
    place = known.slots_of(cell)[slot]
    before = cell.node.depth - 1 if cell.is_block else cell.node.depth
    return PrefixObject(
        name=str(ObjectName(cell.id, slot)),
        group=known.layout.groups[place.group].name,
        kind=known.slot_kinds[slot].name,
        shard=place.shard,
        page=place.page,
        first_token=before * known.layout.block_tokens + max(cell.residue, 0),
        at_boundary=not cell.is_block,
        state=cell.state(slot).name,
        length=known.length_of(cell, slot),
        fingerprint=cell.fingerprint(slot).hex(),
        precision=(Precision.APPROX if cell.approx >> slot & 1 else Precision.EXACT).name.lower(),
        commit_id=cell.word(slot, COMMIT),
    )
