"""Decisions about the log's own past: which segments no start needs any more, and which ones audit gives up.

Both are events, so that an auditor finds in the log itself why it begins where it does. What moves or removes files
waits until its event is durable: after a crash the event is there and the files follow, never the other way round.
"""

from kvledger.wire.replies import Done
from kvledger_storage.events import ArchiveRetired, SegmentsArchived
from kvledgerd.core.commands import ArchiveDue, RetireDue
from kvledgerd.core.decision import Ack, ArchiveSegments, Decision, Effect, RetireSegments
from kvledgerd.core.state import State

__all__ = ["archive_due", "retire_due"]


def archive_due(state: State, command: ArchiveDue) -> Decision:
    """Archive what lies before a place in the log, unless that was done before."""
    if command.seq <= state.live_from[0]:
        return Decision(reply=Done(), ack=Ack.DURABLE)
    effect: Effect = ArchiveSegments(command.seq, command.chain)
    return Decision((SegmentsArchived(command.seq, command.chain),), Done(), Ack.DURABLE, ((Ack.DURABLE, effect),))


def retire_due(state: State, command: RetireDue) -> Decision:
    """Retire what lies before a place in the archive, unless that was done before; never what is live."""
    if not state.kept_from[0] < command.seq <= state.live_from[0]:
        return Decision(reply=Done(), ack=Ack.DURABLE)
    effect: Effect = RetireSegments(command.seq, command.chain)
    event = ArchiveRetired(command.seq, command.chain, command.reason)
    return Decision((event,), Done(), Ack.DURABLE, ((Ack.DURABLE, effect),))
