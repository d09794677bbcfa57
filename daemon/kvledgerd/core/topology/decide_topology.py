"""Decisions about topologies: register, recapture, drop, and what breaks or ends one.

Nothing here moves a byte. What a topology pins stays where it is by the same pins that leases take; what is special is
who may take them away: the owner, or the end of all its processes. Silence, the end of a connection and the end of an
incarnation are none of these.
"""

from collections.abc import Iterable

from kvledger.errors import CallerError, CapacityError, LimitError, RecaptureError, TopologyLostError
from kvledger.geometry import bits
from kvledger.wire.replies import Done, NotResident, TopologyList, TopologyReport
from kvledger.wire.replies import TopologyRegistered as RegisteredReply
from kvledger.wire.requests import (
    ChangeTopology,
    CloseRecapture,
    DropTopology,
    OpenRecapture,
    RegisterTopology,
    Topologies,
)
from kvledger_storage.events import (
    GraphObject,
    RecaptureClosed,
    RecaptureOpened,
    TopologyChanged,
    TopologyEnded,
    TopologyRegistered,
)
from kvledgerd.core.commands import Adopted, Ask, Caller, TopologyOrphaned
from kvledgerd.core.decision import Ack, Decision
from kvledgerd.core.index import Cell
from kvledgerd.core.lookup.decide_verification import start_verification
from kvledgerd.core.state import State
from kvledgerd.core.topology.pinned import pinned_bytes, pinned_cells
from kvledgerd.core.topology.topologies import Topology
from kvledgerd.core.topology.topology_parts import Named, name_parts

__all__ = [
    "TOPOLOGY_OBJECTS_MAX",
    "adopted",
    "change",
    "close_recapture",
    "drop",
    "list_topologies",
    "open_recapture",
    "orphaned",
    "register",
]

TOPOLOGY_OBJECTS_MAX = 65_536
"""Objects of one topology: its decision is one turn of the event loop, and one event."""
VERIFIED_TOGETHER = 256
"""Objects of one verification after a start, so that a look-up need not wait for all of them."""


def register(state: State, ask: Ask, request: RegisterTopology) -> Decision:
    """Pin what leases handed out, or say what of it is not in memory."""
    _require_processes(ask)
    held = len(_owned(state, ask.caller))
    if held >= state.config.max_topologies:
        raise LimitError(f"{held} topologies are held", field="max_topologies", remedy="drop those of no more use")
    _check_tenant(state, ask)
    named = name_parts(state, ask, request.parts, "parts")
    if named.absent:
        return Decision(reply=NotResident(named.absent, named.more))
    cells = _in_memory(named)
    _check_count(len(named.objects), "parts")
    _check_room(state, ask.caller.tenant, [*state.topologies.values()], cells)
    number = state.serial
    event = TopologyRegistered(number, ask.caller.engine, ask.processes, tuple(named.objects))
    size = pinned_bytes(state, cells)
    reply = RegisteredReply(TopologyReport(number, len(named.objects), size))
    return Decision((event,), reply, Ack.DURABLE)


def _require_processes(ask: Ask) -> None:
    """Refuse an engine of which nobody could tell when it has ended: its pins would stay for ever."""
    if not ask.processes:
        remedy = "run the daemon and the engine in one pid namespace, or in one that shows the daemon the engine"
        raise CallerError("no process of this engine can be watched", field="processes", remedy=remedy)


def _owned(state: State, caller: Caller) -> list[Topology]:
    engine = state.engines[caller.engine]
    owner = (engine.key, engine.tenant, engine.uid)
    return [one for one in state.topologies.values() if (one.key, one.tenant, one.uid) == owner]


def _find(state: State, caller: Caller, number: int) -> Topology:
    """Return a topology of the caller's engine; unknown, foreign and past look exactly the same."""
    for topology in _owned(state, caller):
        if topology.id == number:
            return topology
    remedy = "capture anew and register; a topology ends when it is dropped, or with its processes or its memory"
    raise TopologyLostError(f"topology {number} is not held", field="topology", remedy=remedy)


def _in_memory(named: Named) -> list[Cell]:
    """Return the cells whose memory is named, each once; pages of a device are the engine's own."""
    return _distinct(cell for (_, _, device), cell in named.objects.items() if not device)


def _distinct(cells: Iterable[Cell]) -> list[Cell]:
    return list({cell.id: cell for cell in cells}.values())


def _check_count(count: int, field: str) -> None:
    if not count:
        raise CallerError("a topology of nothing pins nothing", field=field, remedy="name what the graph reads")
    if count > TOPOLOGY_OBJECTS_MAX:
        wrong = f"{count} objects, {TOPOLOGY_OBJECTS_MAX} are the most"
        raise LimitError(wrong, field=field, remedy="register several topologies, each of a part of them")


def _check_tenant(state: State, ask: Ask) -> None:
    """Refuse a tenant more topologies than it may have: they end with processes, of which it has any number."""
    count = sum(1 for one in state.topologies.values() if one.tenant == ask.caller.tenant)
    if count >= state.config.max_tenant_topologies:
        wrong = f"all engines of this tenant hold {count} topologies"
        remedy = "drop those of no more use, or end their processes"
        raise LimitError(wrong, field="max_tenant_topologies", remedy=remedy)
    _check_processes(state, ask)


def _check_processes(state: State, ask: Ask) -> None:
    mine = [one for one in state.topologies.values() if one.tenant == ask.caller.tenant]
    named = dict.fromkeys(process for one in mine for process in one.processes)
    fresh = [process for process in ask.processes if process not in named]
    if fresh and len(named) + len(fresh) > state.config.max_topology_processes:
        wrong = f"the topologies of this tenant name {len(named)} processes, this one {len(fresh)} more"
        remedy = f"end those of no more use; {state.config.max_topology_processes} can be watched"
        raise LimitError(wrong, field="max_topology_processes", remedy=remedy)


