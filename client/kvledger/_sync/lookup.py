# Generated from kvledger/_async/lookup.py by scripts/unasync.py; change it there.
"""From a prompt to a hit: ask, choose the offer that holds for this prompt, restore it if it lies on disk.

The daemon knows blocks only. Boundaries inside a block come as offers with the hash of their residue, and the client,
which has the tokens, keeps the first that is true for them and says so in a settle for which it does not wait.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from kvledger._sync.hit import Hit
from kvledger._sync.link import Link
from kvledger._sync.session import Session
from kvledger.errors import CommitRefusedError, NotFoundError, ServiceError
from kvledger.handle import check_runs
from kvledger.hashing import ExtraKeys
from kvledger.hit_view import Outcome
from kvledger.prompt import Prompt
from kvledger.registered import RegisteredLayout
from kvledger.waiting import Deadline, sleep
from kvledger.wire.replies import Acquired, Offer, Pending, Restored
from kvledger.wire.requests import Acquire, Restore, Settle

__all__ = ["RESTORE_WAIT_MS_MAX", "Lookup", "Wish"]

_ASK_AGAIN_SECONDS = 0.02
RESTORE_WAIT_MS_MAX = 3_600_000
"""The longest wait that one `Restore` may ask for, milliseconds."""


class Wish(NamedTuple):
    """What the caller of `acquire` asks for; see `Cache.acquire`."""

    leave: int
    minimum: int
    align: int
    restore: bool
    replay: bool
    approx: bool
    recompute: int = 0


class Lookup:
    """One look-up.

    Args:
        link: The cache's connection.
        layout: The layout to ask with.
        tokens: The prompt.
        extra: Extra keys of the prompt.
        wish: What the caller wants.
    """

    def __init__(
        self, link: Link, layout: RegisteredLayout, tokens: Sequence[int], extra: ExtraKeys | None, wish: Wish
    ) -> None:
        self._link = link
        self._layout = layout
        self._tokens = tokens
        self._extra = extra
        self._wish = wish
        self._root_key = b""
        self._hashed: Prompt | None = None

    def run(self, wait: float) -> Hit:
        """Ask, and wait up to `wait` seconds for what lies on disk."""
        session, reply = self._ask(restore=self._wish.restore)
        best = self._choose(session, reply, lambda _: True)
        if best is None or best.ready:
            return self._keep(session, reply, best, None, "")
        try:
            pending, note = self._restore(session, best, wait)
        except BaseException:
            self._give_back(session, reply)
            raise
        if pending is None:
            # Restored or failed, the verdict is another one now: a failure has its reason in the new cuts
            self._give_back(session, reply)
            session, reply = self._ask(restore=False)
        elif session.closed:
            session, reply = self._ask(restore=False)
        best = self._choose(session, reply, lambda offer: offer.ready)
        return self._keep(session, reply, best, pending, note)

    def _prompt(self, session: Session) -> Prompt:
        if self._hashed is None or self._root_key != session.welcome.root_key:
            self._root_key = session.welcome.root_key
            self._hashed = Prompt(self._tokens, self._layout.layout.block_tokens, self._root_key, self._extra)
        return self._hashed

    def _ask(self, *, restore: bool) -> tuple[Session, Acquired]:
        wish = self._wish

        def build(session: Session) -> Acquire:
            prompt = self._prompt(session)
            return Acquire(
                session.number(self._layout),
                prompt.tokens,
                prompt.hashes,
                wish.leave,
                wish.minimum,
                wish.align,
                restore,
                wish.replay,
                wish.approx,
                wish.recompute,
            )

        return self._link.call(build, Acquired, Deadline(self._link.timeout))

    def _choose(self, session: Session, reply: Acquired, allowed: Callable[[Offer], bool]) -> Offer | None:
        prompt = self._prompt(session)
        for offer in reply.offers:
            enough = offer.position - offer.replay >= self._wish.minimum
            if enough and allowed(offer) and prompt.matches(offer.position, offer.residue, offer.residue_hash):
                return offer
        return None

    def _keep(self, session: Session, reply: Acquired, offer: Offer | None, pending: Pending | None, note: str) -> Hit:
        deadline = Deadline(self._link.timeout)
        if offer is None:
            self._give_back(session, reply)
            if not note and pending is None and reply.offers:
                note = "no boundary offered is one of this prompt that brings the minimum"
            return self._hit(session, Outcome(self._layout, self._prompt(session).tokens, reply, None, pending, note))
        outcome = Outcome(self._layout, self._prompt(session).tokens, reply, offer, pending, note)
        hit = self._hit(session, outcome)
        try:
            runs = [*reply.rows, *offer.runs]
            check_runs(runs, self._layout.layout)
            if len(reply.offers) > 1 or offer.residue:
                session.post(Settle(reply.lease, reply.offers.index(offer)), deadline)
            session.map_arenas({run.arena for run in runs if not run.prints}, deadline)
        except BaseException:
            hit.release()
            raise
        return hit

    def _hit(self, session: Session, outcome: Outcome) -> Hit:
        return Hit(session, outcome, self._link.timeout)

    def _give_back(self, session: Session, reply: Acquired) -> None:
        if reply.lease:
            self._hit(session, Outcome(self._layout, 0, reply, None)).release()

    def _restore(self, session: Session, offer: Offer, wait: float) -> tuple[Pending | None, str]:
        """Bring a boundary back; return what is still pending, or why it failed, or neither."""
        at = self._prompt(session).boundary(offer.position)
        end = Deadline(wait)
        while True:
            left = min(int(end.rest * 1000), RESTORE_WAIT_MS_MAX)
            message = Restore(session.number(self._layout), at, left)
            deadline = Deadline(left / 1000 + self._link.timeout)
            try:
                answer = session.ask(message, deadline)
            except (ServiceError, CommitRefusedError, NotFoundError) as error:
                # Refused means that the boundary went between verdict and restore: damaged, or evicted by others
                return None, f"restore failed: {error}"
            if isinstance(answer, Restored):
                return None, ""
            pending = session.narrowed(answer, Pending)
            if end.passed:
                return pending, ""
            sleep(min(_ASK_AGAIN_SECONDS, end.rest))
