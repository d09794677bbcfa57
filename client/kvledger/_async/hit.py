"""A hit: the verdict of `acquire` and the lease that keeps its bytes where they are."""

from types import TracebackType
from typing import Self

from kvledger._async.session import AsyncSession
from kvledger.errors import KVLedgerError
from kvledger.hit_view import HitView, Outcome
from kvledger.waiting import Deadline, async_shielded
from kvledger.wire.replies import Done, FingerprintList
from kvledger.wire.requests import Fingerprints, Release, Renew

__all__ = ["AsyncHit"]


class AsyncHit(HitView):
    """See `HitView`; leaving the `async with` block checks all handles whose buffer was taken, then releases.

    Args:
        session: The session that carried the lease.
        outcome: What the look-up came to.
        timeout: Seconds that giving the lease back may take.
    """

    def __init__(self, session: AsyncSession, outcome: Outcome, timeout: float) -> None:
        super().__init__(outcome, session.origin, session.arenas, lambda: not session.closed)
        self._session = session
        self._timeout = timeout

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and not self._released:
                self.check()
        finally:
            await self.release()

    async def renew(self) -> None:
        """Show that the lease is still wanted, for requests that stay silent for minutes.

        Raises:
            LeaseLost: The connection has ended, or the daemon has revoked the lease.
        """
        self._require_connection()
        await self._session.request(Renew(self._outcome.reply.lease), Done, Deadline(self._timeout))

    async def fingerprints(self) -> list[bytes]:
        """Return the committed XXH3-128 of every handle, 16 bytes each, in the order in which the hit is iterated.

        Raises:
            LeaseLost: The connection has ended, the daemon has revoked the lease, or something of it was stored anew.
        """
        self._require_connection()
        asked = Fingerprints(self._outcome.reply.lease)
        found = await self._session.request(asked, FingerprintList, Deadline(self._timeout))
        return [found.fingerprints[at : at + 16] for at in range(0, len(found.fingerprints), 16)]

    async def release(self) -> None:
        """Give the lease back without waiting for an answer; releasing twice, or after a restart, is nothing.

        It is shielded from cancellation, and a daemon that went away has taken the lease back by itself.
        """
        if self._released:
            return
        self._released = True
        if not self._outcome.reply.lease or self._session.closed:
            return
        with async_shielded():
            try:
                await self._session.post(Release(self._outcome.reply.lease), Deadline(self._timeout))
            except KVLedgerError as error:
                self._session.lose(error)
