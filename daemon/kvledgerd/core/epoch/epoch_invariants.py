"""What holds of epochs after every event; sentences for `kvledgerd.core.invariants`."""

from collections import Counter
from collections.abc import Iterator

from kvledger.epochs import EpochState
from kvledger.geometry import bits
from kvledger.kinds import Kind
from kvledgerd.core.holdings import OffloadJob, RelocationJob, RestoreJob
from kvledgerd.core.placement.pools import paged
from kvledgerd.core.state import State
from kvledgerd.core.structure import record_bytes

__all__ = ["epoch_violations"]


def epoch_violations(state: State) -> Iterator[str]:
    """Yield every sentence about epochs that does not hold."""
    yield from _active(state)
    yield from _unusable(state)
    yield from _owned(state)
    yield from _accounts(state)


def _active(state: State) -> Iterator[str]:
    """A model has at most one active epoch, those of engines aside."""
    pinned = [e for e in state.epochs.values() if not e.engine]
    active = Counter((e.tenant, e.model) for e in pinned if e.state is EpochState.ACTIVE)
    for (tenant, model), count in active.items():
        if count > 1:
            yield f"{count} epochs of {tenant}/{model} are active"


def _unusable(state: State) -> Iterator[str]:
    """Nothing that was retired can be found, written or published; its jobs know that."""
    gone = {k.number: None for k in state.layouts.values() if k.epoch.why_unusable(k.layout)}
    for cell in state.cells.values():
        if cell.layout in gone and (cell.memory or cell.disk or cell.manifest):
            yield f"cell {cell.id} of a retired epoch keeps objects"
    for unit in state.units.values():
        if unit.layout in gone and not unit.aborted:
            yield f"unit {unit.id} of a retired epoch is open"
    for job in state.jobs.values():
        if isinstance(job, OffloadJob | RestoreJob) and job.layout in gone and not job.void:
            yield f"job {job.id} of a retired epoch is not void"


def _owned(state: State) -> Iterator[str]:
    """An epoch of an engine ends with it, and never reaches the disk."""
    for epoch in state.epochs.values():
        if epoch.engine and epoch.engine not in state.engines and epoch.state is not EpochState.RETIRED:
            yield f"epoch {epoch.number} outlives its engine {epoch.engine}"
        if epoch.engine and epoch.disk:
            yield f"epoch {epoch.number} belongs to an engine and has {epoch.disk} bytes on disk"
    for known in state.layouts.values():
        if state.epochs.get(known.epoch.number) is not known.epoch:
            yield f"layout {known.number} belongs to an epoch that is gone"


def _accounts(state: State) -> Iterator[str]:
    """An epoch's account is what its layouts hold."""
    memory: Counter[tuple[int, Kind]] = Counter()
    disk: Counter[int] = Counter()
    for number, kind, size in _held(state):
        memory[number, kind] += size
    for cell in state.cells.values():
        if not cell.disk and cell.manifest is None:
            continue
        known = state.layouts[cell.layout]
        lengths = [known.stored_length(cell, slot) for slot in bits(cell.disk)]
        lengths += [cell.manifest[2]] if cell.manifest is not None else []
        disk[known.epoch.number] += sum(map(record_bytes, lengths))
    for epoch in state.epochs.values():
        held = {kind: size for kind, size in epoch.memory.items() if size}
        found = {kind: size for (owner, kind), size in memory.items() if owner == epoch.number and size}
        if held != found or epoch.disk != disk[epoch.number]:
            yield (
                f"epoch {epoch.number} counts {held} and {epoch.disk} on disk, it has {found} and {disk[epoch.number]}"
            )


def _held(state: State) -> Iterator[tuple[int, Kind, int]]:
    """Yield epoch, kind and size of all that takes memory."""
    for cell in state.cells.values():
        known = state.layouts[cell.layout]
        for slot in bits(cell.memory):
            yield known.epoch.number, known.slot_kinds[slot], paged(known.length_of(cell, slot))
        for _, _, length, kind in cell.limbo or ():
            yield known.epoch.number, Kind(kind), paged(length)
    for unit in state.units.values():
        known = state.layouts[unit.layout]
        for index in unit.missing():
            item = unit.objects[index]
            yield known.epoch.number, known.geometry.groups[item.group].kind, paged(item.length)
    for job in state.jobs.values():
        if isinstance(job, RestoreJob | RelocationJob):
            for cell, slot in job.objects:
                known = state.layouts[cell.layout]
                yield known.epoch.number, known.slot_kinds[slot], paged(known.length_of(cell, slot))
