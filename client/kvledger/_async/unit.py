"""A unit: objects that are published together or not at all."""

from kvledger._async.filling import AsyncFilling
from kvledger._async.session import AsyncSession
from kvledger.passing import PassedTicket, packed
from kvledger.registered import RegisteredLayout
from kvledger.shm import Ring
from kvledger.unit_view import UnitPlan
from kvledger.wire.replies import Committed, Reserved
from kvledger.wire.requests import Boundary

__all__ = ["AsyncUnit"]


class AsyncUnit(AsyncFilling):
    """A reservation that is being filled. Leaving the `async with` block commits, an exception in it aborts.

    Args:
        session: The session that it was reserved on.
        ring: The staging ring of that session.
        layout: The layout of its objects.
        plan: What it covers.
        reserved: The daemon's answer.
        timeout: Seconds that one step may take.
        persist: Its boundary, if its commit is acknowledged only once that is durable.
    """

    def __init__(
        self,
        session: AsyncSession,
        ring: Ring,
        layout: RegisteredLayout,
        plan: UnitPlan,
        reserved: Reserved,
        timeout: float,
        persist: Boundary | None = None,
    ) -> None:
        slots = plan.slots(layout, reserved.present)
        super().__init__(session, ring, layout, slots, reserved.unit, timeout, persist)
        self._digest = layout.digest
        self._plan = plan
        self._present = reserved.present

    def tickets(self) -> dict[int, bytes]:
        """Hand the unit out to the ranks of this engine, each of which brings its own shards: see `Cache.join`.

        From then on this process puts nothing itself, unless it joins a ticket too; leaving the block does not commit,
        and an exception in it, or `abort`, ends the unit for all.

        Returns:
            A ticket for each rank that has something to bring. If nobody has, there is none, and the unit stays here,
            to be committed.

        Raises:
            CallerError: The unit is closed, or handed out already.
            LeaseLost: The reservation ended with its connection.
        """
        self._require_open()
        ranks = sorted({self._layout.group(s.group).rank_of(s.shard) for s in self.objects if not s.present})
        if ranks:
            self._state = "handed out"
        return {rank: packed(self._ticket(rank)) for rank in ranks}

    def _ticket(self, rank: int) -> PassedTicket:
        return PassedTicket(
            self._session.origin, self._digest, self._unit, rank, *self._plan, self._present, self._persist
        )

    async def commit(self) -> Committed:
        """Publish the unit: all of it, or nothing.

        Returns:
            `commit_id`, and how many objects were `stored` and how many were `duplicates` of another commit.

        Raises:
            CommitRefusedError: Something that a resume at the boundary needs is missing; the error names it.
            NotDurableError: It was reserved with `persist`, and was published in memory only; the error says why.
            LeaseLost: The reservation ended with its connection, and nothing was published.
            DisconnectedError: The connection ended before the answer; look up to see whether the unit was published.
        """
        return self._session.narrowed(await self._commit(-1), Committed)
