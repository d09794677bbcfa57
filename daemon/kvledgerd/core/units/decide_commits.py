"""Decisions about how units end: their tickets are committed, and with the last one they are published; or given up.

Of two engines that bring the same prefix the first commit wins, object by object, coupled groups together, and the
loser's reply says so.
"""

from kvledger.counts import counted
from kvledger.errors import CallerError, CommitRefusedError
from kvledger.wire.replies import Committed, Done, Waiting
from kvledger.wire.requests import Abort, Commit
from kvledger_storage.events import Event, ObjectsEvicted, TicketsCommitted, UnitAborted, UnitCommitted
from kvledgerd.core.commands import Ask
from kvledgerd.core.config import DiskWritePolicy
from kvledgerd.core.copies.decide_write import demote_later, write_later
from kvledgerd.core.copies.records import drop_effects, dropped_refs
from kvledgerd.core.copies.writing import shares
from kvledgerd.core.decision import Ack, Decision, Park
from kvledgerd.core.holdings import OffloadJob, RestoreJob, Unit
from kvledgerd.core.index import Cell, Copy
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.receipts import find_unit
from kvledgerd.core.state import State
from kvledgerd.core.topology.pinned import pinned_cells
from kvledgerd.core.topology.topology_loss import breaks
from kvledgerd.core.transitions import AT_REST
from kvledgerd.core.units.apply_units import cells_of
from kvledgerd.core.units.decide_units import couples
from kvledgerd.core.units.provenance import of_other_runs
from kvledgerd.core.units.tickets import brought_by, outstanding, require_member, to_commit
from kvledgerd.core.units.usability import check_still_there, describe

__all__ = ["abort", "commit", "publish"]


def commit(state: State, ask: Ask, request: Commit) -> Decision:
    """Commit tickets, and publish the unit with the last of them; or say what lacks."""
    unit = find_unit(state, ask.caller, request.unit)
    known = state.layouts[unit.layout]
    known.epoch.require_commits(known.layout)
    left = outstanding(known, unit)
    tickets = dict.fromkeys(to_commit(unit, ask.caller, request.ticket, left))
    brought = unit.missing()
    if len(tickets) < len(left) or unit.done:
        brought = [i for i in brought if brought_by(known, unit, i) in tickets]
    if _is_arriving(unit, brought):
        return Decision(park=Park(tuple(unit.jobs)))
    _check_complete(known, unit, brought)
    _check_prints(unit, brought, request.fingerprints)
    if len(tickets) < len(left):
        return _wait_for_others(unit, tickets, len(left) - len(tickets))
    return publish(state, known, unit)


def _wait_for_others(unit: Unit, tickets: dict[int, None], others: int) -> Decision:
    events = (TicketsCommitted(unit.id, tuple(tickets)),) if tickets else ()
    return Decision(events, Waiting(others))


def publish(state: State, known: KnownLayout, unit: Unit) -> Decision:
    """Publish a unit that is complete, or wait for the writes and reads of copies that have to go for it.

    Raises:
        CommitRefusedError: Something that it stands on is gone.
    """
    check_still_there(known, unit)
    others = of_other_runs(known, unit) if known.layout.strict_provenance else []
    there = _stored_meanwhile(known, unit)
    coarse = [] if others or unit.approx else _outdone(state, known, unit, there)
    dropped, differing, replaced = _duplicates(known, unit, there, others + coarse)
    busy = _at_work(state, others + replaced)
    if busy:
        return Decision(park=Park(busy))
    commit_id = state.serial
    events: list[Event] = []
    why = "belongs to other rows", "an exact copy takes its place", "without its coupled partner"
    for going, reason in zip((others, coarse, replaced), why, strict=True):
        if going:
            names = tuple((cell.id, slot) for cell, slot in going)
            events += breaks(state, going, reason)
            events.append(ObjectsEvicted(names, memory=True, disk=True, reason=reason))
    events.append(UnitCommitted(unit.id, commit_id, tuple(dropped), tuple(differing)))
    stored = len(unit.missing()) - len(dropped)
    reply = Committed(commit_id, stored, len(dropped), len(differing))
    further = demote_later(state, known.tenant)
    if unit.boundary:
        further += write_later(state, known, (unit.node, unit.residue, unit.residue_hash), DiskWritePolicy.ALWAYS)
    # Before the reply: the next reservation of this engine may evict what it stored last
    soon = ((Ack.SESSION, one) for one in further)
    effects = (*drop_effects(dropped_refs(state, others + coarse + replaced)), *soon)
    return Decision(tuple(events), reply, Ack.WRITTEN, effects)


