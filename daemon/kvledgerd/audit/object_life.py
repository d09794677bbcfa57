"""The life of one object: reserved, committed, read by whom, written to disk, restored, verified, dropped.

An object is named ``<cell>.<slot>``, as `kvledger audit objects` and `Describe` show it. The log names objects only
where the state does not already tell, so each event is looked at together with the state just before it.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kvledger.epochs import EpochState
from kvledger.errors import CallerError
from kvledger.geometry import BOUNDARY
from kvledger_storage import device_events, disk_events, events
from kvledgerd.audit.replay import Damage, Moment, moments
from kvledgerd.core.device_pools.device import Asked, DevicePool
from kvledgerd.core.holdings import KnownLayout, OffloadJob, RelocationJob, RestoreJob, Unit, VerifyJob
from kvledgerd.core.index import ARENA, Cell
from kvledgerd.core.state import State
from kvledgerd.core.transitions import DeviceState

__all__ = ["Entry", "ObjectLife", "ObjectName", "list_objects", "object_life", "parse_name"]


class ObjectName(NamedTuple):
    """An object's number: its cell and its slot in it."""

    cell: int
    slot: int

    def __str__(self) -> str:
        """Return the name as commands take it."""
        return f"{self.cell}.{self.slot}"


class Entry(msgspec.Struct, frozen=True):
    """One thing that happened to an object."""

    seq: int
    time_ms: int
    actor: str
    what: str
    detail: str


class ObjectLife(msgspec.Struct, frozen=True):
    """What an object was, and all that happened to it.

    Attributes:
        name: ``<cell>.<slot>``.
        model: Model of its layout.
        group: Group of its layout.
        kind: Its kind.
        place: Tokens that it stands for.
        entries: What happened, in order.
    """

    name: str
    model: str
    group: str
    kind: str
    place: str
    entries: list[Entry]


def parse_name(text: str) -> ObjectName:
    """Return the object that ``<cell>.<slot>`` names.

    Raises:
        CallerError: the text is no name of an object.
    """
    cell, _, slot = text.partition(".")
    if not (cell.isdecimal() and slot.isdecimal()):
        remedy = "name it <cell>.<slot>, as `kvledger audit objects` lists them"
        raise CallerError(f"{text!r} names no object", field="object", remedy=remedy)
    return ObjectName(int(cell), int(slot))


def object_life(data: Path, name: ObjectName, damage: Damage | None = None) -> ObjectLife:
    """Return everything that the log tells about one object; see `moments` for `damage`.

    Raises:
        CallerError: the log knows no such object.
    """
    story = _Story(name)
    for moment in moments(data, damage):
        story.look(moment)
    if story.life is None:
        remedy = "list the objects with `kvledger audit objects`"
        raise CallerError(f"the log knows no object {name}", field="object", remedy=remedy)
    return story.life


def list_objects(data: Path, damage: Damage | None = None) -> Iterator[tuple[ObjectName, str, str, str]]:
    """Yield name, group, place and state of every object that is stored at the end of the log; see `moments`."""
    state: State | None = None
    for moment in moments(data, damage):
        state = moment.state
    for cell in state.cells.values() if state is not None else ():
        known = state.layouts[cell.layout] if state is not None else None
        for slot in range(len(cell.states)):
            held = known is not None and _states(state, cell, slot)
            if known is not None and held:
                group = known.layout.groups[known.group_of(cell, slot)].name
                yield ObjectName(cell.id, slot), group, place_of(known, cell, slot), held


def _states(state: State | None, cell: Cell, slot: int) -> str:
    """Return what there is of an object: its state in memory and on disk, and device pools; empty if nothing is."""
    found = [cell.state(slot).name] if (cell.memory | cell.disk) >> slot & 1 else []
    pools = state.device_pools.values() if state is not None and cell.pooled else ()
    found += [
        f"{DeviceState.RESIDENT.name} in device pool {pool.id}" for pool in pools if (cell.id, slot) in pool.copies
    ]
    return ", ".join(found)


