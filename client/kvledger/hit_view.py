"""What a hit tells and lends, which needs no waiting and is the same for both clients.

A hit is bound to the connection that carried its lease. When that has ended, the daemon has taken the lease back or
another incarnation runs, so nothing of it is lent any more, though the maps may still be readable.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from kvledger.arenas import ArenaMaps
from kvledger.dropped import warn_dropped
from kvledger.errors import CallerError, LeaseLost
from kvledger.handle import Handle, HandleOwner, expand, rows_below
from kvledger.layout import Layout
from kvledger.registered import RegisteredLayout
from kvledger.verdict import Cut, Exactness
from kvledger.wire.replies import Acquired, HandleRun, Offer, Pending
from kvledger.wire.requests import TopologyPart

__all__ = ["HitView", "Outcome"]

_REMEDY = "look up again and compute what is missing"


class Outcome(NamedTuple):
    """What a look-up came to.

    Attributes:
        layout: The layout that was asked with.
        asked: Length of the prompt, tokens.
        reply: The verdict.
        offer: The offer that holds for this prompt, None on a miss.
        pending: A restore that was not finished in time, if there is one.
        note: What the client itself has to say on the reason, empty if nothing.
    """

    layout: RegisteredLayout
    asked: int
    reply: Acquired
    offer: Offer | None
    pending: Pending | None = None
    note: str = ""


class HitView:
    """A verdict with its lease. Falsy on a miss; then `why` tells the reason.

    Args:
        outcome: What the look-up came to.
        maps: Arenas of the connection that carried the lease, all of them mapped that the handles name.
        is_connected: Tells whether that connection lives.
    """

    def __init__(self, outcome: Outcome, maps: ArenaMaps, is_connected: Callable[[], bool]) -> None:
        self._outcome = outcome
        self._maps = maps
        self._is_connected = is_connected
        self._lent: list[Handle] = []
        self._released = False

    def __bool__(self) -> bool:
        return self._outcome.offer is not None

    def __del__(self) -> None:
        if self and not self._released and self._is_connected():
            warn_dropped(self, "its lease stays until the cache is closed: use `with`, or call release()")

    def __repr__(self) -> str:
        if not self:
            state = "miss"
        elif self._released:
            state = "released"
        else:
            state = "leased" if self._is_connected() else "lost"
        return f"<{type(self).__name__} {state}, {self.tokens} of {self._outcome.asked} tokens, {self.exactness.value}>"

    def __iter__(self) -> Iterator[Handle]:
        """Yield the handles: rows of whole blocks below the boundary, then what belongs to the boundary itself."""
        yield from self.handles_for(self)

    def __getitem__(self, group: str) -> list[Handle]:
        """Return the handles of one group in token order, shard by shard where tokens are equal.

        Raises:
            CallerError: The layout has no such group.
        """
        return sorted(self.handles_for(self, [group]), key=lambda handle: (handle.first_token, handle.shard))

    def _group(self, name: str) -> int:
        names = [spec.name for spec in self._outcome.layout.layout.groups]
        if name not in names:
            remedy = f"use one of {', '.join(names)}"
            raise CallerError(f"{name!r} is no group of this layout", field="group", remedy=remedy)
        return names.index(name)

    @property
    def tokens(self) -> int:
        """The boundary at which the request may resume, 0 on a miss."""
        return self._outcome.offer.position if self._outcome.offer else 0

    @property
    def exactness(self) -> Exactness:
        """What a resume there yields."""
        return self._outcome.offer.exactness if self._outcome.offer else Exactness.EXACT

    @property
    def replay(self) -> int:
        """Tokens before the boundary that must be recomputed without writing over cached rows."""
        return self._outcome.offer.replay if self._outcome.offer else 0

    @property
    def hash_tokens(self) -> int:
        """Tokens that a plain hash cache would have claimed."""
        return self._outcome.reply.hash_tokens

    @property
    def restorable(self) -> tuple[int, ...]:
        """Every boundary without residue at which the prompt could resume, ascending."""
        return tuple(self._outcome.reply.restorable)

    @property
    def coverage(self) -> dict[str, int]:
        """Tokens up to which each group, taken alone, could resume."""
        names = (spec.name for spec in self._outcome.layout.layout.groups)
        return dict(zip(names, self._outcome.reply.coverage, strict=False))

    @property
    def wanted(self) -> tuple[int, ...]:
        """Boundaries after the chosen one at which a state is worth keeping while the rest is computed."""
        return tuple(p for p in self._outcome.reply.wanted if p > self.tokens)

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """Why tokens are not usable, longest run first."""
        return tuple(self._outcome.reply.cuts)

    @property
    def pending(self) -> Pending | None:
        """The restore that a longer wait would have joined, None if there is none."""
        return self._outcome.pending

    @property
    def why(self) -> str:
        """The verdict for people: one line of result, then one line for each cut."""
        reply, pending = self._outcome.reply, self._outcome.pending
        lines = [f"{self.tokens} of {self._outcome.asked} tokens usable, {reply.hash_tokens} by hash alone"]
        if self:
            lines[0] += f"; {self.exactness.value}" + (f", replay of {self.replay} tokens" if self.replay else "")
        if pending is not None:
            lines.append(f"pending: restore {pending.job} has done {pending.done} of {pending.total}")
        lines += [self._outcome.note] if self._outcome.note else []
        lines += map(str, reply.cuts)
        lines += [f"and {reply.cuts_more} more cuts"] if reply.cuts_more else []
        return "\n".join(lines)

    @property
    def layout(self) -> Layout:
        """The layout that was asked with."""
        return self._outcome.layout.layout

    def part(self, groups: Iterable[str] = ()) -> TopologyPart:
        """Return what names this hit's objects, or those of some groups, in requests about topologies.

        Raises:
            CallerError: It is a miss, or the layout has no such group.
            LeaseLost: The lease is released or lost.
        """
        if not self:
            raise CallerError("a miss hands nothing out", field="hit", remedy="capture over what a look-up found")
        self._require_lease()
        indices = [self._group(name) for name in groups]
        # The client keeps one offer of each lease and gives the others back, so it is the first.
        return TopologyPart(self._outcome.reply.lease, 0, indices)

    def handles_for(self, owner: HandleOwner, groups: Iterable[str] = ()) -> Iterator[Handle]:
        """Yield the handles, or those of some groups, as belonging to somebody else than this hit."""
        specs = self._outcome.layout.layout.groups
        wanted = [self._group(name) for name in groups] or range(len(specs))
        for run, count in self._runs():
            if run.group in wanted:
                yield from expand(owner, self._maps[run.arena], specs[run.group].name, run, count)

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
            raise LeaseLost("this hit was released", field="lease", remedy="take buffers inside the with block")
        self._require_connection()

    def _require_connection(self) -> None:
        if not self._released and not self._is_connected():
            wrong = "the connection that held the lease has ended"
            raise LeaseLost(wrong, field="incarnation", remedy=_REMEDY)

    def _runs(self) -> Iterator[tuple[HandleRun, int]]:
        offer = self._outcome.offer
        if offer is None:
            return
        block_tokens = self._outcome.layout.layout.block_tokens
        yield from rows_below(self._outcome.reply.rows, offer.position // block_tokens * block_tokens)
        yield from ((run, run.count) for run in offer.runs)
