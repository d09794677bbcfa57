"""Degraded: restores stop after too many failures, until a probe reads a record that is right.

The shell counts, since failures are counted over time and the core has none; what follows from it is decided here.
While the cache is degraded nothing is read from disk but by a probe, memory is handed out as ever, and verdicts name
the reason. Whoever waits for a restore that is running by then gets its outcome.
"""

from itertools import islice

from kvledger.errors import DegradedError
from kvledger.geometry import bits
from kvledger.kinds import Kind
from kvledger_storage.events import DegradationChanged
from kvledgerd.core.commands import DegradeDue, Probed, ProbeDue
from kvledgerd.core.copies.records import read_of
from kvledgerd.core.decision import Ack, Decision, DiskProbe, Effect
from kvledgerd.core.index import Copy
from kvledgerd.core.state import State

__all__ = ["degrade_due", "probe_due", "probed", "require_restores"]

LOOKED_AT = 64
"""Prefixes among which a probe looks for a record; a prefix without one of its own is a boundary of rows alone."""


def require_restores(state: State) -> None:
    """Return if restores may begin.

    Raises:
        DegradedError: They may not; names the reason.
    """
    if state.degraded:
        raise DegradedError(
            f"restores have stopped: {state.degraded}",
            field="disk",
            remedy="compute, or use what is in memory; a probe lets restores begin again by itself",
        )


def degrade_due(state: State, command: DegradeDue) -> Decision:
    """Let no restore begin from now on."""
    return Decision() if state.degraded else Decision((DegradationChanged(command.reason),), ack=Ack.DURABLE)


def probe_due(state: State, command: ProbeDue) -> Decision:
    """Read one record of the prefix that was used most recently; with nothing on disk there is nothing to stop for."""
    del command
    if not state.degraded:
        return Decision()
    found = _record(state)
    if found is None:
        return Decision((DegradationChanged(""),), ack=Ack.DURABLE)
    known, (cell, slot) = state.layouts[found[0].layout], found
    probe: Effect = DiskProbe(known.layout.digest, read_of(known, cell, slot, (0, 0)))
    return Decision(effects=((Ack.SESSION, probe),))


def probed(state: State, command: Probed) -> Decision:
    """Let restores begin again if a record could be read; also by a damaged one the disk shows that it answers."""
    if command.error.startswith("failed") or not state.degraded:
        return Decision()
    return Decision((DegradationChanged(""),), ack=Ack.DURABLE)


def _record(state: State) -> Copy | None:
    for orders in state.orders.values():
        order = orders[Kind.DISK_PREFIX]
        for prefix in islice(reversed(order), LOOKED_AT):
            blocks = (node.cell(prefix.layout) for node in prefix.node.upwards())
            for cell in (prefix, *(block for block in blocks if block is not None)):
                if cell.disk:
                    return cell, next(iter(bits(cell.disk)))
    return None
