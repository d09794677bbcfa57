"""Taking what another process of the engine passed on: a hit to read, or a ticket to bring a part of a unit."""

from kvledger._async.link import AsyncLink
from kvledger._async.unit_shard import AsyncUnitShard
from kvledger.attached_hit import AttachedHit
from kvledger.errors import CallerError
from kvledger.geometry import Geometry
from kvledger.handle import check_runs
from kvledger.layout import Layout
from kvledger.passing import PassedHit, PassedTicket, unpacked
from kvledger.registered import RegisteredLayout
from kvledger.waiting import Deadline
from kvledger.wire.replies import Joined
from kvledger.wire.requests import Join

__all__ = ["async_attach", "async_join"]


async def async_attach(link: AsyncLink, data: bytes) -> AttachedHit:
    """Return a hit that another process exported, with its arenas mapped; see `AsyncCache.attach`."""
    passed, deadline = unpacked(data, PassedHit), Deadline(link.timeout)
    session = await link.connect(deadline)
    passed.origin.require(session.origin, "hit")
    layout = _known(link, passed.layout)
    if passed.offer is not None:
        runs = [*passed.rows, *passed.offer.runs]
        check_runs(runs, layout)
        await session.map_arenas({run.arena for run in runs if not run.prints}, deadline)
    return AttachedHit(passed, layout, session.arenas, lambda: not session.closed)


async def async_join(link: AsyncLink, data: bytes) -> AsyncUnitShard:
    """Return the part of a unit that a ticket stands for; see `AsyncCache.join`."""
    ticket, deadline = unpacked(data, PassedTicket), Deadline(link.timeout)
    session = await link.connect(deadline)
    ticket.origin.require(session.origin, "ticket")
    layout = _known(link, ticket.layout)
    known = RegisteredLayout(layout, Geometry(layout), ticket.layout)
    ring = await link.ring(session, deadline)
    await session.request(Join(ticket.unit, ticket.rank), Joined, deadline)
    return AsyncUnitShard(session, ring, known, ticket, link.timeout)


def _known(link: AsyncLink, digest: bytes) -> Layout:
    layout = link.layout(digest)
    if layout is None:
        wrong = f"the layout {digest.hex()[:12]} is not registered here"
        raise CallerError(wrong, field="layout", remedy="register the engine's layout with this cache first")
    return layout
