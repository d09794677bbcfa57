"""What lies around a state: bytes in memory and on disk, jobs under way, and what engines wait for or read."""

from __future__ import annotations

__all__ = ["ENGINE_KEYS", "TENANT", "Handle", "Pending", "Place", "Sides"]

TENANT = "default"
ENGINE_KEYS = (b"A" * 16, b"B" * 16)

Place = tuple[int, int]
"""Arena and offset, or segment and offset."""
Pending = tuple[str, tuple[tuple[int, ...], ...]]
"""What the shell has to do, and on what: numbers, an arena or a place in front."""
Handle = tuple[int, int, int, int, int, int]
"""Offer or -1 for rows, end token, arena, offset, content, generation."""


class Sides:
    """What lies around a state. What stands in the dictionaries is replaced, never changed in place.

    Attributes:
        memory: Place of each object to its content, 0 if undefined; what lies in free memory means nothing.
        generations: The generation table: place to generation.
        disk: Place of each record to its content.
        pending: Job to what the shell has to do.
        parked: Engine to the label of its request, the receipt that it names, and the jobs that it waits for.
        handles: Lease to its handles.
    """

    __slots__ = ("disk", "generations", "handles", "memory", "parked", "pending")

    def __init__(self) -> None:
        self.memory: dict[Place, int] = {}
        self.generations: dict[Place, int] = {}
        self.disk: dict[Place, int] = {}
        self.pending: dict[int, Pending] = {}
        self.parked: dict[int, tuple[str, int, tuple[int, ...]]] = {}
        self.handles: dict[int, tuple[Handle, ...]] = {}
