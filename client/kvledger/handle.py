"""Handles: where the bytes of a hit lie, and whether they still are these bytes.

The daemon sends runs, one line for many objects at equal distances. They are expanded here one by one as they are
asked for, so that a look-up of a million tokens costs what is read of it and not what it covers.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from kvledger.errors import ProtocolError
from kvledger.layout import Layout
from kvledger.shm import ArenaView
from kvledger.wire.replies import HandleRun

__all__ = ["Handle", "HandleOwner", "check_runs", "expand", "rows_below"]


class HandleOwner(Protocol):
    """The hit or topology that a handle belongs to."""

    def lend(self, handle: "Handle") -> None:
        """Note that a buffer is taken, so that `check` compares it.

        Raises:
            TimePassedError: What kept the bytes in place is given up or lost.
        """


class Handle:
    """One object of a hit: the bytes of one group and shard for one block, page or boundary.

    Attributes:
        group: Name of the group.
        shard: Part of the group, of those that its ranks hold one each.
        first_token: First token that it is true for; the boundary itself for a snapshot.
        tokens: Tokens that it is true for, 0 for a snapshot.
        arena: Number of the arena that it lies in.
        offset: First byte in the arena's data.
        length: Bytes.
        generation: What the generation table shows at each of its pages as long as the bytes are these.
    """

    __slots__ = (
        "_owner",
        "_view",
        "arena",
        "first_token",
        "generation",
        "group",
        "length",
        "offset",
        "shard",
        "tokens",
    )

    def __init__(
        self, owner: HandleOwner, view: ArenaView, group: str, run: HandleRun, first_token: int, offset: int
    ) -> None:
        self._owner = owner
        self._view = view
        self.group = group
        self.shard = run.shard
        self.first_token = first_token
        self.tokens = run.tokens
        self.arena = run.arena
        self.offset = offset
        self.length = run.length
        self.generation = run.generation

    def __repr__(self) -> str:
        end = self.first_token + self.tokens
        return f"<Handle {self.group}/{self.shard} [{self.first_token}, {end}): {self.length} bytes>"

    @property
    def buffer(self) -> memoryview:
        """The bytes, read-only and not copied; copy them, then let the hit check before you use the copy.

        Raises:
            LeaseLost: The lease is released or lost.
        """
        self._owner.lend(self)
        return self._view.buffer(self.offset, self.length)

    @property
    def is_current(self) -> bool:
        """Whether bytes that were copied before now were those of this handle."""
        return self._view.is_current(self.offset, self.generation, self.length)


def check_runs(runs: Iterable[HandleRun], layout: Layout) -> None:
    """Refuse runs that name no group of the layout.

    Raises:
        ProtocolError: The daemon's answer does not fit the layout.
    """
    for run in runs:
        if run.group >= len(layout.groups) or run.shard >= layout.groups[run.group].shards:
            raise ProtocolError(
                f"a handle names group {run.group}, shard {run.shard}, which the layout does not have",
                field="runs",
                remedy="the daemon breaks the protocol; restart it and report this",
            )


def rows_below(runs: Iterable[HandleRun], end: int) -> Iterator[tuple[HandleRun, int]]:
    """Yield each run with the number of its objects that begin before token `end`."""
    for run in runs:
        if run.first_token >= end:
            continue
        count = run.count if run.step == 0 else min(run.count, -(-(end - run.first_token) // run.step))
        yield run, count


def expand(owner: HandleOwner, view: ArenaView, group: str, run: HandleRun, count: int) -> Iterator[Handle]:
    """Yield the first `count` handles of a run."""
    for number in range(count):
        yield Handle(owner, view, group, run, run.first_token + number * run.step, run.offset + number * run.stride)