def place_of(known: KnownLayout, cell: Cell, slot: int) -> str:
    """Return the tokens that an object stands for, for people."""
    size = known.layout.block_tokens
    if not cell.is_block:
        return f"boundary at {cell.node.depth * size + cell.residue}"
    page = known.geometry.block_slots[slot].page
    start = (cell.node.depth - 1) * size
    spec = known.layout.groups[known.group_of(cell, slot)]
    if known.geometry.pages(known.group_of(cell, slot)) > 1:
        start, size = start + page * spec.page_tokens, spec.page_tokens
    return f"tokens [{start}, {start + size})"


class _Story:
    """Follows one object through the log."""

    def __init__(self, name: ObjectName) -> None:
        self.name = name
        self.life: ObjectLife | None = None
        self.reserved: dict[int, Moment] = {}
        self.leases: dict[int, int] = {}
        self.jobs: dict[int, str] = {}
        self.topologies: dict[int, None] = {}

    def look(self, moment: Moment) -> None:
        """Take in one event."""
        handler = _HANDLERS.get(type(moment.event))
        if handler is not None:
            handler(self, moment, moment.event)

    def note(self, moment: Moment, what: str, detail: str = "") -> None:
        """Add an entry; what happened before the object had a life is none of its."""
        if self.life is not None:
            self.life.entries.append(Entry(moment.seq, moment.time_ms, moment.actor, what, detail))

    def cell(self, state: State) -> Cell | None:
        return state.cells.get(self.name.cell)

    def named(self, objects: tuple[tuple[int, int], ...]) -> bool:
        return (self.name.cell, self.name.slot) in objects

    def reserve(self, moment: Moment, event: events.UnitReserved) -> None:
        self.reserved[event.unit] = moment

    def commit(self, moment: Moment, event: events.UnitCommitted) -> None:
        unit = moment.state.units[event.unit]
        known = moment.state.layouts[unit.layout]
        index = self._index_in(moment.state, known, unit, event)
        began = self.reserved.pop(event.unit, None)
        if index is None:
            self._duplicate(moment, unit, event)
            return
        if self.life is None:
            self._begin(known, unit, index)
        if began is not None:
            self.note(began, "reserved", f"unit {unit.id} of engine {unit.engine}")
        self.note(moment, "committed", f"commit {event.commit_id}, fingerprint {unit.prints[index].hex()}")

    def _duplicate(self, moment: Moment, unit: Unit, event: events.UnitCommitted) -> None:
        """Note that another commit brought the object too, and whether its bytes were the same."""
        cell = self.cell(moment.state)
        for index in event.dropped if cell is not None else ():
            item = unit.objects[index]
            mine = cell is not None and cell.node is unit.node_of(item) and cell.is_block is (item.block != BOUNDARY)
            own = item.block != BOUNDARY or (cell is not None and cell.residue_hash == unit.residue_hash)
            if mine and own and cell is not None and cell.layout == unit.layout and item.slot == self.name.slot:
                differs = index in event.differing
                detail = f"commit {event.commit_id} of engine {unit.engine}, fingerprint {unit.prints[index].hex()}"
                self.note(moment, "duplicate differs" if differs else "duplicate", f"dropped: {detail}")

    def filled(self, moment: Moment, event: device_events.PagesFilled) -> None:
        asked = moment.state.asked[event.unit]
        known = moment.state.layouts[asked.layout]
        index = self._index_in(moment.state, known, asked, event)
        if index is None:
            return
        if self.life is None:
            self._begin(known, asked, index)
        order = asked.missing().index(index)
        fp64 = int.from_bytes(event.prints[8 * order : 8 * order + 8], "little")
        where = f"in device pool {asked.pool} of engine {asked.engine}"
        self.note(moment, "resident", f"{where}, commit {event.commit_id}, fp64 {fp64:016x}")

    def freed(self, moment: Moment, event: device_events.DeviceFreed) -> None:
        if self.named(event.objects):
            self.note(moment, "freed", f"from device pool {event.pool}: {event.reason}")

    def pool_ended(self, moment: Moment, event: device_events.DevicePoolEnded) -> None:
        self._lose(moment, lambda pool: pool.id == event.pool, event.reason)

    def _lose(self, moment: Moment, is_gone: Callable[[DevicePool], bool], reason: str) -> None:
        for pool in moment.state.device_pools.values():
            if self.name in pool.copies and self.name not in pool.held and is_gone(pool):
                self.note(moment, "lost", f"with device pool {pool.id}: {reason}")

    def _index_in(
        self,
        state: State,
        known: KnownLayout,
        unit: Unit | Asked,
        event: events.UnitCommitted | device_events.PagesFilled,
    ) -> int | None:
        """Return which of a unit's objects becomes the one that is followed; cells are numbered as they are made."""
        next_cell, made = state.next_cell, dict[tuple[int, int], int]()
        for index in unit.missing():
            if index in event.dropped:
                continue
            item, node = unit.objects[index], unit.node_of(unit.objects[index])
            cell = (
                node.boundary(known.number, unit.residue, unit.residue_hash)
                if item.block == BOUNDARY
                else node.cell(known.number)
            )
            key = (node.id, item.block == BOUNDARY)
            number = cell.id if cell is not None else made.setdefault(key, next_cell)
            next_cell = max(next_cell, *(n + 1 for n in made.values())) if made else next_cell
            if (number, item.slot) == self.name:
                return index
        return None

    def _begin(self, known: KnownLayout, unit: Unit | Asked, index: int) -> None:
        item = unit.objects[index]
        spec = known.layout.groups[item.group]
        end = item.first_token + item.tokens
        place = f"tokens [{item.first_token}, {end})" if item.tokens else f"boundary at {item.first_token}"
        self.life = ObjectLife(str(self.name), known.layout.model, spec.name, spec.kind.name, place, [])

    def looked_up(self, moment: Moment, event: events.LookedUp) -> None:
        cell = self.cell(moment.state)
        if cell is None or not event.lease or cell.layout != event.layout:
            return
        if (
            not (cell.memory | cell.disk | moment.state.sight(event.engine, event.layout).mask(cell)) >> self.name.slot
            & 1
        ):
            return
        known = moment.state.layouts[event.layout]
        for offer in event.offers:
            node = moment.state.nodes.get(offer.node, known.tree.root)
            end = node.depth * known.layout.block_tokens + offer.residue
            own = cell.node is node and cell.residue == offer.residue and cell.residue_hash == offer.residue_hash
            if own or (cell.is_block and cell.node in node.upwards()):
                self.leases[event.lease] = event.engine
                self.note(
                    moment, _how(event, offer), f"to engine {event.engine} under lease {event.lease}, resume at {end}"
                )
                return

    def settled(self, moment: Moment, event: events.LeaseSettled) -> None:
        if event.lease not in self.leases:
            return
        lease = moment.state.leases[event.lease]
        cell, kept = self.cell(moment.state), lease.offers[event.offer]
        node = moment.state.nodes.get(kept.node)
        depth = node.depth if node is not None else 0
        stays = cell is not None and (
            cell is lease.boundaries[event.offer] or (cell.is_block and cell.node.depth <= depth)
        )
        if not stays:
            del self.leases[event.lease]
        self.note(moment, "read" if stays else "not taken", f"by engine {lease.engine} under lease {event.lease}")

    def lease_ended(self, moment: Moment, event: events.LeaseEnded) -> None:
        engine = self.leases.pop(event.lease, None)
        if engine is not None:
            self.note(moment, "lease ended", f"{event.lease} of engine {engine}: {event.reason}")

    def evicted(self, moment: Moment, event: events.ObjectsEvicted) -> None:
        if self.named(event.objects):
            where = " and ".join(n for n, on in (("memory", event.memory), ("disk", event.disk)) if on)
            self.note(moment, "dropped", f"from {where}: {event.reason}{self._in_vain(moment.state)}")

    def _in_vain(self, state: State) -> str:
        cell = self.cell(state)
        return "; no boundary ever stood on it" if cell is not None and not cell.used else ""

    def verified(self, moment: Moment, event: events.ObjectsVerified) -> None:
        if self.named(event.right):
            self.note(moment, "verified", "its bytes are the committed ones")
        if self.named(event.wrong):
            self.note(moment, "quarantined", "its bytes in memory are not the committed ones")

    def offload_started(self, moment: Moment, event: events.OffloadStarted) -> None:
        if self.named(event.objects):
            self.note(moment, "offloading", f"job {event.job}")

    def offloaded(self, moment: Moment, event: events.Offloaded) -> None:
        job = moment.state.jobs[event.job]
        if isinstance(job, OffloadJob) and (at := self._position(job)) is not None:
            segment, offset, _ = event.blobs[at]
            self.note(moment, "on disk", f"segment {segment} at {offset}")

    def offload_failed(self, moment: Moment, event: events.OffloadFailed) -> None:
        job = moment.state.jobs[event.job]
        if isinstance(job, OffloadJob) and self._position(job) is not None:
            self.note(moment, "offload failed", event.error)

    def restore_started(self, moment: Moment, event: events.RestoreStarted) -> None:
        if self.named(event.objects):
            self.note(moment, "restoring", f"job {event.job}")

    def restored(self, moment: Moment, event: events.RestoreFinished) -> None:
        job = moment.state.jobs[event.job]
        if isinstance(job, RestoreJob) and (at := self._position(job)) is not None:
            error = event.errors[at]
            damaged = "quarantined" if error.startswith("damaged") else "restore failed"
            self.note(moment, damaged if error else "restored", error or "verified against its fingerprint")

    def records_damaged(self, moment: Moment, event: disk_events.RecordsDamaged) -> None:
        for cell, slot, why in event.records:
            if (cell, slot) == self.name:
                self.note(moment, "record damaged", f"found by {event.found}: {why}")

    def records_moved(self, moment: Moment, event: disk_events.RecordsMoved) -> None:
        for cell, slot, segment, offset in event.records:
            if (cell, slot) == self.name:
                self.note(moment, "record moved", f"from segment {event.segment} to segment {segment} at {offset}")

    def restore_overdue(self, moment: Moment, event: disk_events.RestoreOverdue) -> None:
        job = moment.state.jobs[event.job]
        if isinstance(job, RestoreJob) and self._position(job) is not None:
            self.note(moment, "restore given up", event.error)

    def prefix_forgotten(self, moment: Moment, event: events.PrefixForgotten) -> None:
        cell = self.cell(moment.state)
        if cell is not None and event.cell == cell.id and cell.disk >> self.name.slot & 1:
            self.note(moment, "dropped", f"from disk with its prefix: {event.reason}")

    def relocated(self, moment: Moment, event: events.Relocated) -> None:
        job = moment.state.jobs[event.job]
        if isinstance(job, RelocationJob) and (at := self._position(job)) is not None:
            arena, offset = job.places[at]
            moved = f"to arena {arena} at {offset}"
            self.note(moment, "move dropped" if event.outcomes[at] else "moved", event.outcomes[at] or moved)

    def in_graph(self, objects: tuple[events.GraphObject, ...]) -> bool:
        return any(one[:2] == self.name for one in objects)

    def pinned(self, moment: Moment, event: events.TopologyRegistered) -> None:
        if self.in_graph(event.objects):
            self.topologies[event.topology] = None
            self.note(moment, "pinned", f"by topology {event.topology} of engine {event.engine}")

    def topology_changed(self, moment: Moment, event: events.TopologyChanged) -> None:
        if self.in_graph(event.added):
            self.topologies[event.topology] = None
            self.note(moment, "pinned", f"by topology {event.topology}, captured anew")
        elif self.in_graph(event.removed) and event.topology in self.topologies:
            del self.topologies[event.topology]
            self.note(moment, "released", f"by topology {event.topology}, captured anew")

    def topology_broken(self, moment: Moment, event: events.TopologyBroken) -> None:
        if self.in_graph(event.objects):
            self.note(moment, "broken", f"under topology {event.topology}: {event.reason}")

    def topology_ended(self, moment: Moment, event: events.TopologyEnded) -> None:
        if event.topology in self.topologies:
            del self.topologies[event.topology]
            self.note(moment, "released", f"by topology {event.topology}: {event.reason}")

    def _position(self, job: OffloadJob | RelocationJob | RestoreJob | VerifyJob) -> int | None:
        names = [(cell.id, slot) for cell, slot in job.objects]
        return names.index(self.name) if self.name in names else None

    def arena_dropped(self, moment: Moment, event: events.ArenaDropped) -> None:
        cell = self.cell(moment.state)
        if cell is not None and cell.memory >> self.name.slot & 1 and cell.word(self.name.slot, ARENA) == event.arena:
            self.note(
                moment, "dropped", f"from memory with arena {event.arena}: {event.reason}{self._in_vain(moment.state)}"
            )

    def epoch_changed(self, moment: Moment, event: events.EpochChanged) -> None:
        cell = self.cell(moment.state)
        if cell is not None and event.state is EpochState.RETIRED:
            epoch = moment.state.layouts[cell.layout].epoch
            self._invalid(moment, cell, epoch.number == event.epoch, f"{epoch.name} was retired")

    def kernel_retired(self, moment: Moment, event: events.KernelRetired) -> None:
        cell = self.cell(moment.state)
        if cell is not None:
            known = moment.state.layouts[cell.layout]
            mine = any((abi.name, abi.number) == (event.name, event.number) for abi in known.layout.abi.values())
            detail = f"kernel ABI {event.name} {event.number} was retired"
            self._invalid(moment, cell, mine and known.epoch.number == event.epoch, detail)

    def engine_left(self, moment: Moment, event: events.EngineLeft) -> None:
        self._lose(moment, lambda pool: pool.engine == event.engine, f"its engine ended: {event.reason}")
        cell = self.cell(moment.state)
        if cell is not None:
            owner = moment.state.layouts[cell.layout].epoch.engine
            self._invalid(moment, cell, owner == event.engine, f"engine {owner} ended, whose alone it was")

    def _invalid(self, moment: Moment, cell: Cell, mine: bool, detail: str) -> None:  # noqa: FBT001  a fact, no switch
        if mine and (cell.memory | cell.disk) >> self.name.slot & 1:
            self.note(moment, "invalid", detail)

    def started(self, moment: Moment, event: events.IncarnationStarted) -> None:
        self.leases.clear()
        self._lose(moment, lambda pool: pool.engine > 0, "the daemon was started anew")
        if self.cell(moment.state) is not None:
            self.note(moment, "daemon started", f"incarnation {event.incarnation}; memory is verified before use")


