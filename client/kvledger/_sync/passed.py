# Generated from kvledger/_async/passed.py by scripts/unasync.py; change it there.
"""Taking what another process of the engine passed on: a hit to read, or a ticket to bring a part of a unit."""

from kvledger._sync.link import Link
from kvledger._sync.unit_shard import UnitShard
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

__all__ = ["attach", "join"]


def attach(link: Link, data: bytes) -> AttachedHit:
    """Return a hit that another process exported, with its arenas mapped; see `Cache.attach`."""
    passed, deadline = unpacked(data, PassedHit), Deadline(link.timeout)
    session = link.connect(deadline)
    passed.origin.require(session.origin, "hit")
    layout = _known(link, passed.layout)
    if passed.offer is not None:
        runs = [*passed.rows, *passed.offer.runs]
        check_runs(runs, layout)
        session.map_arenas({run.arena for run in runs if not run.prints}, deadline)
    return AttachedHit(passed, layout, session.arenas, lambda: not session.closed)


def join(link: Link, data: bytes) -> UnitShard:
    """Return the part of a unit that a ticket stands for; see `Cache.join`."""
    ticket, deadline = unpacked(data, PassedTicket), Deadline(link.timeout)
    session = link.connect(deadline)
    ticket.origin.require(session.origin, "ticket")
    layout = _known(link, ticket.layout)
    known = RegisteredLayout(layout, Geometry(layout), ticket.layout)
    ring = link.ring(session, deadline)
    session.request(Join(ticket.unit, ticket.rank), Joined, deadline)
    return UnitShard(session, ring, known, ticket, link.timeout)


def _known(link: Link, digest: bytes) -> Layout:
    layout = link.layout(digest)
    if layout is None:
        wrong = f"the layout {digest.hex()[:12]} is not registered here"
        raise CallerError(wrong, field="layout", remedy="register the engine's layout with this cache first")
    return layout
