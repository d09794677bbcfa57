"""Decisions about epochs: which one a layout belongs to, and what operators make of it.

What was retired may begin anew, since weights are rolled back now and then. Nothing comes back with that: its objects
and reservations ended in the event that retired it.
"""

from typing import NoReturn

from kvledger.epochs import EpochState
from kvledger.errors import CallerError, LimitError, NotFoundError
from kvledger.layout import Layout
from kvledger.wire.replies import EpochInfo, EpochList, EpochSet
from kvledger.wire.requests import Epochs, SetEpoch
from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.events import EpochAdded, EpochChanged, Event, KernelRetired
from kvledgerd.core.commands import Ask
from kvledgerd.core.copies.records import drop_effects, records_of
from kvledgerd.core.decision import Ack, Decision
from kvledgerd.core.epoch.epoch_objects import count_objects, ending_cells, kernels_of
from kvledgerd.core.epoch.epochs import FULL_SHARE, NEXT_STATES, Epoch
from kvledgerd.core.index import Cell
from kvledgerd.core.state import State
from kvledgerd.core.topology.topology_loss import breaks_of

__all__ = ["epoch_for", "epochs", "set_epoch"]

_KERNELS_NAMED = 8
"""Kernel ABIs that a refusal names, so that it stays a sentence."""


def epoch_for(state: State, tenant: str, layout: Layout, engine: int) -> tuple[int, tuple[Event, ...]]:
    """Return the number of a new layout's epoch, and the event that makes it if it is new.

    Args:
        state: The cache.
        tenant: Whose layout it is.
        layout: The layout.
        engine: Owner of an unpinned layout, 0 for one that names its weights.

    Raises:
        EpochError: The epoch, or a kernel ABI of the layout, was retired.
    """
    found = _find(state, tenant, layout.model, layout.weights_digest, engine)
    if found is not None:
        found.require_usable(layout)
        return found.number, ()
    begins = EpochState.ACTIVE if engine or _active(state, tenant, layout.model) is None else EpochState.CANARY
    return state.next_epoch, (_added(state, tenant, layout.model, layout.weights_digest, engine, begins, FULL_SHARE),)


def epochs(state: State, ask: Ask, request: Epochs) -> Decision:
    """List the epochs of a tenant."""
    del request
    mine = [epoch for epoch in state.epochs.values() if epoch.tenant == ask.caller.tenant]
    layouts = [known.epoch.number for known in state.layouts.values()]
    return Decision(reply=EpochList([_info(epoch, layouts.count(epoch.number)) for epoch in mine]))


def _info(epoch: Epoch, layouts: int) -> EpochInfo:
    return EpochInfo(
        epoch.model,
        epoch.weights,
        epoch.state,
        epoch.share,
        layouts,
        sum(epoch.memory.values()),
        epoch.disk,
        [f"{name} {number}" for name, number in epoch.kernels],
        epoch.engine,
    )


def set_epoch(state: State, ask: Ask, request: SetEpoch) -> Decision:
    """Change an epoch in one event; asking for what it is already changes nothing."""
    tenant = ask.caller.tenant
    epoch = _find(state, tenant, request.model, request.weights, 0)
    if epoch is None:
        return _announced(state, tenant, request)
    if request.kernel:
        return _kernel(state, epoch, request)
    share = request.share or epoch.share
    if (request.state, share) == (epoch.state, epoch.share):
        return Decision(reply=EpochSet(epoch.state, "", 0), ack=Ack.DURABLE)
    if request.state not in (epoch.state, *NEXT_STATES[epoch.state]):
        _refuse(epoch, request.state)
    other = _active(state, tenant, epoch.model) if request.state is EpochState.ACTIVE else None
    drained = other if other is not epoch else None
    event = EpochChanged(epoch.number, request.state, share, drained.number if drained else 0)
    ends = request.state is EpochState.RETIRED and epoch.state is not EpochState.RETIRED
    cells = ending_cells(state, epoch) if ends else []
    reply = EpochSet(epoch.state, drained.weights if drained else "", count_objects(state, cells))
    return Decision((*_broken(state, cells), event), reply, Ack.DURABLE, drop_effects(_records(state, cells)))


