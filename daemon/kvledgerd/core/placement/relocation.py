"""Beginning to move objects within memory: the event that takes the new places, and the copies that follow it.

The new places bear a generation of their own before a byte lies there, and the old ones keep theirs until somebody else
gets them. So whoever still holds a handle of an old place reads the same bytes there, or finds the generation moved.
"""

from kvledger.kinds import Kind
from kvledger_storage.events import RelocationStarted
from kvledgerd.core.commands import Ask
from kvledgerd.core.decision import Ack, Decision, Effect, MoveSlots, Park, SetGenerations
from kvledgerd.core.holdings import RelocationJob
from kvledgerd.core.index import ARENA, OFFSET
from kvledgerd.core.placement.compaction import Move, moves_for
from kvledgerd.core.state import State

__all__ = ["has_moved", "make_way", "relocate"]


def relocate(state: State, kind: Kind, moves: list[Move], reason: str) -> Decision:
    """Begin to copy objects to new places; whoever asked waits for the job."""
    job = state.serial
    names = tuple((cell.id, slot) for (cell, slot), _ in moves)
    event = RelocationStarted(job, job, kind, names, tuple(place for _, place in moves), reason)
    lengths = [state.layouts[cell.layout].length_of(cell, slot) for (cell, slot), _ in moves]
    pairs = list(zip(moves, lengths, strict=True))
    fresh: Effect = SetGenerations(tuple((*place, length, job) for (_, place), length in pairs))
    copy: Effect = MoveSlots(
        job, kind, tuple((c.word(s, ARENA), c.word(s, OFFSET), *place, length) for ((c, s), place), length in pairs)
    )
    return Decision((event,), effects=((Ack.WRITTEN, fresh), (Ack.WRITTEN, copy)), park=Park((job,)))


def make_way(state: State, tenant: str, kind: Kind, lengths: list[int]) -> Decision | None:
    """Return a decision that moves objects so that new ones find a place, or waits for one under way; None if none."""
    for job in state.jobs.values():
        if isinstance(job, RelocationJob) and _is_about(state, job, tenant, kind):
            return Decision(park=Park((job.id,)))
    moves = moves_for(state, tenant, kind, lengths)
    return relocate(state, kind, moves, "room") if moves else None


def has_moved(state: State, ask: Ask) -> bool:
    """Tell whether a reservation has waited for a relocation, which alone of all it waits for leaves an outcome.

    What it found then it would find again, and wait without an end.
    """
    return any(job in state.outcomes for job in ask.parked)


def _is_about(state: State, job: RelocationJob, tenant: str, kind: Kind) -> bool:
    """Tell whether a relocation is about the memory of a tenant and kind, as all of its objects are."""
    cell, slot = job.objects[0]
    known = state.layouts[cell.layout]
    return known.tenant == tenant and known.slot_kinds[slot] is kind
