"""What a topology tells and lends, which needs no waiting and is the same for both clients.

A captured graph reads fixed addresses of this process. So a topology holds the maps behind its handles by itself: they
stay where they are when the connection ends and when the daemon restarts, for as long as the topology object lives.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from kvledger.counts import counted
from kvledger.dropped import warn_dropped
from kvledger.errors import CallerError, NotResidentError, TopologyLostError
from kvledger.handle import Handle
from kvledger.layout import Layout
from kvledger.lent_view import LentView
from kvledger.wire.replies import NotResident, ObjectInfo, TopologyReport

__all__ = ["TopologyView", "require_hits", "require_resident"]


class TopologyView:
    """Objects that keep their addresses until the topology is dropped or this engine's processes have ended.

    Args:
        report: What the daemon says of it.
        is_closed: Tells whether the cache was closed on purpose.
    """

    def __init__(self, report: TopologyReport, is_closed: Callable[[], bool]) -> None:
        self._report = report
        self._is_closed = is_closed
        self._handles: list[Handle] = []
        self._dropped = False

    def __del__(self) -> None:
        if self._handles and not self._dropped and not self._is_closed():
            warn_dropped(self, "its memory stays pinned while this process lives: call drop() when its graph is gone")

    def __repr__(self) -> str:
        state = "dropped" if self._dropped else "recapturing" if self._report.recapturing else "held"
        lost = f", {self.lost} lost" if self.lost else ""
        return f"<{type(self).__name__} {self.number} {state}, {counted(self.objects, 'object')}{lost}>"

    def __iter__(self) -> Iterator[Handle]:
        """Yield the handles of what it pins, in the order in which it was named."""
        return iter(self._handles)

    def __getitem__(self, group: str) -> list[Handle]:
        """Return the handles of one group in token order; empty if it pins nothing of it."""
        found = [handle for handle in self._handles if handle.group == group]
        return sorted(found, key=lambda handle: (handle.first_token, handle.shard))

    @property
    def number(self) -> int:
        """Its number, which a restart of the daemon does not change."""
        return self._report.topology

    @property
    def objects(self) -> int:
        """How many objects it pins."""
        return self._report.objects

    @property
    def bytes(self) -> int:
        """Memory that they take, whole pages."""
        return self._report.bytes

    @property
    def lost(self) -> int:
        """How many of them are no longer what was registered, as far as the daemon has been asked."""
        return self._report.lost

    def check(self) -> None:
        """Make sure that the graph reads what was registered; compares generations in memory and asks nobody.

        Raises:
            TopologyLostError: Bytes were found damaged, or the topology was dropped; do not replay the graph.
        """
        moved = [handle for handle in self._handles if not handle.is_current]
        if self._dropped or moved:
            wrong = f"{len(moved)} of {len(self._handles)} objects are no longer what was registered"
            wrong = "it was dropped" if self._dropped else f"{wrong}, first {moved[0]!r}"
            raise TopologyLostError(wrong, field="topology", remedy="capture anew, over what a new look-up hands out")

    def lend(self, handle: Handle) -> None:
        """Let a buffer be taken; `check` compares all handles anyway.

        Raises:
            TopologyLostError: The topology was dropped.
        """
        if self._dropped:
            remedy = "look up again, and capture over what that hands out"
            raise TopologyLostError(f"{handle!r} is not pinned any more", field="topology", remedy=remedy)

    def pin(self, handles: Iterable[Handle], report: TopologyReport) -> None:
        """Take in that handles are pinned too. What moved is no part of it, unless the daemon still counts it lost."""
        known = {_place(handle): handle for handle in self._handles if report.lost or handle.is_current}
        for handle in handles:
            known.setdefault(_place(handle), handle)
        self._handles, self._report = list(known.values()), report

    def unpin(self, handles: Iterable[Handle], report: TopologyReport) -> None:
        """Take in that handles are not pinned any more."""
        gone = {_place(handle) for handle in handles}
        self._handles = [handle for handle in self._handles if _place(handle) not in gone]
        self._report = report


def _place(handle: Handle) -> tuple[int, int, int]:
    return handle.arena, handle.offset, handle.generation


def require_hits(hits: Sequence[LentView]) -> None:
    """Return if there is something to capture over.

    Raises:
        CallerError: There is no hit, or something else was passed.
    """
    if not hits or not all(isinstance(hit, LentView) for hit in hits):
        remedy = "pass hits that are not released yet"
        raise CallerError("a topology is made of hits", field="hits", remedy=remedy)


def require_resident(reply: object, layout: Layout) -> None:
    """Return if a reply is no refusal of what lies not in memory.

    Raises:
        NotResidentError: It is.
    """
    if isinstance(reply, NotResident):
        named = tuple(_text(one, layout) for one in reply.objects)
        count = len(named) + reply.more
        remedy = "restore what lies on disk, look up again, and register then"
        wrong = f"{counted(count, 'object')} not in memory, first {named[0]}"
        raise NotResidentError(wrong, field="hits", remedy=remedy, objects=named, more=reply.more)


def _text(one: ObjectInfo, layout: Layout) -> str:
    name = layout.groups[one.group].name if one.group < len(layout.groups) else str(one.group)
    where = f"block {one.block}" if one.block >= 0 else "the boundary"
    return f"{name}/{one.shard} of {where}: {one.state}"