def _kernel(state: State, epoch: Epoch, request: SetEpoch) -> Decision:
    if request.state is not EpochState.RETIRED:
        raise CallerError(
            "a kernel ABI can only be retired", field="kernel", remedy="raise its number in the layout to begin anew"
        )
    kernel = (request.kernel, request.kernel_number)
    if kernel in epoch.kernels:
        return Decision(reply=EpochSet(epoch.state, "", 0), ack=Ack.DURABLE)
    _require_kernel(state, epoch, kernel)
    cells = ending_cells(state, epoch, kernel)
    reply = EpochSet(epoch.state, "", count_objects(state, cells))
    events = (*_broken(state, cells), KernelRetired(epoch.number, *kernel))
    return Decision(events, reply, Ack.DURABLE, drop_effects(_records(state, cells)))


def _require_kernel(state: State, epoch: Epoch, kernel: tuple[str, int]) -> None:
    """Refuse a kernel ABI that no layout has: a misspelt one would be retired for good, and the wrong bytes stay."""
    there = kernels_of(state, epoch)
    if kernel not in there:
        names = ", ".join(f"{name}:{number}" for name, number in there[:_KERNELS_NAMED]) or "none"
        more = f" and {len(there) - _KERNELS_NAMED} more" if len(there) > _KERNELS_NAMED else ""
        raise NotFoundError(
            f"no layout of {epoch.name} has the kernel ABI {kernel[0]}:{kernel[1]}; there are {names}{more}",
            field="kernel",
            remedy="name one of those, as NAME:NUMBER",
        )


def _announced(state: State, tenant: str, request: SetEpoch) -> Decision:
    """Make a canary known before its first engine, so that its share holds from its first byte on."""
    if request.state is not EpochState.CANARY or request.kernel:
        raise NotFoundError(
            f"no layout of {request.model} with weights {request.weights} was ever registered",
            field="weights",
            remedy="list what there is: kvledger epoch list",
        )
    mine = [epoch for epoch in state.epochs.values() if epoch.tenant == tenant]
    count = sum(1 for epoch in mine if not epoch.engine or epoch.engine in state.engines)
    if count >= state.config.max_layouts:
        raise LimitError(f"{count} epochs are known", field="max_layouts", remedy="use one of them")
    event = _added(state, tenant, request.model, request.weights, 0, EpochState.CANARY, request.share or FULL_SHARE)
    return Decision((event,), EpochSet(None, "", 0), Ack.DURABLE)


def _added(
    state: State, tenant: str, model: str, weights: str, engine: int, begins: EpochState, share: int
) -> EpochAdded:
    return EpochAdded(state.next_epoch, tenant, model, weights, engine, begins, share)


def _find(state: State, tenant: str, model: str, weights: str, engine: int) -> Epoch | None:
    for epoch in state.epochs.values():
        if (epoch.tenant, epoch.model, epoch.weights, epoch.engine) == (tenant, model, weights, engine):
            return epoch
    return None


def _active(state: State, tenant: str, model: str) -> Epoch | None:
    """Return the active epoch of a model; those of engines stand beside it."""
    for epoch in state.epochs.values():
        if (epoch.tenant, epoch.model, epoch.state, epoch.engine) == (tenant, model, EpochState.ACTIVE, 0):
            return epoch
    return None


def _refuse(epoch: Epoch, wanted: EpochState) -> NoReturn:
    remedy = (
        "activate the weights that shall serve instead: that drains these"
        if wanted is EpochState.CANARY
        else "canary or activate it first: it holds nothing that could drain"
    )
    raise CallerError(f"{epoch.name} is {epoch.state}, and not made {wanted} from there", field="state", remedy=remedy)


def _broken(state: State, cells: list[Cell]) -> list[Event]:
    """Return what becomes of topologies that pin cells which end; their bytes stay until the graph is dropped."""
    return breaks_of(state, cells, "its weights or its kernel ABI were retired")


def _records(state: State, cells: list[Cell]) -> list[BlobRef]:
    """Return all records of cells that end, manifests included."""
    return [ref for cell in cells for ref in records_of(state.layouts[cell.layout], cell)]
