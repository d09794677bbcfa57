"""What a hit tells, which needs no waiting and is the same for both clients; what it lends stands in `LentView`."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec.structs import replace

from kvledger.arenas import ArenaMaps
from kvledger.dropped import warn_dropped
from kvledger.lent_view import LentView
from kvledger.passing import Origin, PassedHit, packed
from kvledger.registered import RegisteredLayout
from kvledger.verdict import Cut
from kvledger.wire.replies import Acquired, Offer, Pending

__all__ = ["HitView", "Outcome"]


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


class HitView(LentView):
    """A verdict with its lease. Falsy on a miss; then `why` tells the reason.

    Args:
        outcome: What the look-up came to.
        origin: The engine and the daemon's incarnation.
        maps: Arenas of the connection that carried the lease, all of them mapped that the handles name.
        is_connected: Tells whether that connection lives.
    """

    def __init__(self, outcome: Outcome, origin: Origin, maps: ArenaMaps, is_connected: Callable[[], bool]) -> None:
        lease = outcome.reply.lease
        super().__init__(outcome.layout.layout, outcome.reply.rows, outcome.offer, lease, maps, is_connected)
        self._outcome = outcome
        self._origin = origin

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

    def export(self) -> bytes:
        """Return the hit as bytes from which another process of this engine reads it: see `Cache.attach`.

        The lease stays with this hit: release it when all processes have read.

        Raises:
            LeaseLost: The lease is released or lost.
        """
        self._require_lease()
        outcome, ours = self._outcome, [replace(run, count=count) for run, count in self._runs()]
        rows = ours[: len(ours) - len(outcome.offer.runs)] if outcome.offer else []
        lease, hashed = (outcome.reply.lease if outcome.offer else 0), outcome.reply.hash_tokens
        digest = outcome.layout.digest
        return packed(PassedHit(self._origin, digest, outcome.asked, lease, hashed, outcome.offer, rows))

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
    def restore_cost(self) -> tuple[int, float] | None:
        """Bytes and seconds that the best boundary on disk costs to read, at the rate of the restores so far.

        None if no such boundary was offered; 0 seconds before anything was restored.
        """
        offer = next((one for one in self._outcome.reply.offers if not one.ready), None)
        return None if offer is None else (offer.read_bytes, offer.read_ms / 1000)

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
            read = f"{pending.done} of {pending.total} objects, {pending.done_bytes} of {pending.total_bytes} bytes"
            lines.append(f"pending: restore {pending.job} has read {read}")
        lines += [self._outcome.note] if self._outcome.note else []
        lines += map(str, reply.cuts)
        lines += [f"and {reply.cuts_more} more cuts"] if reply.cuts_more else []
        return "\n".join(lines)
