"""Decisions about objects that move within memory.

A move pins what it copies, so nothing of it is evicted or reused meanwhile; but a look-up may lease it, a graph may be
captured over it, and a retirement may end it. So when the copy is there it is decided anew for each object, and what
became of it since is stronger than the move: then the object stays where it is, and the copy is dropped. A copy with
another fingerprint tells of its source, held or not: that is verified, and handed out to nobody until then.
"""

from kvledger_storage.events import Event, Relocated
from kvledgerd.core.commands import MemoryDue, Moved
from kvledgerd.core.copies.apply_relocation import DAMAGED
from kvledgerd.core.decision import Decision
from kvledgerd.core.holdings import RelocationJob
from kvledgerd.core.index import ARENA, GENERATION, OFFSET
from kvledgerd.core.lookup.decide_verification import start_verification
from kvledgerd.core.placement.compaction import moves_to_spare
from kvledgerd.core.placement.growth import more_ahead
from kvledgerd.core.placement.relocation import relocate
from kvledgerd.core.state import State

__all__ = ["memory_due", "moved"]


def memory_due(state: State, command: MemoryDue) -> Decision:
    """Make an arena ahead of need, or move objects out of one that is nearly empty, one job at a time."""
    del command
    ahead = more_ahead(state)
    if ahead is not None:
        return ahead
    percent = state.config.compact_percent
    if not percent or any(isinstance(job, RelocationJob) for job in state.jobs.values()):
        return Decision()
    found = moves_to_spare(state, percent)
    if found is None:
        return Decision()
    decision = relocate(state, *found, "to empty an arena")
    return Decision(decision.events, effects=decision.effects)


def moved(state: State, command: Moved) -> Decision:
    """Let what nobody holds lie at its new place, and drop the copies of the rest."""
    job = state.jobs.get(command.job)
    if not isinstance(job, RelocationJob):
        return Decision()
    if command.error:
        outcomes = [f"not copied: {command.error}"] * len(job.objects)
    else:
        own: dict[int, int] = {}
        for cell, _ in job.objects:
            own[cell.id] = own.get(cell.id, 0) + 1
        outcomes = [_outcome(job, index, found, own) for index, found in enumerate(command.found)]
    events: list[Event] = [Relocated(job.id, tuple(outcomes))]
    wrong = [copy for copy, why in zip(job.objects, outcomes, strict=True) if why == DAMAGED]
    if not wrong:
        return Decision(tuple(events))
    doubted = start_verification(state, wrong)
    return Decision((*events, *doubted.events), effects=doubted.effects)


def _outcome(job: RelocationJob, index: int, found: bytes, own: dict[int, int]) -> str:
    """Return why the copy of one object is dropped; empty if the object lies there from now on.

    Args:
        job: The relocation.
        index: The object.
        found: Fingerprint of the copy.
        own: Pins that the relocation itself put on each cell.
    """
    cell, slot = job.objects[index]
    here = (cell.word(slot, ARENA), cell.word(slot, OFFSET), cell.word(slot, GENERATION))
    if not cell.memory >> slot & 1 or here != job.sources[index]:
        return "gone meanwhile"
    if found != cell.fingerprint(slot):
        return DAMAGED
    if cell.pins > own[cell.id]:
        return "held meanwhile"
    return ""
