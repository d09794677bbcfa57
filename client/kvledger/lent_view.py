"""Bytes that a lease lends: handles of one boundary, and whether what was copied from them can be trusted.

The owner of the lease reads through it, and so does every other process of its engine that was handed the hit. What is
lent is bound to the connection through which this process sees the daemon: when that has ended, the daemon may have
taken the lease back or another incarnation may run, so nothing is lent any more, though the maps may still be readable.
"""

from collections.abc import Callable, Iterable, Iterator

from kvledger.arenas import ArenaMaps
from kvledger.errors import CallerError, LeaseLost
from kvledger.handle import Handle, HandleOwner, expand, expand_on_device, rows_below
from kvledger.layout import Layout
from kvledger.registered import group_index
from kvledger.verdict import Exactness
from kvledger.wire.replies import HandleRun, Offer
from kvledger.wire.requests import TopologyPart

__all__ = ["LentView"]

_REMEDY = "look up again and compute what is missing"


class LentView:
    """The handles of one boundary. Falsy if there is none.

    Args:
        layout: The layout of its objects.
        rows: Rows of whole blocks, perhaps beyond the boundary.
        offer: The boundary.
        lease: The receipt of what keeps its bytes where they are.
        maps: Arenas of this process's connection, all of them mapped that the handles name.
        is_connected: Tells whether that connection lives.
    """

    def __init__(
        self,
        layout: Layout,
        rows: list[HandleRun],
        offer: Offer | None,
        lease: int,
        maps: ArenaMaps,
        is_connected: Callable[[], bool],
    ) -> None:
        self._spec = layout
        self._rows = rows
        self._offer = offer
        self._lease = lease
        self._maps = maps
        self._is_connected = is_connected
        self._lent: list[Handle] = []
        self._released = False

    def __bool__(self) -> bool:
        return self._offer is not None

    def __iter__(self) -> Iterator[Handle]:
        """Yield the handles: rows of whole blocks below the boundary, then what belongs to the boundary itself."""
        yield from self.handles_for(self)

    def __getitem__(self, group: str) -> list[Handle]:
        """Return the handles of one group in token order, shard by shard where tokens are equal.

        Raises:
            CallerError: The layout has no such group.
        """
        return sorted(self.handles_for(self, [group]), key=lambda handle: (handle.first_token, handle.shard))

    def of_rank(self, rank: int) -> Iterator[Handle]:
        """Yield the handles of what one rank holds, alone or with others, in the order of iteration."""
        groups = self._spec.groups
        return self._handles(self, lambda run: groups[run.group].shard_at(rank) == run.shard)

    def handles_for(self, owner: HandleOwner, groups: Iterable[str] = ()) -> Iterator[Handle]:
        """Yield the handles, or those of some groups, as belonging to somebody else than this hit."""
        wanted = [group_index(self._spec, name) for name in groups] or range(len(self._spec.groups))
        return self._handles(owner, lambda run: run.group in wanted)

    def part(self, groups: Iterable[str] = ()) -> TopologyPart:
        """Return what names this hit's objects, or those of some groups, in requests about topologies.

        Raises:
            CallerError: It is a miss, or the layout has no such group.
            LeaseLost: The lease is released or lost.
        """
        if not self:
            raise CallerError("a miss hands nothing out", field="hit", remedy="capture over what a look-up found")
        self._require_lease()
        indices = [group_index(self._spec, name) for name in groups]
        # Of each lease one offer is kept and the others are given back, so it is the first.
        return TopologyPart(self._lease, 0, indices)

    @property
    def layout(self) -> Layout:
        """The layout that was asked with."""
        return self._spec

    @property
    def tokens(self) -> int:
        """The boundary at which the request may resume, 0 on a miss."""
        return self._offer.position if self._offer else 0

    @property
    def exactness(self) -> Exactness:
        """What a resume there yields."""
        return self._offer.exactness if self._offer else Exactness.EXACT

    @property
    def replay(self) -> int:
        """Tokens before the boundary that must be recomputed without writing over cached rows."""
        return self._offer.replay if self._offer else 0

    def check(self) -> None:
        """Make sure that all bytes copied so far were those of this hit; compare after the copy, not before it.

        Raises:
            LeaseLost: The connection that held the lease has ended, or bytes were reused; drop what was copied.
        """
        self._require_connection()
        moved = [handle for handle in self._lent if not handle.is_current]
        if moved:
            wrong = f"the bytes of {len(moved)} of {len(self._lent)} handles were taken back, first {moved[0]!r}"
            raise LeaseLost(wrong, field="generation", remedy=_REMEDY)

    def lend(self, handle: Handle) -> None:
        """Note that a handle's buffer is taken; `check` compares its generation from now on.

        Raises:
            LeaseLost: The lease is released or lost.
        """
        self._require_lease()
        self._lent.append(handle)

    def _require_lease(self) -> None:
        if self._released:
            raise LeaseLost("this hit was released", field="lease", remedy="use it inside the with block")
        self._require_connection()

    def _require_connection(self) -> None:
        if not self._released and not self._is_connected():
            wrong = "the connection that held the lease has ended"
            raise LeaseLost(wrong, field="incarnation", remedy=_REMEDY)

    def _handles(self, owner: HandleOwner, is_wanted: Callable[[HandleRun], bool]) -> Iterator[Handle]:
        groups = self._spec.groups
        for run, count in self._runs():
            if is_wanted(run):
                name = groups[run.group].name
                if run.prints:
                    yield from expand_on_device(owner, self._maps.pages(run.arena), name, run, count)
                else:
                    yield from expand(owner, self._maps[run.arena], name, run, count)

    def _runs(self) -> Iterator[tuple[HandleRun, int]]:
        if self._offer is None:
            return
        block_tokens = self._spec.block_tokens
        yield from rows_below(self._rows, self._offer.position // block_tokens * block_tokens)
        yield from ((run, run.count) for run in self._offer.runs)
