"""Counters that outlive whoever counts: a small file, mapped, one number for each thing that is counted."""

from __future__ import annotations

import mmap
from pathlib import Path

__all__ = ["COUNTED", "Tally"]

COUNTED = (
    "reads",
    "verified",
    "verified_bytes",
    "wrong_bytes",
    "misses",
    "commits",
    "stored_bytes",
    "offloads",
    "evictions",
    "refused",
    "leases_lost",
    "disconnected",
)
"""`reads` are hits, `verified` objects that were compared in them."""


class Tally:
    """What one engine counts; a process that takes its place goes on counting.

    Args:
        path: The file, made if it is not there.
    """

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            file.truncate(mmap.PAGESIZE)
            self._map = mmap.mmap(file.fileno(), mmap.PAGESIZE)
        self._numbers = memoryview(self._map).cast("Q")

    def add(self, name: str, count: int = 1) -> None:
        """Count."""
        self._numbers[COUNTED.index(name)] += count

    def read(self) -> dict[str, int]:
        """Return all counters."""
        return dict(zip(COUNTED, self._numbers, strict=False))
