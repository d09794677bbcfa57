"""What can happen to objects that move within memory, as it stands in the log: a part of `kvledger_storage.events`."""

from kvledger.kinds import Kind
from kvledger_storage.event_form import EventForm, Placement

__all__ = ["Relocated", "RelocationStarted"]


class RelocationStarted(EventForm, frozen=True, tag="relocation_started.1"):
    """Objects are being copied to other places of their tenant's memory, private until it is decided anew.

    Attributes:
        job: The job.
        generation: What the new places bear.
        kind: Kind of all objects.
        objects: Each as (cell, slot).
        placements: The new place of each.
        reason: Why, for people.
    """

    job: int
    generation: int
    kind: Kind
    objects: tuple[tuple[int, int], ...]
    placements: tuple[Placement, ...]
    reason: str


class Relocated(EventForm, frozen=True, tag="relocated.1"):
    """The copies of a relocation ended.

    Attributes:
        job: The job.
        outcomes: One text for each object: empty if it lies at its new place now, else why its copy was dropped.
    """

    job: int
    outcomes: tuple[str, ...]