def _check_room(state: State, tenant: str, others: list[Topology], cells: list[Cell]) -> None:
    """Refuse to let topologies take more memory from everybody else, or a tenant's from other tenants', than they may.

    Args:
        state: The cache.
        tenant: Whose topology it is.
        others: All topologies but the one that is asked for.
        cells: What that one pins.
    """
    before = list(pinned_cells(state).values())
    after = _distinct([*(cell for one in others for cell in one.cells()), *cells])
    for whose, name, cap in (
        ("topologies of this tenant", tenant, state.config.topology_tenant_bytes),
        ("topologies", None, state.config.topology_bytes),
    ):
        have, want = pinned_bytes(state, before, tenant=name), pinned_bytes(state, after, tenant=name)
        if want > max(cap, have):
            raise CapacityError(
                f"{whose} pin {have} bytes; {want} would pass their cap of {cap}",
                field="topology_bytes",
                remedy="drop topologies, capture over less, or raise topology_percent",
            )


def open_recapture(state: State, ask: Ask, request: OpenRecapture) -> Decision:
    """Let a topology change until its window is closed."""
    topology = _find(state, ask.caller, request.topology)
    if topology.recapturing:
        raise RecaptureError("its window is open already", field="topology", remedy="close it before the next one")
    return Decision((RecaptureOpened(topology.id),), Done(), Ack.DURABLE)


def change(state: State, ask: Ask, request: ChangeTopology) -> Decision:
    """Change what a topology pins: what is named anew is taken as it lies now, what is named no more is released."""
    topology = _find(state, ask.caller, request.topology)
    _require_window(topology)
    _require_processes(ask)
    added = name_parts(state, ask, request.add, "add")
    if added.absent:
        return Decision(reply=NotResident(added.absent, added.more))
    removed = dict.fromkeys(_removed(state, ask, request, topology, added))
    kept = [name for name in topology.objects if name not in removed and name not in added.objects]
    _check_count(len(kept) + len(added.objects), "add")
    staying = [topology.objects[name] for name in kept]
    cells = _distinct([*(one.cell for one in staying if one.pool is None), *_in_memory(added)])
    _check_processes(state, ask)
    _check_room(state, ask.caller.tenant, [one for one in state.topologies.values() if one is not topology], cells)
    fresh = tuple(name for name in added.objects if not _as_it_is(topology, name))
    # A process that captured the graph may have lost its connection for the moment.
    processes = tuple(dict.fromkeys((*topology.processes, *ask.processes)))
    event = TopologyChanged(topology.id, processes, fresh, tuple(removed))
    lost = sum(1 for name in kept if name in topology.lost)
    size, count = pinned_bytes(state, cells), len(kept) + len(added.objects)
    return Decision((event,), TopologyReport(topology.id, count, size, lost, recapturing=True), Ack.DURABLE)


def _require_window(topology: Topology) -> None:
    if not topology.recapturing:
        raise RecaptureError(
            "its graph may be replayed at any time, so what it reads can not change",
            field="topology",
            remedy="open a recapture window while the graph is not replayed, and close it when it is captured anew",
        )


def _removed(
    state: State, ask: Ask, request: ChangeTopology, topology: Topology, added: Named
) -> tuple[GraphObject, ...]:
    if request.whole:
        return tuple(name for name in topology.objects if name not in added.objects)
    named = name_parts(state, ask, request.remove, "remove").objects if request.remove else {}
    return tuple(name for name in named if name in topology.objects and name not in added.objects)


def _as_it_is(topology: Topology, name: GraphObject) -> bool:
    one = topology.objects.get(name)
    return one is not None and name not in topology.lost and one.is_there


def close_recapture(state: State, ask: Ask, request: CloseRecapture) -> Decision:
    """Let a topology change no more."""
    topology = _find(state, ask.caller, request.topology)
    if not topology.recapturing:
        raise RecaptureError("its window is not open", field="topology", remedy="open it before the graph is captured")
    return Decision((RecaptureClosed(topology.id),), _report(state, topology, recapturing=False), Ack.DURABLE)


def drop(state: State, ask: Ask, request: DropTopology) -> Decision:
    """End a topology."""
    topology = _find(state, ask.caller, request.topology)
    return Decision((TopologyEnded(topology.id, "dropped by its owner"),), Done(), Ack.DURABLE)


def list_topologies(state: State, ask: Ask, request: Topologies) -> Decision:
    """List what an engine holds."""
    del request
    found = [_report(state, one, recapturing=one.recapturing) for one in _owned(state, ask.caller)]
    return Decision(reply=TopologyList(found))


def _report(state: State, topology: Topology, *, recapturing: bool) -> TopologyReport:
    size = pinned_bytes(state, topology.cells())
    return TopologyReport(topology.id, len(topology.objects), size, len(topology.lost), recapturing)


def orphaned(state: State, command: TopologyOrphaned) -> Decision:
    """End a topology whose graph nobody can replay any more."""
    if command.topology not in state.topologies:
        return Decision()
    return Decision((TopologyEnded(command.topology, "its processes ended"),), ack=Ack.DURABLE)


def adopted(state: State, command: Adopted) -> Decision:
    """Verify what graphs go on reading: nobody may ever look it up, and then nobody else would have it verified."""
    del command
    todo = [(cell, slot) for cell in pinned_cells(state).values() for slot in bits(cell.unverified)]
    started = start_verification(state, todo, each=VERIFIED_TOGETHER) if todo else Decision()
    return Decision(started.events, effects=started.effects)