def _stored_meanwhile(known: KnownLayout, unit: Unit) -> dict[int, Cell]:
    """Return the cells of those objects that a unit brings and that are there by now; mostly there is none."""
    missing = unit.missing()
    cells = cells_of(known, unit, [unit.objects[index] for index in missing])
    found = {}
    for index in missing if cells else ():
        item = unit.objects[index]
        cell = cells.get(item.block)
        if cell is not None and (cell.memory | cell.disk) >> item.slot & 1:
            found[index] = cell
    return found


def _outdone(state: State, known: KnownLayout, unit: Unit, there: dict[int, Cell]) -> list[Copy]:
    """Return the approximations in whose place a unit puts exact objects.

    One that is being copied or that a captured graph reads stays, and so does what is coupled to it.
    """
    found = {index: (cell, unit.objects[index].slot) for index, cell in there.items()}
    if not any(cell.approx >> slot & 1 for cell, slot in found.values()):
        return []
    graphs = pinned_cells(state)
    stays = {i: None for i, (cell, slot) in found.items() if cell.state(slot) not in AT_REST or cell.id in graphs}
    stays |= {i: None for pair in couples(known, unit.objects) if any(one in stays for one in pair) for i in pair}
    return [(cell, slot) for i, (cell, slot) in found.items() if cell.approx >> slot & 1 and i not in stays]


def _at_work(state: State, copies: list[Copy]) -> tuple[int, ...]:
    """Return the jobs that write or read some of these copies, which can not be dropped meanwhile."""
    if all(cell.state(slot) in AT_REST for cell, slot in copies):
        return ()
    jobs = (job for job in state.jobs.values() if isinstance(job, OffloadJob | RestoreJob))
    return tuple([job.id for job in jobs if not job.void and shares(job, copies)])


def _is_arriving(unit: Unit, brought: list[int]) -> bool:
    """Tell whether all that lacks is being copied, since a commit may be sent right behind the last put."""
    lacking = [i for i in brought if not unit.prints[i]]
    return bool(lacking and unit.jobs) and all(unit.filled[i] == unit.objects[i].length for i in lacking)


def _check_complete(known: KnownLayout, unit: Unit, brought: list[int]) -> None:
    open_ = [i for i in brought if not unit.prints[i]]
    if not open_:
        return
    item = unit.objects[open_[0]]
    have = unit.filled[open_[0]]
    raise CommitRefusedError(
        f"{len(open_)} of {len(brought)} objects are incomplete, first {describe(known, item)}: "
        f"{have} of {item.length} bytes",
        field="unit",
        remedy="put all bytes of every object that was not there, or abort",
    )


def _check_prints(unit: Unit, brought: list[int], sent: bytes) -> None:
    if not sent:
        return
    if len(sent) != 16 * len(brought):
        raise CallerError(
            f"fingerprints of {counted(len(brought), 'object')} are asked for",
            field="fingerprints",
            remedy="send 16 bytes for each of them, or none",
        )
    for order, index in enumerate(brought):
        if sent[16 * order : 16 * order + 16] != unit.prints[index]:
            raise CommitRefusedError(
                f"object {index} arrived with fingerprint {unit.prints[index].hex()}",
                field="fingerprints",
                remedy="the bytes changed on their way: abort and put them again",
            )


def _duplicates(
    known: KnownLayout, unit: Unit, stored: dict[int, Cell], others: list[Copy]
) -> tuple[list[int], list[int], list[Copy]]:
    """Return objects that are there meanwhile, those of them that differ, and half couples that have to go.

    Args:
        known: The unit's layout.
        unit: The unit.
        stored: Cells of those of its objects that are there.
        others: Copies that go already.
    """
    going = {(cell.id, slot): None for cell, slot in others}
    there = {index: cell for index, cell in stored.items() if (cell.id, unit.objects[index].slot) not in going}
    replaced = []
    for index, partner in couples(known, unit.objects) if there else ():
        if (index in there) != (partner in there):
            half = index if index in there else partner
            replaced.append((there.pop(half), unit.objects[half].slot))
    differing = [i for i, cell in there.items() if cell.fingerprint(unit.objects[i].slot) != unit.prints[i]]
    return list(there), differing, replaced


def abort(state: State, ask: Ask, request: Abort) -> Decision:
    """Give a unit up."""
    unit = find_unit(state, ask.caller, request.unit)
    require_member(unit, ask.caller)
    ranks = ", ".join(str(ticket) for ticket, owner in unit.joined.items() if owner == ask.caller.connection)
    reason = f"given up by rank {ranks}" if ranks else "given up by its owner"
    return Decision((UnitAborted(unit.id, reason),), Done())
