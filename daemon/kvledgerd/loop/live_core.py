"""The real core behind the writer loop's interface: state, decide, apply and the codec of events, tied together."""

from collections.abc import Callable, Iterator
from typing import Any, Final

from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk_events import RecordsMoved
from kvledger_storage.events import (
    Checkpoint,
    Event,
    LeaseSettled,
    LookedUp,
    Offloaded,
    OffloadFailed,
    RestoreFinished,
    encode,
)
from kvledgerd.core.apply import apply
from kvledgerd.core.commands import Command
from kvledgerd.core.config import DRILL_TENANT
from kvledgerd.core.copies.decide_write import unsaved
from kvledgerd.core.copies.records import records_of
from kvledgerd.core.copies.tier import Tier
from kvledgerd.core.decide import decide
from kvledgerd.core.decision import Decision
from kvledgerd.core.state import State
from kvledgerd.loop.ended_work import EndedWork
from kvledgerd.loop.hit_tokens import HitTokens

__all__ = ["LiveCore", "live_records"]


class LiveCore:
    """See `kvledgerd.loop.ports.Core`.

    Args:
        state: What the replay made.

    Attributes:
        hits: Hits of this incarnation, in tokens.
        ended: Work of the disk tier that has ended in it.
    """

    def __init__(self, state: State) -> None:
        self.state: Final = state
        self.hits: Final = HitTokens()
        ended = self.ended = EndedWork(state)
        self._counted: Final[dict[type, Callable[[Any], None]]] = {
            LookedUp: self._count_looked_up,
            LeaseSettled: self._count_settled,
            RestoreFinished: ended.restore_finished,
            Offloaded: lambda _: ended.offload_ended(well=True),
            OffloadFailed: lambda _: ended.offload_ended(well=False),
            RecordsMoved: ended.records_moved,
        }

    def decide(self, command: Command) -> Decision:
        """Decide one command; changes nothing."""
        return decide(self.state, command)

    def apply(self, event: Event) -> None:
        """Take one event into the state."""
        count = self._counted.get(type(event))
        if count is not None:
            count(event)
        apply(self.state, event)

    def _count_looked_up(self, event: LookedUp) -> None:
        tenant = self.state.layouts[event.layout].tenant
        if tenant != DRILL_TENANT:
            self.hits.count(event, tenant)

    def _count_settled(self, event: LeaseSettled) -> None:
        lease = self.state.leases[event.lease]
        kept, known = lease.offers[event.offer], self.state.layouts[lease.layout]
        if kept.residue and kept.ready:
            depth = self.state.nodes.get(kept.node, known.tree.root).depth
            self.hits.settled(lease.id, depth * known.layout.block_tokens + kept.residue, known.tenant)

    def tier(self) -> Tier:
        """Return what the log says of the disk tier as a whole."""
        return self.state.tier

    def unsaved(self) -> list[int]:
        """Return the cells of which something would be lost with the memory, most recently used first."""
        return unsaved(self.state)

    def encode(self, event: Event, time_ms: int, actor: str) -> bytes:
        """Return the event as it goes into the log."""
        return encode(event, time_ms, actor)

    def checkpoint(self) -> Event:
        """Return the event that records the digest of the state as it is now."""
        return Checkpoint(self.state.digest())

    def engine_number(self, tenant: str, key: bytes) -> int | None:
        """Return the number of a living engine; looks at the youngest first, since that is who asks."""
        engines = reversed(self.state.engines.values())
        return next((engine.number for engine in engines if engine.key == key and engine.tenant == tenant), None)


def live_records(state: State) -> Iterator[BlobRef]:
    """Yield every record on disk that the state knows, manifests included."""
    for cell in state.cells.values():
        yield from records_of(state.layouts[cell.layout], cell)
