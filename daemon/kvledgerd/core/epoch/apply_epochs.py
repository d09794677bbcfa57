"""Applying events about epochs: added, changed, a kernel retired.

A retirement is one event whatever the number of objects: which these are follows from the state. What a lease or a job
reads stays in memory until its pin goes, and nobody else finds it.
"""

from kvledger.epochs import EpochState
from kvledger_storage.events import EpochAdded, EpochChanged, KernelRetired
from kvledgerd.core.device_pools.device_structure import retire_pool
from kvledgerd.core.epoch.epochs import Epoch
from kvledgerd.core.holdings import OffloadJob, RestoreJob
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.placement.aging import requeue
from kvledgerd.core.state import State
from kvledgerd.core.structure import invalidate
from kvledgerd.core.units.apply_units import give_up_unit, note_ending

__all__ = ["epoch_added", "epoch_changed", "kernel_retired", "retire_owned"]


def epoch_added(state: State, event: EpochAdded) -> None:
    """Make an epoch known; those of engines that are gone are forgotten when nothing is left of them."""
    if event.engine:
        _forget_ended(state)
    epoch = Epoch(event.number, event.tenant, event.model, event.weights, event.engine)
    epoch.state, epoch.share = event.state, event.share
    state.epochs[epoch.number] = epoch
    state.next_epoch = epoch.number + 1
    state.toggle("epoch", *epoch.facts())


def epoch_changed(state: State, event: EpochChanged) -> None:
    """Change an epoch, and let the one that it replaces drain."""
    if event.drained:
        other = state.epochs[event.drained]
        _change(state, other, EpochState.DRAINING, other.share)
    epoch = state.epochs[event.epoch]
    _change(state, epoch, event.state, event.share)
    if event.state is EpochState.RETIRED:
        _invalidate(state, epoch)


def kernel_retired(state: State, event: KernelRetired) -> None:
    """Retire what was made by one kernel ABI."""
    epoch = state.epochs[event.epoch]
    state.toggle("epoch", *epoch.facts())
    epoch.kernels[event.name, event.number] = None
    state.toggle("epoch", *epoch.facts())
    _invalidate(state, epoch)


def retire_owned(state: State, engine: int) -> None:
    """Retire the epochs of an engine that ended: nobody can tell any more what weights they stand for."""
    for epoch in state.epochs.values():
        if epoch.engine == engine and epoch.state is not EpochState.RETIRED:
            _change(state, epoch, EpochState.RETIRED, epoch.share)
            _invalidate(state, epoch)


def _change(state: State, epoch: Epoch, after: EpochState, share: int) -> None:
    state.toggle("epoch", *epoch.facts())
    was, epoch.state, epoch.share = epoch.state, after, share
    state.toggle("epoch", *epoch.facts())
    if EpochState.DRAINING in {was, after} and was is not after:
        requeue(state, epoch)


def _invalidate(state: State, epoch: Epoch) -> None:
    """End the units, jobs and objects of those layouts of an epoch that can not be used any more."""
    gone = {k.number: k for k in state.layouts.values() if k.epoch is epoch and epoch.why_unusable(k.layout)}
    for unit in list(state.units.values()):
        if unit.layout in gone and not unit.aborted:
            note_ending(state, unit, epoch.why_unusable(gone[unit.layout].layout))
            give_up_unit(state, unit)
    for pool in [pool for pool in state.device_pools.values() if pool.known.number in gone]:
        retire_pool(state, pool)
    _void_jobs(state, gone)
    invalidate(state, [cell for cell in state.cells.values() if cell.layout in gone])


def _void_jobs(state: State, gone: dict[int, KnownLayout]) -> None:
    """Mark the jobs on what is gone: their answers free what they hold, and change nothing else."""
    for job in state.jobs.values():
        if not isinstance(job, OffloadJob | RestoreJob) or job.layout not in gone or job.void:
            continue
        job.void = True
        if isinstance(job, RestoreJob):
            for cell, slot in job.objects:
                del state.restoring[cell.id, slot]


def _forget_ended(state: State) -> None:
    """Forget epochs of engines that are gone, with their layouts, once no cell and no unit is left of them."""
    held = {cell.layout: None for cell in state.cells.values()} | {u.layout: None for u in state.units.values()}
    for epoch in list(state.epochs.values()):
        mine = [known for known in state.layouts.values() if known.epoch is epoch]
        ended = epoch.engine and epoch.state is EpochState.RETIRED
        if ended and not any(known.number in held for known in mine):
            for known in mine:
                del state.layouts[known.number]
                del state.layout_numbers[known.tenant, known.layout.digest, epoch.engine]
                state.toggle("layout", known.number, known.tenant, known.layout.digest)
            del state.epochs[epoch.number]
            state.toggle("epoch", *epoch.facts())
