"""``apply(state, event)``: the only way in which the state changes.

Applying never decides: every choice stands in the event. An event that does not fit the state raises, since then
either the log or the code is wrong, and going on would be worse than stopping.
"""

from collections.abc import Callable
from typing import Any

from kvledger_storage import device_events, disk_events, events
from kvledger_storage.events import Event
from kvledgerd.core.copies import apply_copies, apply_records, apply_relocation
from kvledgerd.core.device_pools import apply_device
from kvledgerd.core.epoch import apply_epochs
from kvledgerd.core.incarnation import apply_history, apply_life
from kvledgerd.core.lookup import apply_leases
from kvledgerd.core.placement import apply_memory
from kvledgerd.core.state import State
from kvledgerd.core.topology import apply_topology
from kvledgerd.core.units import apply_units

__all__ = ["DigestMismatchError", "apply"]


class DigestMismatchError(Exception):
    """A replay reached another state than the one that was logged."""


def _checkpoint(state: State, event: events.Checkpoint) -> None:
    if state.digest() != event.digest:
        raise DigestMismatchError(f"the log says {event.digest:016x}, the replay made {state.digest():016x}")


_HANDLERS: dict[type, Callable[[State, Any], None]] = {
    events.IncarnationStarted: apply_life.incarnation_started,
    events.IncarnationStopped: apply_life.incarnation_stopped,
    events.EngineEntered: apply_life.engine_entered,
    events.EngineHeard: apply_life.engine_heard,
    events.EngineLeft: apply_life.engine_left,
    events.EpochAdded: apply_epochs.epoch_added,
    events.EpochChanged: apply_epochs.epoch_changed,
    events.KernelRetired: apply_epochs.kernel_retired,
    events.LayoutRegistered: apply_life.layout_registered,
    events.ArenaRequested: apply_life.arena_requested,
    events.ArenaAdded: apply_life.arena_added,
    events.ArenaDropped: apply_life.arena_dropped,
    events.ArenaRekinded: apply_memory.arena_rekinded,
    events.QuotaMoved: apply_memory.quota_moved,
    events.QuotaSet: apply_memory.quota_set,
    events.LookedUp: apply_leases.looked_up,
    events.LeaseSettled: apply_leases.lease_settled,
    events.LeaseEnded: apply_leases.lease_ended,
    events.UnitReserved: apply_units.unit_reserved,
    events.BoundaryRefused: apply_units.boundary_refused,
    events.TicketJoined: apply_units.ticket_joined,
    events.TicketsCommitted: apply_units.tickets_committed,
    events.PutStarted: apply_units.put_started,
    events.PutFinished: apply_units.put_finished,
    events.UnitCommitted: apply_units.unit_committed,
    events.UnitAborted: apply_units.unit_aborted,
    events.ObjectsEvicted: apply_copies.objects_evicted,
    events.PrefixForgotten: apply_copies.prefix_forgotten,
    events.VerifyStarted: apply_copies.verify_started,
    events.ObjectsVerified: apply_copies.objects_verified,
    events.OffloadStarted: apply_copies.offload_started,
    events.Offloaded: apply_copies.offloaded,
    events.OffloadFailed: apply_copies.offload_failed,
    events.WriteDeclined: apply_copies.write_declined,
    events.PrefixKept: apply_copies.prefix_kept,
    events.DegradationChanged: apply_copies.degradation_changed,
    events.RestoreStarted: apply_copies.restore_started,
    events.RestoreFinished: apply_copies.restore_finished,
    events.RelocationStarted: apply_relocation.relocation_started,
    events.Relocated: apply_relocation.relocated,
    events.TopologyRegistered: apply_topology.topology_registered,
    events.RecaptureOpened: apply_topology.recapture_opened,
    events.TopologyChanged: apply_topology.topology_changed,
    events.RecaptureClosed: apply_topology.recapture_closed,
    events.TopologyBroken: apply_topology.topology_broken,
    events.TopologyEnded: apply_topology.topology_ended,
    events.SegmentsArchived: apply_history.segments_archived,
    events.ArchiveRetired: apply_history.archive_retired,
    device_events.DevicePoolAdded: apply_device.pool_added,
    device_events.DevicePoolTaken: apply_device.pool_taken,
    device_events.DevicePoolEnded: apply_device.pool_ended,
    device_events.PagesAsked: apply_device.pages_asked,
    device_events.PagesFilled: apply_device.pages_filled,
    device_events.PagesGivenUp: apply_device.pages_given_up,
    device_events.DeviceFreed: apply_device.device_freed,
    disk_events.RecordsDamaged: apply_records.records_damaged,
    disk_events.RecordsFound: apply_records.records_found,
    disk_events.RecordsMoved: apply_records.records_moved,
    disk_events.RestoreOverdue: apply_records.restore_overdue,
    disk_events.ScrubAdvanced: apply_records.scrub_advanced,
    disk_events.ScrubSwitched: apply_records.scrub_switched,
    disk_events.TierChanged: apply_records.tier_changed,
    events.Checkpoint: _checkpoint,
}


def apply(state: State, event: Event) -> None:
    """Change the state as an event says.

    Raises:
        DigestMismatchError: a checkpoint disagrees.
        TransitionError, KeyError, ValueError: the event does not fit the state.
    """
    _HANDLERS[type(event)](state, event)
