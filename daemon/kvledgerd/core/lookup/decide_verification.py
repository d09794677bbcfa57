"""Decisions about verification: memory copies that are not trusted are compared with their fingerprints.

Not trusted is what an older incarnation left in memory, and what a relocation found to differ from its fingerprint.
"""

from kvledger_storage.events import ObjectsVerified, VerifyStarted
from kvledgerd.core.commands import Verified
from kvledgerd.core.decision import Ack, Decision, Effect, Park, SetGenerations, VerifySlots
from kvledgerd.core.holdings import OffloadJob, VerifyJob
from kvledgerd.core.index import ARENA, OFFSET, Cell, Copy
from kvledgerd.core.state import State
from kvledgerd.core.topology.topology_loss import breaks

__all__ = ["start_verification", "verified"]


def start_verification(state: State, objects: list[Copy], each: int = 0) -> Decision:
    """Compare memory copies with their fingerprints before they are handed out; the request waits.

    A job has `each` objects, or all of them if this is 0.

    What is being hashed already is waited for: a second answer about the same bytes could come after the first one let
    them be handed out, and would then be too late. So is what came into doubt while it is being written: it could not
    be dropped if it is wrong.
    """
    working = (job for job in state.jobs.values() if isinstance(job, VerifyJob | OffloadJob))
    running = {(c.id, s): job.id for job in working for c, s in job.objects}
    joined = tuple(dict.fromkeys(running[c.id, s] for c, s in objects if (c.id, s) in running))
    todo = [(c, s) for c, s in objects if (c.id, s) not in running]
    if not todo:
        return Decision(park=Park(joined))
    events, effects = list[VerifyStarted](), list[tuple[Ack, Effect]]()
    for job, first in enumerate(range(0, len(todo), each or len(todo)), state.serial):
        part = todo[first : first + (each or len(todo))]
        events.append(VerifyStarted(job, tuple((cell.id, slot) for cell, slot in part)))
        effects.append((Ack.SESSION, VerifySlots(job, tuple(_slot(state, c, s) for c, s in part))))
    jobs = (event.job for event in events)
    return Decision(tuple(events), effects=tuple(effects), park=Park((*joined, *jobs)))


def _slot(state: State, cell: Cell, slot: int) -> tuple[int, int, int]:
    """Return arena, offset and length of a memory copy."""
    return cell.word(slot, ARENA), cell.word(slot, OFFSET), state.layouts[cell.layout].length_of(cell, slot)


def verified(state: State, command: Verified) -> Decision:
    """Trust or quarantine what was hashed; quarantined memory moves its generation at once, also under a graph."""
    job = state.jobs.get(command.job)
    if not isinstance(job, VerifyJob):
        return Decision()
    right: list[tuple[int, int]] = []
    wrong: list[Copy] = []
    for (cell, slot), found in zip(job.objects, command.found, strict=True):
        if cell.unverified >> slot & 1:
            if found == cell.fingerprint(slot):
                right.append((cell.id, slot))
            else:
                wrong.append((cell, slot))
    event = ObjectsVerified(job.id, tuple(right), tuple((c.id, s) for c, s in wrong))
    # The job's number is a receipt that no reservation bears, so no handle fits these bytes any more.
    moved: Effect = SetGenerations(tuple((*_slot(state, c, s), job.id) for c, s in wrong))
    broken = breaks(state, wrong, "its bytes are not the committed ones")
    ack = Ack.DURABLE if broken else Ack.SESSION
    return Decision((*broken, event), ack=ack, effects=((Ack.WRITTEN, moved),) if wrong else ())
