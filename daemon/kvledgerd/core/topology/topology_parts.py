"""What a captured graph is to read: the objects that an offer of a lease handed out, and whether they are all there.

A lease keeps memory where it is, yet what it handed out may have been found damaged since, and an offer of what lies on
disk handed out nothing so far. So the objects are named by what a resume at the offer's boundary needs, and each has to
be in memory, verified, now.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kvledger.counts import counted
from kvledger.errors import CallerError, EpochError, NotFoundError
from kvledger.geometry import BOUNDARY, bits
from kvledger.wire.replies import ObjectInfo
from kvledger.wire.requests import TopologyPart
from kvledger_storage.events import GraphObject
from kvledgerd.core.commands import Ask
from kvledgerd.core.copies.parts import BoundaryPath, needed, path_to
from kvledgerd.core.device_pools.device import Sight
from kvledgerd.core.holdings import Lease
from kvledgerd.core.index import COMMIT, Cell
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.receipts import find_lease
from kvledgerd.core.state import State
from kvledgerd.core.units.apply_units import cells_of

__all__ = ["Named", "name_parts"]

ABSENT_SENT = 64


class Named(NamedTuple):
    """The objects of some parts.

    Attributes:
        objects: Those in memory and verified, or on a device, each once, in the order in which they were named.
        absent: The first of those that are not.
        more: How many more of these there are.
    """

    objects: dict[GraphObject, Cell]
    absent: list[ObjectInfo]
    more: int


def name_parts(state: State, ask: Ask, parts: list[TopologyPart], field: str) -> Named:
    """Return the objects that parts name.

    Raises:
        LeaseLost: a lease is not held by the caller.
        CallerError: a part names an offer or group that there is not.
        NotFoundError: nothing is known any more of the boundary that an offer on disk was for.
        EpochError: the weights of a lease's layout are not named.
    """
    objects: dict[GraphObject, Cell] = {}
    absent: list[ObjectInfo] = []
    for index, part in enumerate(parts):
        lease = find_lease(state, ask.caller, part.lease)
        known = state.layouts[lease.layout]
        _require_named_weights(known)
        _check_part(known, lease, part, f"{field}[{index}]")
        sight = state.lease_sight(lease)
        for block, cell, slot in _of_part(state, known, lease, part, sight):
            found = sight.copy(cell, slot) if cell is not None else None
            if cell is not None and (found is not None or (cell.memory & ~cell.unverified) >> slot & 1):
                objects[cell.id, slot, found[0] if found is not None else 0] = cell
            else:
                absent.append(_info(state, known, block, cell, slot))
    return Named(objects, absent[:ABSENT_SENT], max(len(absent) - ABSENT_SENT, 0))


def _require_named_weights(known: KnownLayout) -> None:
    """Refuse what ends with the engine's connections: a topology outlives them, and its graph would not notice."""
    if known.epoch.engine:
        wrong = f"{known.epoch.name} ends with it, and a captured graph could not tell"
        raise EpochError(wrong, field="layout", remedy="name the weights in the layout")


def _check_part(known: KnownLayout, lease: Lease, part: TopologyPart, field: str) -> None:
    if part.offer >= len(lease.offers):
        wrong, remedy = f"the lease has {counted(len(lease.offers), 'offer')}", "name one of them, from 0 on"
        raise CallerError(wrong, field=f"{field}.offer", remedy=remedy)
    groups = len(known.geometry.groups)
    if any(group >= groups for group in part.groups):
        wrong, remedy = (
            f"the layout has {counted(groups, 'group')}",
            "name groups by their place in the layout, from 0 on",
        )
        raise CallerError(wrong, field=f"{field}.groups", remedy=remedy)


def _of_part(
    state: State, known: KnownLayout, lease: Lease, part: TopologyPart, sight: Sight
) -> Iterator[tuple[int, Cell | None, int]]:
    """Yield block, cell and slot of each object; what is to be replayed was not handed out."""
    offer = lease.offers[part.offer]
    groups = dict.fromkeys(part.groups or range(len(known.geometry.groups)))
    for block, cell, mask in needed(known, _path(state, known, lease, part)):
        slots = known.geometry.boundary_slots if block == BOUNDARY else known.geometry.block_slots
        have = cell.memory | sight.mask(cell) if cell is not None else 0
        for slot in bits(mask & have if offer.replay else mask):
            if slots[slot].group in groups:
                yield block, cell, slot


def _path(state: State, known: KnownLayout, lease: Lease, part: TopologyPart) -> BoundaryPath:
    offer = lease.offers[part.offer]
    node = known.tree.root if offer.node == known.tree.root.id else state.nodes.get(offer.node)
    if node is None:
        remedy = "look up again, restore what lies on disk, and register then"
        raise NotFoundError("the boundary of this offer is gone", field="lease", remedy=remedy)
    return path_to(known, node, offer.residue, node.boundary(known.number, offer.residue, offer.residue_hash))


def _info(state: State, known: KnownLayout, block: int, cell: Cell | None, slot: int) -> ObjectInfo:
    own = block == BOUNDARY
    which = (known.geometry.boundary_slots if own else known.geometry.block_slots)[slot]
    stored = cell is not None and bool((cell.memory | cell.disk) >> slot & 1)
    return ObjectInfo(
        cell.id if cell is not None else 0,
        slot,
        -1 if own else block,
        which.group,
        which.shard,
        which.page,
        _state_of(state, known, cell, slot),
        known.length_of(cell, slot) if cell is not None else 0,
        cell.fingerprint(slot) if stored and cell is not None else b"",
        cell.word(slot, COMMIT) if stored and cell is not None else 0,
        cell.pins if cell is not None else 0,
    )


def _state_of(state: State, known: KnownLayout, cell: Cell | None, slot: int) -> str:
    if cell is None:
        return "VACANT"
    if cell.unverified >> slot & 1:
        return "UNVERIFIED"
    if cell.states[slot]:
        return cell.state(slot).name
    for unit in state.units.values():
        mine = [unit.objects[i] for i in unit.missing() if unit.layout == known.number]
        cells = cells_of(known, unit, mine)
        if any(item.slot == slot and cells.get(item.block) is cell for item in mine):
            return "RESERVED"
    return "QUARANTINED" if cell.damaged >> slot & 1 else "VACANT"
