"""How the daemon and the caller's tenant stand: numbers, and shares of memory. Part of `AsyncCache`, for operators."""

from kvledger._async.link import AsyncLink
from kvledger.kinds import Kind
from kvledger.waiting import Deadline
from kvledger.wire import requests
from kvledger.wire.quotas import QuotaInfo, QuotaList
from kvledger.wire.replies import Done, EvictedMany, StatusReport, Warming
from kvledger.wire.tenants import TenantInfo, TenantList

__all__ = ["AsyncStanding"]


class AsyncStanding:
    """The part of a cache that needs no layout."""

    _link: AsyncLink

    async def quotas(self) -> list[QuotaInfo]:
        """Return how much memory each kind of this tenant is sure of, and what it holds."""
        _, found = await self._link.call(lambda _: requests.Quotas(), QuotaList, Deadline(self._link.timeout))
        return found.quotas

    async def set_quota(self, kind: Kind, size: int) -> list[QuotaInfo]:
        """Fix what a kind of this tenant is sure of; durable when it returns. Needs the right of an operator.

        Args:
            kind: The kind.
            size: Bytes of arenas that nobody takes from it, rounded up to pages; 0 leaves the quota to the load again.

        Returns:
            The shares of all kinds as they are now.

        Raises:
            RoutingError: No memory is kept for the kind.
            CapacityError: It does not fit beside what all other kinds and tenants are sure of.
        """
        _, found = await self._link.call(
            lambda _: requests.SetQuota(kind, size), QuotaList, Deadline(self._link.timeout)
        )
        return found.quotas

    async def set_scrub(self, *, paused: bool, now: bool = False) -> None:
        """Pause the scrubber of the disk tier or let it go on; durable when it returns. Needs the right of an operator.

        Args:
            paused: Whether it reads nothing until it is told to go on, restarts included.
            now: Whether a pass begins as soon as it may.
        """
        await self._link.call(lambda _: requests.SetScrub(paused, now), Done, Deadline(self._link.timeout))

    async def warm(self, *, layout: bytes = b"", block: bytes = b"", size: int = 0) -> Warming:
        """Bring prefixes of this tenant back from disk ahead of need, those used most recently first.

        It takes only memory that is free and goes on behind this call; `status` tells how far it is. Needs the right of
        an operator.

        Args:
            layout: First bytes of the digest of their layout; empty for any.
            block: Chain hash of a block on their path, 32 bytes; empty for any.
            size: Bytes to bring at most; 0 for as many as memory may have.

        Returns:
            Among how many prefixes it chooses (`total`).

        Raises:
            NotFoundError: No layout of this tenant has such a digest.
        """
        request = requests.Warm(layout, block, size)
        _, found = await self._link.call(lambda _: request, Warming, Deadline(self._link.timeout))
        return found

    async def evict_many(self, request: requests.EvictMany) -> EvictedMany:
        """Drop copies of many objects of this tenant by layout, path, position, kind and place: one bounded step.

        Durable when it returns where disk copies go. Needs the right of an operator.

        Args:
            request: What is meant; ask again with `after` as the answer's `next` says, until that is 0.

        Returns:
            What went, and what stayed for which reason.

        Raises:
            CallerError: The request names no place, no hash, or the digest of no layout.
        """
        _, found = await self._link.call(lambda _: request, EvictedMany, Deadline(self._link.timeout))
        return found

    async def tenants(self) -> list[TenantInfo]:
        """Return what each tenant has. Needs the right of an operator."""
        _, found = await self._link.call(lambda _: requests.Tenants(), TenantList, Deadline(self._link.timeout))
        return found.tenants

    async def status(self) -> StatusReport:
        """Return the daemon's state in numbers."""
        _, report = await self._link.call(lambda _: requests.Status(), StatusReport, Deadline(self._link.timeout))
        return report