def _how(event: events.LookedUp, offer: events.OfferRecord) -> str:
    """Tell what an offer means to its objects: a single one is read, of several the client keeps one."""
    if not offer.ready:
        return "found on disk"
    return "handed out" if len(event.offers) == 1 else "offered"


_HANDLERS: dict[type, Callable[[_Story, Moment, Any], None]] = {
    events.UnitReserved: _Story.reserve,
    events.UnitCommitted: _Story.commit,
    device_events.PagesFilled: _Story.filled,
    device_events.DeviceFreed: _Story.freed,
    device_events.DevicePoolEnded: _Story.pool_ended,
    events.LookedUp: _Story.looked_up,
    events.LeaseSettled: _Story.settled,
    events.LeaseEnded: _Story.lease_ended,
    events.ObjectsEvicted: _Story.evicted,
    events.ObjectsVerified: _Story.verified,
    events.OffloadStarted: _Story.offload_started,
    events.Offloaded: _Story.offloaded,
    events.OffloadFailed: _Story.offload_failed,
    events.RestoreStarted: _Story.restore_started,
    events.RestoreFinished: _Story.restored,
    events.PrefixForgotten: _Story.prefix_forgotten,
    disk_events.RecordsDamaged: _Story.records_damaged,
    disk_events.RecordsMoved: _Story.records_moved,
    disk_events.RestoreOverdue: _Story.restore_overdue,
    events.Relocated: _Story.relocated,
    events.TopologyRegistered: _Story.pinned,
    events.TopologyChanged: _Story.topology_changed,
    events.TopologyBroken: _Story.topology_broken,
    events.TopologyEnded: _Story.topology_ended,
    events.ArenaDropped: _Story.arena_dropped,
    events.IncarnationStarted: _Story.started,
    events.EpochChanged: _Story.epoch_changed,
    events.KernelRetired: _Story.kernel_retired,
    events.EngineLeft: _Story.engine_left,
}
