"""Which tables tell what an event says: those of its own, or the general one alone.

Whoever adds an event adds it here, and a test says so. Until then it is kept whole, as JSON in the general table: no
event is ever lost for want of a table.
"""

from typing import Final

from kvledger_storage import device_events, disk_events, events

__all__ = ["BRIEF", "TOLD", "WHOLE", "is_whole"]

TOLD: Final = frozenset(
    {
        events.EngineEntered,
        events.EngineLeft,
        events.LayoutRegistered,
        events.LookedUp,
        events.LeaseSettled,
        events.LeaseEnded,
        events.UnitReserved,
        events.UnitCommitted,
        events.UnitAborted,
        events.ObjectsEvicted,
        events.PrefixForgotten,
        events.ObjectsVerified,
        events.OffloadStarted,
        events.Offloaded,
        events.OffloadFailed,
        events.RestoreStarted,
        events.RestoreFinished,
        events.Relocated,
        device_events.PagesAsked,
        device_events.PagesFilled,
        device_events.PagesGivenUp,
        device_events.DeviceFreed,
        disk_events.RecordsDamaged,
        disk_events.RecordsMoved,
        disk_events.RestoreOverdue,
    }
)
"""Told by tables of their own."""
BRIEF: Final = frozenset(
    {
        events.Checkpoint,
        events.PutStarted,
        events.PutFinished,
        events.TicketJoined,
        events.TicketsCommitted,
        events.VerifyStarted,
        events.RelocationStarted,
        disk_events.ScrubAdvanced,
    }
)
"""Steps on the way to something that is told: the general table knows that they were, and no more."""
WHOLE: Final = frozenset(
    {
        events.IncarnationStarted,
        events.IncarnationStopped,
        events.EngineHeard,
        events.EpochAdded,
        events.EpochChanged,
        events.KernelRetired,
        events.ArenaRequested,
        events.ArenaAdded,
        events.ArenaDropped,
        events.ArenaRekinded,
        events.QuotaMoved,
        events.QuotaSet,
        events.BoundaryRefused,
        events.WriteDeclined,
        events.PrefixKept,
        events.DegradationChanged,
        events.TopologyRegistered,
        events.RecaptureOpened,
        events.TopologyChanged,
        events.RecaptureClosed,
        events.TopologyBroken,
        events.TopologyEnded,
        events.SegmentsArchived,
        events.ArchiveRetired,
        device_events.DevicePoolAdded,
        device_events.DevicePoolTaken,
        device_events.DevicePoolEnded,
        disk_events.RecordsFound,
        disk_events.TierChanged,
        disk_events.ScrubSwitched,
    }
)
"""Kept whole, as JSON: they are few. What they do to objects is told as well."""


def is_whole(form: type) -> bool:
    """Tell whether events of a form are kept whole."""
    return form not in TOLD and form not in BRIEF
