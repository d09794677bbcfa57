"""A rank's part of a unit that another process of the engine reserved."""

from kvledger._async.filling import AsyncFilling
from kvledger._async.session import AsyncSession
from kvledger.passing import PassedTicket
from kvledger.registered import RegisteredLayout
from kvledger.shm import Ring
from kvledger.unit_view import UnitPlan
from kvledger.wire.replies import Committed, Waiting

__all__ = ["AsyncUnitShard"]


class AsyncUnitShard(AsyncFilling):
    """What one rank brings. Leaving the `async with` block commits its ticket, an exception in it aborts the unit.

    If this process ends before it committed, the daemon aborts the unit.

    Attributes:
        rank: The rank.
        committed: What the commit was answered, None before it: `Committed` if this ticket was the last one and the
            unit is published, `Waiting` with the number of the others that are still to come.

    Args:
        session: The session that the ticket was joined on.
        ring: The staging ring of that session.
        layout: The layout of its objects.
        ticket: The ticket.
        timeout: Seconds that one step may take.
    """

    def __init__(
        self, session: AsyncSession, ring: Ring, layout: RegisteredLayout, ticket: PassedTicket, timeout: float
    ) -> None:
        plan = UnitPlan(ticket.first_block, ticket.end, boundary=ticket.boundary, all_pages=ticket.all_pages)
        slots, groups = plan.slots(layout, ticket.present), {spec.name: spec for spec in layout.layout.groups}
        own = [slot for slot in slots if groups[slot.group].rank_of(slot.shard) == ticket.rank]
        super().__init__(session, ring, layout, own, ticket.unit, timeout, ticket.persist)
        self.rank = ticket.rank
        self.committed: Committed | Waiting | None = None

    async def commit(self) -> Committed | Waiting:
        """Commit this rank's ticket; with the last one the unit is published. Does not wait for the other ranks.

        Returns:
            `Committed`, or `Waiting` with the number of tickets that are still to be committed.

        Raises:
            CommitRefusedError: Something that this rank brings is incomplete, or the unit as a whole can not be used.
            NotDurableError: The unit was reserved with `persist`, and was published in memory only.
            GenerationError: The unit has ended meanwhile; the error says how, for example which rank gave it up.
            LeaseLost: The reservation ended with its connection.
            DisconnectedError: The connection ended before the answer.
        """
        answer = await self._commit(self.rank)
        self.committed = answer if isinstance(answer, Waiting) else self._session.narrowed(answer, Committed)
        return self.committed
