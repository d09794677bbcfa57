"""From what segments tell to events: the beginning of a log that knows of what lies on disk.

What can be trusted without the old log: that a record's bytes are the committed ones (fingerprint, compared before they
are handed out), which layout, prefix, reservation and commit they belong to (each header, by checksum), and therefore
every layer of a verdict. What can not: whether weights or a kernel were retired meanwhile, so somebody has to vouch for
the weights by name; and what was evicted on purpose, which comes back. States under strict provenance need the history
of their runs, which only the old log had: they stay dead.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from kvledger.epochs import EpochState
from kvledger.layout import Layout
from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk import RecordKey, RecordType
from kvledger_storage.disk_events import MANIFEST, RecordsFound
from kvledger_storage.events import EpochAdded, Event, IncarnationStarted, IncarnationStopped, LayoutRegistered
from kvledgerd.core.apply import apply
from kvledgerd.core.config import CAPLESS
from kvledgerd.core.copies.precisions import Precision
from kvledgerd.core.epoch.epochs import FULL_SHARE
from kvledgerd.core.incarnation.decide_life import SERIAL_STEP
from kvledgerd.core.index import new_cell
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.state import State
from kvledgerd.salvage.segments import Found

__all__ = ["Rebuilt", "rebuilt_events"]

_PRECISIONS = frozenset(Precision)

_Place = tuple[bytes, int, bytes, int, bytes]
_Slots = dict[int, tuple[RecordKey, BlobRef]]


class Rebuilt(NamedTuple):
    """What a rebuild makes: its events, and the state that they lead to."""

    events: list[Event]
    state: State


def rebuilt_events(found: Found, vouched: Callable[[Layout], bool]) -> Rebuilt:
    """Return the events of a log that knows of all records under layouts for whose weights somebody vouches."""
    made = Rebuilt([], State(CAPLESS))
    newest = max((max(key.generation, key.commit) for key, _ in found.records), default=0)
    # Each incarnation's receipts begin 2^32 above the last one's, so this one is newer than any that wrote these.
    incarnation = newest // SERIAL_STEP + 2
    begun = IncarnationStarted(
        incarnation, bytes(16), found.log_id, newest + SERIAL_STEP, session_lost=True, tail_repaired=False
    )
    _add(made, begun)
    numbers = _register(made, found, vouched)
    for event in _places(made.state, found, numbers):
        _add(made, event)
    _add(made, IncarnationStopped(incarnation))
    return made


def _add(made: Rebuilt, event: Event) -> None:
    apply(made.state, event)
    made.events.append(event)


def _register(made: Rebuilt, found: Found, vouched: Callable[[Layout], bool]) -> dict[bytes, int]:
    """Make layouts known with their epochs; return digest to number."""
    numbers: dict[bytes, int] = {}
    epochs: dict[tuple[str, str, str], int] = {}
    for digest, (tenant, layout) in found.layouts.items():
        if layout.strict_provenance or not layout.weights_digest or not vouched(layout):
            continue
        name = (tenant, layout.model, layout.weights_digest)
        if name not in epochs:
            is_first = not any(one[:2] == name[:2] for one in epochs)
            begins = EpochState.ACTIVE if is_first else EpochState.CANARY
            epochs[name] = made.state.next_epoch
            _add(made, EpochAdded(epochs[name], *name, 0, begins, FULL_SHARE))
        numbers[digest] = made.state.next_layout
        _add(made, LayoutRegistered(numbers[digest], tenant, epochs[name], layout))
    return numbers


def _places(state: State, found: Found, numbers: dict[bytes, int]) -> Iterator[RecordsFound]:
    """Yield what is found of each place, in the order of the cells' numbers; only the newest life of a place counts."""
    lives: dict[_Place, tuple[int, _Slots]] = {}
    for key, ref in found.records:
        if key.layout in numbers:
            place = (key.layout, key.at.depth, key.at.node, key.at.residue, key.at.residue_hash)
            cell, slots = lives.get(place, (0, {}))
            if key.cell > cell:
                cell, slots = lives[place] = (key.cell, {})
            if key.cell == cell:
                _keep_newest(slots, key, ref)
    for place, (cell, slots) in sorted(lives.items(), key=lambda life: life[1][0]):
        event = _event(state, found, numbers, place, cell, slots)
        if event is not None:
            yield event


def _keep_newest(slots: _Slots, key: RecordKey, ref: BlobRef) -> None:
    slot = MANIFEST if key.record_type is RecordType.MANIFEST else key.slot
    before = slots.get(slot)
    if before is None or (before[0].generation, before[1]) < (key.generation, ref):
        slots[slot] = (key, ref)


def _event(
    state: State, found: Found, numbers: dict[bytes, int], place: _Place, cell: int, slots: _Slots
) -> RecordsFound | None:
    """Return what is known of one place, None if no chain leads to it or nothing of it fits its layout."""
    digest, depth, node, residue, residue_hash = place
    known = state.layouts[numbers[digest]]
    path = _path(found, node, depth)
    if path is None:
        return None
    parent, fresh = 0, b""
    for chain_hash in path:
        there = known.tree.nodes.get(chain_hash)
        parent, fresh = (there.id, b"") if there is not None else (parent, fresh + chain_hash)
    records = tuple(
        (slot, key.generation, key.fingerprint, key.commit, ref.segment, ref.offset, key.precision)
        for slot, (key, ref) in sorted(slots.items())
        if slot != MANIFEST and _fits(known, key)
    )
    manifest = slots[MANIFEST][1] if MANIFEST in slots else None
    if not records and manifest is None:
        return None
    tail = residue_hash if residue > 0 else b""
    return RecordsFound(known.number, cell, parent, fresh, residue, tail, records, manifest)


def _path(found: Found, node: bytes, depth: int) -> list[bytes] | None:
    """Return the chain hashes from the root to a block, None if a link of the chain is nowhere."""
    path: list[bytes] = []
    while len(path) < depth:
        if node not in found.chains:
            return None
        path.append(node)
        node = found.chains[node]
    return path[::-1] if not any(node) or not depth else None


def _fits(known: KnownLayout, key: RecordKey) -> bool:
    geometry = known.geometry
    slots = geometry.block_slots if key.at.residue < 0 else geometry.boundary_slots
    if key.slot >= len(slots):
        return False
    cell = new_cell(key.cell, known.tree.root, known.number, len(slots), key.at.residue)
    kind, length = int(known.slot_kinds[key.slot]), known.length_as(key.precision, cell, key.slot)
    return key.precision in _PRECISIONS and (key.kind, key.length) == (kind, length)
