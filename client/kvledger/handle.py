"""Handles: where the bytes of a hit lie, and whether they still are these bytes.

The daemon sends runs, one line for many objects at equal distances. They are expanded here one by one as they are
asked for, so that a look-up of a million tokens costs what is read of it and not what it covers.
"""

from collections.abc import Iterable, Iterator
from typing import Protocol

from kvledger.device_view import FP64_BYTES, DevicePlace, Pages
from kvledger.errors import ProtocolError
from kvledger.layout import Layout
from kvledger.wire.replies import HandleRun

__all__ = ["DeviceHandle", "Handle", "HandleOwner", "check_runs", "expand", "expand_on_device", "rows_below"]


class HandleView(Protocol):
    """The place in which handles lie: an arena that is mapped, or the pages of a device pool."""

    def buffer(self, offset: int, length: int) -> memoryview:
        """Return the bytes of an object, read-only."""

    def is_current(self, offset: int, generation: int, length: int) -> bool:
        """Tell whether all pages of an object bear this generation."""


_REPORT = "the daemon breaks the protocol; restart it and report this"


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
        arena: Number of the arena or device pool that it lies in.
        offset: First byte in the arena's data, or in the pool.
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
        self, owner: HandleOwner, view: HandleView, group: str, run: HandleRun, first_token: int, offset: int
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
            CallerError: The object lies on a device, where `device` tells its place.
        """
        self._owner.lend(self)
        return self._view.buffer(self.offset, self.length)

    @property
    def device(self) -> DevicePlace | None:
        """Where it lies on this engine's device, None if it lies in memory.

        Raises:
            LeaseLost: The lease is released or lost.
        """
        return None

    @property
    def is_current(self) -> bool:
        """Whether bytes that were copied before now were those of this handle."""
        return self._view.is_current(self.offset, self.generation, self.length)


class DeviceHandle(Handle):
    """One object of a hit that lies in a device pool of this engine. It has no host buffer.

    Attributes:
        fp64: Its fingerprint, as the engine reported it when it was filled; compare it on the device.
    """

    __slots__ = ("_pages", "fp64")

    def __init__(self, owner: HandleOwner, pages: Pages, group: str, run: HandleRun, number: int) -> None:
        first_token, offset = run.first_token + number * run.step, run.offset + number * run.stride
        super().__init__(owner, pages, group, run, first_token, offset)
        self._pages = pages
        self.fp64 = int.from_bytes(run.prints[FP64_BYTES * number : FP64_BYTES * (number + 1)], "little")

    @property
    def device(self) -> DevicePlace:
        """Where it lies on the device; wait for the stream that reads it, then let the hit check.

        Raises:
            LeaseLost: The lease is released or lost.
        """
        self._owner.lend(self)
        address = self._pages.address_of(self.offset)
        return DevicePlace(self.arena, address, self.offset, self.length, self.generation, self.fp64)


def check_runs(runs: Iterable[HandleRun], layout: Layout) -> None:
    """Refuse runs that name no group of the layout, or objects on a device without their fingerprints.

    Raises:
        ProtocolError: The daemon's answer does not fit the layout.
    """
    for run in runs:
        if run.group >= len(layout.groups) or run.shard >= layout.groups[run.group].shards:
            raise ProtocolError(
                f"a handle names group {run.group}, shard {run.shard}, which the layout does not have",
                field="runs",
                remedy=_REPORT,
            )
        if run.prints and len(run.prints) < FP64_BYTES * run.count:
            wrong = f"a handle brings {len(run.prints)} bytes of fp64 for {run.count} objects"
            raise ProtocolError(wrong, field="runs", remedy=_REPORT)


def rows_below(runs: Iterable[HandleRun], end: int) -> Iterator[tuple[HandleRun, int]]:
    """Yield each run with the number of its objects that begin before token `end`."""
    for run in runs:
        if run.first_token >= end:
            continue
        count = run.count if run.step == 0 else min(run.count, -(-(end - run.first_token) // run.step))
        yield run, count


def expand(owner: HandleOwner, view: HandleView, group: str, run: HandleRun, count: int) -> Iterator[Handle]:
    """Yield the first `count` handles of a run."""
    for number in range(count):
        yield Handle(owner, view, group, run, run.first_token + number * run.step, run.offset + number * run.stride)


def expand_on_device(owner: HandleOwner, pages: Pages, group: str, run: HandleRun, count: int) -> Iterator[Handle]:
    """Yield the first `count` handles of a run that lies in a device pool."""
    for number in range(count):
        yield DeviceHandle(owner, pages, group, run, number)
