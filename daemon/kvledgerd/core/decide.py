"""``decide(state, command) -> Decision``: what follows from a command, without carrying any of it out.

A request that can not be granted yields a `Failed` reply and no events: nothing is changed by what is refused. One kind
of refusal is counted, since it tells of an engine that stores in vain: a boundary that no look-up could use. There is
no clock here: whatever is timed (a silent engine, a deadline that passed) arrives as a command or as a flag of one.
"""

from collections.abc import Callable
from typing import Any

from kvledger.errors import KVLedgerError, NotFoundError, ProtocolError
from kvledger.wire import requests
from kvledger.wire.replies import Failed
from kvledger_storage.events import BoundaryRefused
from kvledgerd.core import commands
from kvledgerd.core.commands import Ask, Command
from kvledgerd.core.copies import (
    decide_convert,
    decide_degraded,
    decide_disk,
    decide_evict,
    decide_evict_many,
    decide_records,
    decide_relocation,
    decide_room,
    decide_scrub,
    decide_warm,
    decide_write,
)
from kvledgerd.core.decision import Decision
from kvledgerd.core.device_pools import decide_device, decide_pages
from kvledgerd.core.epoch import decide_epochs
from kvledgerd.core.incarnation import decide_history, decide_life, decide_status
from kvledgerd.core.incarnation.deadlines import bounded
from kvledgerd.core.lookup import decide_lookup, decide_verification
from kvledgerd.core.placement import decide_quota
from kvledgerd.core.receipts import refuse
from kvledgerd.core.state import State
from kvledgerd.core.topology import decide_topology
from kvledgerd.core.units import decide_commits, decide_units, tickets
from kvledgerd.core.units.usability import UnusableError

__all__ = ["decide", "failed"]

_REQUESTS: dict[type, Callable[[State, Ask, Any], Decision]] = {
    requests.Register: decide_life.register,
    requests.Acquire: decide_lookup.acquire,
    requests.Settle: decide_lookup.settle,
    requests.Renew: decide_lookup.renew,
    requests.Release: decide_lookup.release,
    requests.Fingerprints: decide_lookup.fingerprints,
    requests.Describe: decide_lookup.describe,
    requests.Status: decide_status.status,
    requests.Tenants: decide_status.tenants,
    requests.Reserve: decide_units.reserve,
    requests.Join: tickets.join,
    requests.Put: decide_units.put,
    requests.Commit: decide_commits.commit,
    requests.Abort: decide_commits.abort,
    requests.Evict: decide_evict.evict,
    requests.EvictMany: decide_evict_many.evict_many,
    requests.Quotas: decide_quota.quotas,
    requests.SetQuota: decide_quota.set_quota,
    requests.SetScrub: decide_scrub.set_scrub,
    requests.Offload: decide_disk.offload,
    requests.Restore: decide_convert.restore,
    requests.Warm: decide_warm.warm,
    requests.RegisterTopology: decide_topology.register,
    requests.OpenRecapture: decide_topology.open_recapture,
    requests.ChangeTopology: decide_topology.change,
    requests.CloseRecapture: decide_topology.close_recapture,
    requests.DropTopology: decide_topology.drop,
    requests.Topologies: decide_topology.list_topologies,
    requests.RegisterPool: decide_device.register_pool,
    requests.DropPool: decide_device.drop_pool,
    requests.AskPages: decide_pages.ask_pages,
    requests.ReportFilled: decide_pages.report_filled,
    requests.GivePagesUp: decide_pages.give_pages_up,
    requests.FreePages: decide_pages.free_pages,
    requests.Epochs: decide_epochs.epochs,
    requests.SetEpoch: decide_epochs.set_epoch,
}
_COMMANDS: dict[type, Callable[[State, Any], Decision]] = {
    commands.Start: decide_life.start,
    commands.Adopted: decide_topology.adopted,
    commands.Stop: decide_life.stop,
    commands.EngineJoined: decide_life.engine_joined,
    commands.EngineGone: decide_life.engine_gone,
    commands.ConnectionEnded: tickets.connection_ended,
    commands.EngineSilent: decide_life.engine_silent,
    commands.TopologyOrphaned: decide_topology.orphaned,
    commands.ArenaMade: decide_life.arena_made,
    commands.ArenaFailed: decide_life.arena_failed,
    commands.Copied: decide_units.copied,
    commands.Converted: decide_convert.converted,
    commands.Verified: decide_verification.verified,
    commands.Written: decide_disk.written,
    commands.RestoreDone: decide_disk.restore_done,
    commands.ArchiveDue: decide_history.archive_due,
    commands.RetireDue: decide_history.retire_due,
    commands.RoomWanted: decide_room.room_wanted,
    commands.RecordsCopied: decide_records.records_copied,
    commands.RecordsLost: decide_records.records_lost,
    commands.RestoreLate: decide_records.restore_late,
    commands.Scrubbed: decide_scrub.scrubbed,
    commands.TierNoted: decide_records.tier_noted,
    commands.Moved: decide_relocation.moved,
    commands.MemoryDue: decide_relocation.memory_due,
    commands.WriteDue: decide_write.write_due,
    commands.DemoteDue: decide_write.demote_due,
    commands.SaveDue: decide_write.save_due,
    commands.WarmDue: decide_warm.warm_due,
    commands.DegradeDue: decide_degraded.degrade_due,
    commands.ProbeDue: decide_degraded.probe_due,
    commands.Probed: decide_degraded.probed,
}


def failed(error: KVLedgerError) -> Failed:
    """Return a refusal as the wire says it."""
    return Failed(error.code, error.message[:4096], error.field[:256], error.remedy[:1024])


def decide(state: State, command: Command) -> Decision:
    """Return what follows from a command; the state is not changed.

    Args:
        state: The cache as all events so far have made it.
        command: A request of a client, or what the shell saw happen.

    Returns:
        Events to apply, the reply with its class of acknowledgement, and effects with theirs.
    """
    if not isinstance(command, Ask):
        return _COMMANDS[type(command)](state, command)
    try:
        if command.caller.engine not in state.engines:
            remedy = "connect again"
            raise NotFoundError("the engine that asks has ended", field="engine", remedy=remedy)
        if not command.permitted:
            refuse(state, command.body)
        handler = _REQUESTS.get(type(command.body))
        if handler is None:
            name = type(command.body).__name__
            raise ProtocolError(f"{name} is no request to the cache", field="request", remedy="send it to the server")
        return bounded(state.config, command, handler(state, command, command.body))
    except UnusableError as error:
        refused = BoundaryRefused(command.caller.engine, error.layout, error.message)
        return Decision((refused,), failed(error))
    except KVLedgerError as error:
        return Decision(reply=failed(error))
