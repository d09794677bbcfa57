"""Tickets: a unit that several ranks bring, each its own shards, from its own connection and ring.

A ticket is the number of a rank; it stands for the objects of the unit that this rank holds and that were not there
already. The connection that reserved holds every ticket until another connection of the engine joins it. A connection
commits the tickets that it holds; those that come first are told how many others are still to come, and with the last
one the unit is published, all of it at once. Nobody waits inside a commit: ranks also wait for each other elsewhere
(collectives), and two waits in opposite order would end at a deadline only.

A connection that ends before it committed what it holds leaves the unit incomplete for good, so the unit is aborted,
and whoever of the engine comes later is told why.
"""

from kvledger.errors import CallerError
from kvledger.wire.replies import Joined
from kvledger.wire.requests import Join
from kvledger_storage.events import Event, TicketJoined, UnitAborted
from kvledgerd.core.commands import Ask, Caller, ConnectionEnded
from kvledgerd.core.decision import Decision
from kvledgerd.core.holdings import Unit
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.receipts import find_unit
from kvledgerd.core.state import State

__all__ = ["brought_by", "connection_ended", "join", "outstanding", "require_member", "require_ticket", "to_commit"]


def brought_by(known: KnownLayout, unit: Unit, index: int) -> int:
    """Return the ticket of one of a unit's objects."""
    item = unit.objects[index]
    return known.geometry.rank(item.group, item.shard)


def outstanding(known: KnownLayout, unit: Unit) -> dict[int, int]:
    """Return the tickets that are still to be committed, each with the number of objects that it brings."""
    missing, only = unit.missing(), known.geometry.only_rank
    if only is not None:
        return {only: len(missing)} if missing and not unit.done else {}
    counts: dict[int, int] = {}
    for index in missing:
        ticket = brought_by(known, unit, index)
        if ticket not in unit.done:
            counts[ticket] = counts.get(ticket, 0) + 1
    return counts


def holder_of(unit: Unit, ticket: int) -> int:
    """Return the connection that holds a ticket."""
    return unit.joined.get(ticket, unit.holder)


def require_member(unit: Unit, caller: Caller) -> None:
    """Refuse a connection that neither reserved the unit nor joined a ticket of it."""
    if caller.connection not in {unit.holder, *unit.joined.values()}:
        raise CallerError("another connection holds this reservation", field="unit", remedy="join a ticket of it first")


def require_ticket(unit: Unit, caller: Caller, ticket: int) -> None:
    """Refuse a ticket that another connection holds, or that was committed."""
    if holder_of(unit, ticket) != caller.connection:
        raise CallerError(
            f"another connection holds the ticket of rank {ticket}", field="ticket", remedy="join the ticket first"
        )
    if ticket in unit.done:
        raise CallerError(
            f"the ticket of rank {ticket} is committed", field="ticket", remedy="put everything before the commit"
        )


def to_commit(unit: Unit, caller: Caller, ticket: int, left: dict[int, int]) -> list[int]:
    """Return the tickets that a commit is about.

    Args:
        unit: The unit.
        caller: Who commits.
        ticket: What the request names; -1 for all that the caller holds.
        left: The tickets that are still to be committed.
    """
    if ticket < 0:
        require_member(unit, caller)
        return [one for one in left if holder_of(unit, one) == caller.connection]
    require_ticket(unit, caller, ticket)
    _require_brings(ticket, left)
    return [ticket]


def _require_brings(ticket: int, left: dict[int, int]) -> None:
    if ticket not in left:
        raise CallerError(
            f"rank {ticket} brings nothing to this unit", field="ticket", remedy="commit the tickets that were given"
        )


def join(state: State, ask: Ask, request: Join) -> Decision:
    """Let a connection take a ticket."""
    unit = find_unit(state, ask.caller, request.unit)
    known = state.layouts[unit.layout]
    left = outstanding(known, unit)
    holder = unit.joined.get(request.ticket, ask.caller.connection)
    if holder != ask.caller.connection or request.ticket in unit.done:
        raise CallerError(
            f"the ticket of rank {request.ticket} was joined already", field="ticket", remedy="use each ticket once"
        )
    _require_brings(request.ticket, left)
    event = TicketJoined(unit.id, request.ticket, ask.caller.connection)
    return Decision((event,), Joined(unit.id, left[request.ticket]))


def connection_ended(state: State, command: ConnectionEnded) -> Decision:
    """Abort what a connection held and can not commit any more."""
    engine = state.engines.get(command.engine)
    events: list[Event] = []
    for number in engine.units if engine is not None else ():
        unit = state.units[number]
        left = outstanding(state.layouts[unit.layout], unit)
        lost = [ticket for ticket in left if holder_of(unit, ticket) == command.connection]
        if lost or (not left and unit.holder == command.connection):
            events.append(UnitAborted(number, _how(unit, lost, command)))
    return Decision(tuple(events))


def _how(unit: Unit, lost: list[int], command: ConnectionEnded) -> str:
    ranks = ", ".join(str(ticket) for ticket in lost if ticket in unit.joined)
    who = f"rank {ranks}" if ranks else "the connection that reserved it"
    return f"{who} ended before its commit: {command.reason}"
