"""Applying events about objects that move within memory."""

from kvledger_storage.events import Relocated, RelocationStarted
from kvledgerd.core.holdings import RelocationJob
from kvledgerd.core.index import ARENA, GENERATION, OFFSET
from kvledgerd.core.state import Outcome, State
from kvledgerd.core.structure import give, give_place, link_rows, note_outcome, pin, take, unpin
from kvledgerd.core.transitions import Happening

__all__ = ["DAMAGED", "relocated", "relocation_started"]

DAMAGED = "its bytes are not the committed ones"
"""Outcome of an object whose copy had another fingerprint; whatever it was trusted for before, it is in doubt now."""


def relocation_started(state: State, event: RelocationStarted) -> None:
    """Take the new places and keep what is copied where it is; nobody sees the copies before it is decided anew."""
    objects = [(state.cells[number], slot) for number, slot in event.objects]
    sources = [(c.word(s, ARENA), c.word(s, OFFSET), c.word(s, GENERATION)) for c, s in objects]
    state.jobs[event.job] = RelocationJob(event.job, event.generation, objects, list(event.placements), sources)
    state.serial = max(state.serial, event.job + 1, event.generation + 1)
    for (cell, slot), (arena, offset) in zip(objects, event.placements, strict=True):
        known = state.layouts[cell.layout]
        take(state, known, event.kind, arena, offset, known.length_of(cell, slot))
        pin(cell)


def relocated(state: State, event: Relocated) -> None:
    """Let objects lie at their new places and free the old ones, or the new ones where the copy was dropped."""
    job = state.jobs.pop(event.job)
    assert isinstance(job, RelocationJob)
    total = 0
    for index, why in enumerate(event.outcomes):
        if why:
            give_place(state, job, index)
            cell, slot = job.objects[index]
            cell.unverified |= (why == DAMAGED) << slot
        else:
            total += _move(state, job, index)
    for cell in {cell.id: cell for cell, _ in job.objects}.values():
        link_rows(state.layouts[cell.layout], [cell])
        state.touch(cell)
    note_outcome(state, event.job, Outcome(objects=event.outcomes.count(""), bytes=total))
    for cell, _ in job.objects:
        unpin(state, cell)


def _move(state: State, job: RelocationJob, index: int) -> int:
    """Move one object and return its bytes; the copy was just compared with its fingerprint."""
    cell, slot = job.objects[index]
    known = state.layouts[cell.layout]
    length = known.length_of(cell, slot)
    cell.move(slot, Happening.RELOCATE)
    give(state, known, known.slot_kinds[slot], *job.sources[index][:2], length)
    cell.set_words(slot, ARENA, *job.places[index], job.generation)
    cell.unverified &= ~(1 << slot)
    return length
