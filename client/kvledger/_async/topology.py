"""A topology: what a captured graph reads in place, for as long as it may be replayed."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from kvledger._async.link import AsyncLink
from kvledger.errors import RecaptureError, TopologyLostError
from kvledger.lent_view import LentView
from kvledger.topology_view import TopologyView, require_hits, require_resident
from kvledger.waiting import Deadline, async_shielded
from kvledger.wire.replies import Done, TopologyList, TopologyRegistered, TopologyReport
from kvledger.wire.requests import (
    ChangeTopology,
    CloseRecapture,
    DropTopology,
    OpenRecapture,
    RegisterTopology,
    Topologies,
)

__all__ = ["AsyncRecapture", "AsyncTopology"]


class AsyncTopology(TopologyView):
    """See `TopologyView`; made by `AsyncCache.register_topology`.

    Args:
        link: The cache's connection over time.
        report: What the daemon says of it.
    """

    def __init__(self, link: AsyncLink, report: TopologyReport) -> None:
        super().__init__(report, lambda: link.closed)
        self._link = link

    @classmethod
    async def register(cls, link: AsyncLink, hits: Sequence[LentView], groups: Sequence[str]) -> "AsyncTopology":
        """Register a topology over hits; see `AsyncCache.register_topology`."""
        require_hits(hits)
        request, deadline = RegisterTopology([hit.part(groups) for hit in hits]), Deadline(link.timeout)
        session = await link.connect(deadline)
        reply = await session.ask(request, deadline)
        require_resident(reply, hits[0].layout)
        topology = cls(link, session.narrowed(reply, TopologyRegistered).topology)
        for hit in hits:
            topology.pin(hit.handles_for(topology, groups), topology.report)
        return topology

    @classmethod
    async def found(cls, link: AsyncLink) -> "list[AsyncTopology]":
        """Return the topologies of this engine, without handles; see `AsyncCache.topologies`."""
        _, reply = await link.call(lambda _: Topologies(), TopologyList, Deadline(link.timeout))
        return [cls(link, report) for report in reply.topologies]

    @property
    def report(self) -> TopologyReport:
        """What the daemon said of it last."""
        return self._report

    async def refresh(self) -> None:
        """Ask the daemon how it stands: `objects`, `bytes` and `lost` are those of now.

        Raises:
            TopologyLostError: It has ended.
        """
        _, reply = await self._link.call(lambda _: Topologies(), TopologyList, self._deadline())
        for report in reply.topologies:
            if report.topology == self.number:
                self._report = report
                return
        remedy = "capture anew and register; a topology ends when it is dropped, or with its processes or its memory"
        raise TopologyLostError(f"topology {self.number} is not held", field="topology", remedy=remedy)

    async def drop(self) -> None:
        """Say that the graph will never be replayed again; dropping twice is nothing."""
        if self._dropped:
            return
        with suppress(TopologyLostError):  # it has ended by itself, or an earlier answer got lost
            await self._link.call(lambda _: DropTopology(self.number), Done, self._deadline())
        self._dropped = True

    @asynccontextmanager
    async def recapture(self) -> AsyncIterator["AsyncRecapture"]:
        """Open the recapture window for a block, in which the graph is not replayed and the topology may change.

        The window is closed at the end of the block, by an exception too; what was changed until then stays.

        Raises:
            RecaptureError: The window is open already.
            TopologyLostError: The topology has ended.
        """
        session = await self._link.connect(self._deadline())
        await session.request(OpenRecapture(self.number), Done, self._deadline())
        window = AsyncRecapture(self)
        try:
            yield window
        finally:
            window.close()
            with async_shielded():
                await self._close()

    async def _close(self) -> None:
        try:
            _, self._report = await self._link.call(
                lambda _: CloseRecapture(self.number), TopologyReport, self._deadline()
            )
        except RecaptureError:  # an earlier answer got lost
            await self.refresh()

    def _deadline(self) -> Deadline:
        return Deadline(self._link.timeout)

    async def change(
        self, hits: Sequence[LentView], groups: Sequence[str], *, add: bool = True, whole: bool = False
    ) -> None:
        """Pin or release what hits handed out; for `AsyncRecapture`."""
        require_hits(hits)
        parts, deadline = [hit.part(groups) for hit in hits], self._deadline()
        request = ChangeTopology(self.number, parts if add else [], [] if add else parts, whole)
        session = await self._link.connect(deadline)
        reply = await session.ask(request, deadline)
        require_resident(reply, hits[0].layout)
        report = session.narrowed(reply, TopologyReport)
        handles = [handle for hit in hits for handle in hit.handles_for(self, groups)]
        if whole:
            self.unpin(list(self), report)
        (self.pin if add else self.unpin)(handles, report)


class AsyncRecapture:
    """An open recapture window; made by `AsyncTopology.recapture`. Each change is in force when it returns."""

    def __init__(self, topology: AsyncTopology) -> None:
        self._topology = topology
        self._closed = False

    def __repr__(self) -> str:
        return f"<AsyncRecapture of {self._topology!r}, {'closed' if self._closed else 'open'}>"

    async def add(self, *hits: LentView, groups: Sequence[str] = ()) -> None:
        """Pin what hits handed out as well; what is pinned already is taken at the address that it has now.

        Args:
            hits: Hits that are not released.
            groups: Only these groups; all if empty.

        Raises:
            RecaptureError: The window is closed.
            NotResidentError: Something of it is not in memory.
            CapacityError: Topologies would pin more memory than they may.
        """
        self._require_open()
        await self._topology.change(hits, groups)

    async def remove(self, *hits: LentView, groups: Sequence[str] = ()) -> None:
        """Pin no longer what hits handed out; see `add`.

        Raises:
            RecaptureError: The window is closed.
            CallerError: Nothing would be left; drop the topology instead.
        """
        self._require_open()
        await self._topology.change(hits, groups, add=False)

    async def replace(self, *hits: LentView, groups: Sequence[str] = ()) -> None:
        """Pin what hits handed out and nothing else; see `add`."""
        self._require_open()
        await self._topology.change(hits, groups, whole=True)

    def close(self) -> None:
        """Take no further change."""
        self._closed = True

    def _require_open(self) -> None:
        if self._closed:
            remedy = "change the topology inside the `with topology.recapture()` block"
            raise RecaptureError("the recapture window is closed", field="topology", remedy=remedy)
