"""Device pools: pages of an engine's device that it set aside, and units that it fills there."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from kvledger._async.link import AsyncLink
from kvledger._async.session import AsyncSession
from kvledger.device_regions import Region, own_memory, regions
from kvledger.device_view import DevicePages, DeviceSlot, PoolWish, Victim, device_slots, prints_of, victims
from kvledger.errors import LeaseLost
from kvledger.hashing import ExtraKeys
from kvledger.kinds import Kind
from kvledger.prompt import Prompt
from kvledger.registered import RegisteredLayout
from kvledger.unit_view import UnitPlan
from kvledger.waiting import Deadline, async_shielded
from kvledger.wire.replies import Committed, Done, Evicted, PagesGiven, PoolRegistered
from kvledger.wire.requests import AskPages, DropPool, FreePages, GivePagesUp, RegisterPool, ReportFilled

__all__ = ["AsyncDevicePool", "AsyncDeviceUnit"]


class AsyncDevicePool:
    """Pages that an engine set aside on one device, for objects of one layout; made by `AsyncCache.device_pool`.

    It belongs to the connection that registered it, and ends with the engine, with `drop`, and with a restart of the
    daemon: its pages are the engine's again then, and what lay there is a miss.

    Attributes:
        number: Its number; handles that lie there name it.
        device: What the engine calls the device.
        size: Bytes.
        regions: Where the pages of each group lie.
        kept: Copies that a topology kept since before a restart, and that look-ups find again.
    """

    def __init__(
        self,
        session: AsyncSession,
        layout: RegisteredLayout,
        asked: RegisterPool,
        registered: PoolRegistered,
        cut: list[Region],
        timeout: float,
    ) -> None:
        self.number = registered.pool
        self.device = asked.device
        self.size = asked.size
        self.regions = tuple(cut)
        self.kept = registered.kept
        self._session = session
        self._layout = layout
        self._rank = asked.rank
        self._timeout = timeout
        self._dropped = False
        self.pages = DevicePages(asked.address, cut)
        session.arenas.add_pages(self.number, self.pages)

    @classmethod
    async def register(cls, link: AsyncLink, layout: RegisteredLayout, wish: PoolWish) -> "AsyncDevicePool":
        """Register a pool; see `AsyncCache.device_pool`."""
        counts = wish.counts(layout)
        cut = regions(layout.layout, wish.address, counts, wish.size)
        memory = wish.memory or own_memory(link.engine, wish.device, wish.address)

        async def step(session: AsyncSession) -> tuple[RegisterPool, PoolRegistered]:
            number, where = session.number(layout), (wish.device, memory, wish.address, wish.size)
            asked = RegisterPool(number, *where, counts, wish.rank, wish.again)
            return asked, await session.request(asked, PoolRegistered, Deadline(link.timeout))

        session, (asked, registered) = await link.retrying(step, Deadline(link.timeout))
        return cls(session, layout, asked, registered, cut, link.timeout)

    def __repr__(self) -> str:
        state = "dropped" if self._dropped else "lost" if self._session.closed else "registered"
        return f"<{type(self).__name__} {self.number} on {self.device}, {self.size} bytes, {state}>"

    async def ask(
        self,
        tokens: Sequence[int],
        *,
        boundary: int | None = None,
        start: int = 0,
        extra: ExtraKeys | None = None,
        all_pages: bool = False,
    ) -> "AsyncDeviceUnit":
        """Ask for pages for what a unit lacks here; older copies that nothing keeps may make room.

        Args:
            tokens: The prompt, at least up to the unit's end.
            boundary: Position at which requests shall be able to resume; None for whole blocks without a boundary.
            start: First token whose rows the unit brings, a multiple of `block_tokens`.
            extra: Extra keys of the prompt.
            all_pages: Whether every window page of the unit's blocks belongs to it.

        Raises:
            CallerError: `start` or `boundary` lies outside, or `start` inside a block.
            CapacityError: A region is too small or a cap would be passed, and nothing may make room.
            CommitRefusedError: No look-up could ever use such a unit.
            LeaseLost: The pool is gone.
        """
        size = self._layout.layout.block_tokens
        plan = UnitPlan.of(len(tokens), size, boundary=boundary, start=start, all_pages=all_pages)
        at = self._prompt(tokens, extra).boundary(plan.end)
        request = AskPages(self.number, at, plan.first_block, plan.boundary, plan.all_pages)
        given = await self._live().request(request, PagesGiven, Deadline(self._timeout))
        rank_of = self._layout.geometry.rank
        own = [o for o in plan.objects(self._layout) if self._rank in {-1, rank_of(o.group, o.shard)}]
        slots = device_slots(own, self._layout.layout, given, self.pages)
        for slot in slots:
            if not slot.present:
                self.pages.give(slot.offset, slot.length, given.unit)
        found = victims(self._layout.layout, given.victims)
        return AsyncDeviceUnit(self._session, given.unit, slots, found, plan.end, self._timeout)

    async def free(
        self,
        tokens: Sequence[int],
        *,
        kind: Kind,
        settled: int | None = None,
        extra: ExtraKeys | None = None,
        group: str = "",
        whole: bool = False,
    ) -> Evicted:
        """Free copies of one kind along a prompt; what is leased, asked for or pinned stays and is counted.

        Args:
            tokens: The prompt.
            kind: Kind of what is freed.
            settled: Tokens of it that are settled, all if None; speculative ones are never freed on.
            extra: Extra keys of the prompt.
            group: Only this group; empty for all of the kind.
            whole: Free everything of the kind along the settled prompt and at its end, coupled partners too. Otherwise
                only window pages that no resume at its end, or behind it, needs.

        Raises:
            RoutingError: `group` is of another kind.
            NotFoundError: Not all of the settled blocks are known.
            LeaseLost: The pool is gone.
        """
        prompt = self._prompt(tokens, extra)
        at = prompt.boundary(prompt.tokens if settled is None else settled)
        request = FreePages(kind, self.number, at, group, whole)
        return await self._live().request(request, Evicted, Deadline(self._timeout))

    async def drop(self) -> None:
        """Take the pages back; dropping twice, or after the pool is lost, is nothing.

        Raises:
            ServiceError: A lease, a unit that is being filled or a topology covers something there.
        """
        if not self._dropped and not self._session.closed:
            await self._session.request(DropPool(self.number), Done, Deadline(self._timeout))
        self._dropped = True

    def _prompt(self, tokens: Sequence[int], extra: ExtraKeys | None) -> Prompt:
        return Prompt(tokens, self._layout.layout.block_tokens, self._session.welcome.root_key, extra)

    def _live(self) -> AsyncSession:
        if self._dropped or self._session.closed:
            remedy = "register the pool again; what lay in it is computed anew"
            raise LeaseLost(f"device pool {self.number} is gone", field="pool", remedy=remedy)
        return self._session


class AsyncDeviceUnit:
    """Pages that were asked for. Fill them, then call `filled`; leaving the block without that gives them back.

    Attributes:
        unit: The receipt; also the generation of these pages.
        objects: All objects of the unit, in its order.
        victims: Copies that made room and lie nowhere else; put them into memory before you fill, if they are worth it.
        end: End of the unit, tokens.
    """

    def __init__(
        self,
        session: AsyncSession,
        unit: int,
        objects: list[DeviceSlot],
        found: tuple[Victim, ...],
        end: int,
        timeout: float,
    ) -> None:
        self.unit = unit
        self.objects = objects
        self.victims = found
        self.end = end
        self._session = session
        self._timeout = timeout
        self._open = True

    def __repr__(self) -> str:
        state = "open" if self._open else "closed"
        return f"<{type(self).__name__} {self.unit} {state}, {len(self.missing)} of {len(self.objects)} to fill>"

    @property
    def missing(self) -> list[DeviceSlot]:
        """The objects that are to be filled, in order."""
        return [slot for slot in self.objects if not slot.present]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with async_shielded():
            await self.give_up()

    async def filled(self, fp64s: Sequence[int], *, settled: int | None = None) -> Committed:
        """Say that all of `missing` is written, and by a stream that has finished: look-ups of this engine name it now.

        Args:
            fp64s: Fingerprint of each of these objects, in order, as `kvledger_kernels.fingerprint` makes it.
            settled: Tokens of the prompt that are settled, those of the unit if None.

        Raises:
            CommitRefusedError: Tokens of the unit are not settled, or something that was there is gone.
            GenerationError: The unit has ended.
        """
        prints = prints_of(self.missing, fp64s)
        request = ReportFilled(self.unit, prints, self.end if settled is None else settled)
        done = await self._session.request(request, Committed, Deadline(self._timeout))
        self._open = False
        return done

    async def give_up(self) -> None:
        """Give the pages back unfilled; nothing if they are filled, given up or lost."""
        if self._open and not self._session.closed:
            await self._session.request(GivePagesUp(self.unit), Done, Deadline(self._timeout))
        self._open = False
