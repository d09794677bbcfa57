"""Objects of a reservation on their way: put, lent as staging memory, or written as one stretch of the ring.

Who reserved fills a whole unit, a rank of the engine its own part of it; what they share stands here.
"""

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Self

from kvledger._async.persisting import async_persist
from kvledger._async.session import AsyncSession
from kvledger._async.transfer import AsyncTransfer
from kvledger.counts import counted
from kvledger.dropped import warn_dropped
from kvledger.errors import CallerError, DeadlineError, DisconnectedError, KVLedgerError, LeaseLost
from kvledger.registered import RegisteredLayout, group_index
from kvledger.shm import Ring
from kvledger.unit_view import GroupStage, UnitSlot, put_range
from kvledger.waiting import Deadline, async_shielded
from kvledger.wire.replies import Committed, Reply, Waiting
from kvledger.wire.requests import Abort, Boundary, Commit

__all__ = ["AsyncFilling"]

_REMEDIES = {"handed out": "join a ticket to bring something, or abort the unit"}


class AsyncFilling(ABC):
    """A reservation, or a part of one, that is being filled by this process.

    One task or thread fills a unit; several units may be filled at once.

    Args:
        session: The session that it was reserved on.
        ring: The staging ring of that session.
        layout: The layout of its objects.
        slots: Its objects.
        unit: The reservation.
        timeout: Seconds that one step may take.
        persist: The unit's boundary, if its commit is acknowledged only once that is durable.
    """

    def __init__(
        self,
        session: AsyncSession,
        ring: Ring,
        layout: RegisteredLayout,
        slots: list[UnitSlot],
        unit: int,
        timeout: float,
        persist: Boundary | None = None,
    ) -> None:
        self.objects = slots
        self._session = session
        self._registered = layout
        self._layout = layout.layout
        self._persist = persist
        self._unit = unit
        self._timeout = timeout
        self._transfer = AsyncTransfer(session, ring, unit, timeout)
        self._stages: dict[tuple[str, int | None], GroupStage] = {}
        self._state = "open"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self.abort()
        elif self._state == "open":
            await self.commit()

    def __del__(self) -> None:
        if self._state in {"open", "broken"} and not self._session.closed:
            warn_dropped(
                self, "its reservation stays until the cache is closed: use `with`, or call commit() or abort()"
            )

    def __repr__(self) -> str:
        state = "lost" if self._state == "open" and self._session.closed else self._state
        present = sum(slot.present for slot in self.objects)
        return f"<{type(self).__name__} {state}, {counted(len(self.objects), 'object')}, {present} present>"

    def __getitem__(self, key: str | tuple[str, int]) -> GroupStage:
        """Return all objects of a group, or of one shard of it, as one writable stretch of the ring.

        Raises:
            CallerError: The unit has no such group or is closed, or the group is longer than the ring.
            RingFullError: The ring has no room now; put the objects one by one instead.
        """
        self._require_open()
        name, shard = key if isinstance(key, tuple) else (key, None)
        if (name, shard) not in self._stages:
            group_index(self._layout, name)
            slots = [s for s in self.objects if s.group == name and shard in (None, s.shard)]
            self._stages[name, shard] = GroupStage(self._transfer.ring, slots)
        return self._stages[name, shard]

    def __iter__(self) -> Iterator[UnitSlot]:
        """Yield `objects`; without this, looping over a unit would ask it for a group called 0."""
        return iter(self.objects)

    async def put(self, slot: UnitSlot, data: bytes | bytearray | memoryview) -> None:
        """Copy an object into the ring and hand it over, in parts if it is long; does not wait until it is stored.

        Args:
            slot: One of `objects`.
            data: Contiguous bytes of exactly its length.

        Raises:
            CallerError: The length is wrong, or the unit is closed.
            LeaseLost: The reservation ended with its connection.
        """
        self._require_open()
        view = memoryview(data).cast("B")
        if len(view) != slot.length:
            wrong = f"{len(view)} bytes for an object of {slot.length}"
            raise CallerError(
                wrong, field=f"objects[{slot.index}]", remedy="pass all bytes of the object, pads included"
            )
        if slot.present:
            return
        step = self._transfer.chunk
        with self._breaking():
            for start in range(0, len(view), step):
                piece = view[start : start + step]
                part = await self._transfer.take(len(piece))
                self._transfer.ring.buffer(part)[:] = piece
                await self._transfer.hand_over([put_range(self._layout, slot, start, part.offset, len(piece))], part)

    @asynccontextmanager
    async def staging(self, slot: UnitSlot) -> AsyncIterator[memoryview]:
        """Lend the writable bytes of an object in the ring; leaving the block hands them over, an exception does not.

        Raises:
            CallerError: The object is longer than the ring, or the unit is closed.
            LeaseLost: The reservation ended with its connection.
        """
        self._require_open()
        part = await self._transfer.take(slot.length)
        try:
            yield self._transfer.ring.buffer(part)
            self._require_open()
        except BaseException:
            self._transfer.ring.give_back(part)
            raise
        if slot.present:
            self._transfer.ring.give_back(part)
            return
        with self._breaking():
            await self._transfer.hand_over([put_range(self._layout, slot, 0, part.offset, slot.length)], part)

    @abstractmethod
    async def commit(self) -> Committed | Waiting:
        """Publish the unit, or say that this process has brought its part."""

    async def _commit(self, ticket: int) -> Reply:
        """Hand over what is left, commit, and return the answer; whatever goes wrong ends the unit.

        The commit goes out right behind the last bytes, and the daemon lets it wait until these are copied.
        """
        self._require_open()
        try:
            await self._flush()
            number = await self._session.send(Commit(self._unit, b"", ticket), Deadline(self._timeout))
        except BaseException:
            await self.abort()
            raise
        try:
            await self._transfer.finish()
            answer = await self._session.collect(number, Deadline(self._timeout))
        except BaseException:
            self._session.forget(number)
            await self._take_back()
            raise
        self._state = "committed"
        if self._persist is not None and isinstance(answer, Committed):
            deadline = Deadline(self._timeout)
            await async_persist(self._session, self._registered, self._persist, answer, deadline)
        return answer

    async def abort(self) -> None:
        """Give the reservation up; aborting twice, or after a restart, is nothing. Shielded from cancellation."""
        if self._state not in {"open", "broken", "handed out"}:
            return
        self._state = "aborted"
        self._drop()
        if self._session.closed:
            return
        with async_shielded():
            try:
                await self._session.post(Abort(self._unit), Deadline(self._timeout))
            except KVLedgerError as error:
                self._session.lose(error)

    async def _take_back(self) -> None:
        """Abort behind a commit that is on its way.

        Until the daemon has answered it may publish what it still copies, so the ring must stay as it is.
        """
        if not self._transfer.under_way or self._session.closed:
            await self.abort()
            return
        self._state = "aborted"
        with async_shielded():
            try:
                await self._session.ask(Abort(self._unit), Deadline(self._timeout))
            except (DeadlineError, DisconnectedError) as error:
                self._session.lose(error)
            except KVLedgerError:
                pass  # it has ended by itself, which is an answer too
        self._drop()

    @contextmanager
    def _breaking(self) -> Iterator[None]:
        """After a part got lost nothing of the unit may be published, so it can only be aborted."""
        try:
            yield
        except BaseException:
            self._state = "broken"
            self._drop()
            raise

    async def _flush(self) -> None:
        for stage in self._stages.values():
            ranges, part = stage.hand_out(self._layout)
            if part is None:
                continue
            if ranges:
                await self._transfer.hand_over(ranges, part)
            else:
                self._transfer.ring.give_back(part)
        await self._transfer.flush()

    def _drop(self) -> None:
        for stage in self._stages.values():
            stage.drop()
        self._transfer.drop()

    def _require_open(self) -> None:
        if self._state == "open" and self._session.closed:
            wrong = "the connection that held the reservation has ended"
            raise LeaseLost(wrong, field="unit", remedy="reserve again and put everything again")
        if self._state != "open":
            raise CallerError(
                f"this unit is {self._state}", field="unit", remedy=_REMEDIES.get(self._state, "reserve another one")
            )
