# Generated from kvledger/_async/persisting.py by scripts/unasync.py; change it there.
"""A unit that asks to be persistent is acknowledged only once it is durable on disk."""

from kvledger._sync.session import Session
from kvledger.errors import CallerError, KVLedgerError, NotDurableError
from kvledger.layout import Layout
from kvledger.registered import RegisteredLayout
from kvledger.waiting import Deadline
from kvledger.wire.replies import Committed, Offloaded
from kvledger.wire.requests import Boundary, Offload

__all__ = ["async_persist", "require_persistable"]


def require_persistable(layout: Layout, boundary: int | None) -> None:
    """Return if a unit of this layout could ever be persistent.

    Raises:
        CallerError: It has no boundary, or its layout names no weights.
    """
    if boundary is None:
        wrong, remedy = "blocks without a boundary are not written to disk", "name the boundary at which they end"
        raise CallerError(wrong, field="persist", remedy=remedy)
    if not layout.weights_digest:
        wrong = "what is stored under a layout without weights digest ends with its engine"
        raise CallerError(wrong, field="persist", remedy="name the weights in the layout")


def async_persist(
    session: Session, layout: RegisteredLayout, at: Boundary, committed: Committed, deadline: Deadline
) -> None:
    """Wait until a boundary that was just published is durable on disk.

    Raises:
        NotDurableError: It is not, and says why; it was published in memory all the same.
    """
    try:
        session.request(Offload(session.number(layout), at, exact=True), Offloaded, deadline)
    except KVLedgerError as error:
        message = f"published in memory as commit {committed.commit_id}, but not durable: {error.message}"
        raise NotDurableError(message, field=error.field, remedy=error.remedy) from error
