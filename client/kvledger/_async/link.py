"""A cache's connection over time: made, lost, and made again by the same code.

A daemon that restarts has forgotten layouts' numbers, rings and leases; its arenas and its log are what it keeps. So a
new session is given everything that the old one had been given, by the code that made the first one, and calls that
depend on nothing else are simply asked again. What hangs on a lease or a reservation is not: it is lost, and says so.
"""

import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from kvledger._async.session import AsyncSession
from kvledger.absence import Absence, AbsentError
from kvledger.errors import CallerError, DisconnectedError
from kvledger.layout import Layout
from kvledger.shm import Ring
from kvledger.waiting import AsyncTurn, Deadline, async_sleep
from kvledger.wire.replies import Reply
from kvledger.wire.requests import PROTOCOL_VERSION, Hello, Request

__all__ = ["AsyncLink"]

R = TypeVar("R", bound=Reply)
T = TypeVar("T")

_PAUSE_FIRST = 0.01
_PAUSE_MAX = 0.2


class AsyncLink:
    """Keeps one session open.

    Args:
        path: Path of the daemon's socket.
        engine: 16 bytes that all connections of one engine show.
        leader: Whether the engine ends with this connection's process.
        name: What people call the engine.
        staging_bytes: Size of the ring, made when it is first needed.
        timeout: Seconds that one call may take, reconnecting included.
        tenant: Tenant to act for; empty for the caller's own.
        new_engine: Returns the id under which a forked child goes on.
    """

    def __init__(
        self,
        path: str,
        *,
        engine: bytes,
        leader: bool,
        name: str,
        staging_bytes: int,
        timeout: float,
        tenant: str,
        new_engine: Callable[[], bytes],
    ) -> None:
        self.path = path
        self.timeout = timeout
        self._hello = Hello((1, PROTOCOL_VERSION), engine, leader, name, tenant=tenant)
        self._new_engine = new_engine
        self._staging_bytes = staging_bytes
        self._turn = AsyncTurn()
        self._guard = threading.Lock()
        self._absence = Absence()
        self._session: AsyncSession | None = None
        self._layouts: dict[bytes, Layout] = {}
        self._ring: Ring | None = None
        self._closed = False
        self.connects = 0

    @property
    def session(self) -> AsyncSession | None:
        """The session of now, None before the first one and while it is lost."""
        session = self._session
        return None if session is None or session.closed else session

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    @property
    def layouts(self) -> int:
        """Number of layouts that every session is told."""
        return len(self._layouts)

    def layout(self, digest: bytes) -> Layout | None:
        """Return a layout that every session is told, None if it is none of them."""
        return self._layouts.get(digest)

    @property
    def engine(self) -> bytes:
        """The engine id, 16 bytes."""
        return self._hello.engine

    async def connect(self, deadline: Deadline) -> AsyncSession:
        """Return the session of now, opening one if there is none.

        Raises:
            AbsentError: Nobody listens at the socket; see `Absence` for how long that is tried.
            DisconnectedError: The daemon hung up.
            CallerError: The cache is closed.
        """
        if (session := self.session) is not None and not self._closed:
            return session
        await self._turn.take(deadline)
        try:
            if self._closed:
                raise CallerError("this cache is closed", field="cache", remedy="open another one")
            if (session := self.session) is None:
                session = self._session = await self._open(deadline)
            return session
        finally:
            self._turn.give()

    async def call(
        self, build: Callable[[AsyncSession], Request], expect: type[R], deadline: Deadline
    ) -> tuple[AsyncSession, R]:
        """Ask as `ask` does, and return the session and the reply, which has the expected type."""
        session, reply = await self.ask(build, deadline)
        return session, session.narrowed(reply, expect)

    async def ask(self, build: Callable[[AsyncSession], Request], deadline: Deadline) -> tuple[AsyncSession, Reply]:
        """Send a request that depends on no lease and return the session that carried it, and the reply.

        Args:
            build: Makes the request from the session that will carry it, since layouts' numbers belong to it.
            deadline: End of all attempts.
        """
        return await self.retrying(lambda session: session.ask(build(session), deadline), deadline)

    async def retrying(
        self, step: Callable[[AsyncSession], Awaitable[T]], deadline: Deadline
    ) -> tuple[AsyncSession, T]:
        """Run a step on a session, and on a new one whenever its connection ends under it.

        Args:
            step: What to do; it depends on nothing that a connection holds.
            deadline: End of all attempts.

        Returns:
            The session on which it succeeded, and what it returned.

        Raises:
            AbsentError: Nobody listens at the socket.
            DisconnectedError: The daemon hung up on every attempt until the deadline.
        """
        pause = _PAUSE_FIRST
        while True:
            try:
                session = await self.connect(deadline)
                return session, await step(session)
            except AbsentError:
                raise
            except DisconnectedError:
                if self._closed or deadline.passed or pause >= deadline.left():
                    raise
            await async_sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX)

    async def remember(self, layout: Layout, deadline: Deadline) -> None:
        """Register a layout with this session and every later one."""

        async def step(session: AsyncSession) -> None:
            if layout.digest not in session.layouts:
                await session.register(layout, deadline)

        await self.retrying(step, deadline)
        self._layouts[layout.digest] = layout

    async def ring(self, session: AsyncSession, deadline: Deadline) -> Ring:
        """Return the ring, made and handed in if this session has none yet."""
        await self._turn.take(deadline)
        try:
            if self._ring is None:
                self._ring = Ring(min(self._staging_bytes, session.welcome.ring_max))
            if not session.has_ring:
                await session.hand_in(self._ring, deadline)
            return self._ring
        finally:
            self._turn.give()

    def close(self) -> None:
        """End the session and let go of the ring; closing twice is nothing."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
        if self._session is not None:
            self._session.close()
        if self._ring is not None:
            self._ring.close()

    def after_fork_in_child(self) -> None:
        """Leave everything to the parent; the next call opens a session of the child's own, as another engine."""
        if self._session is not None:
            self._session.after_fork_in_child()
        if self._ring is not None:
            self._ring.after_fork_in_child()
        self._turn, self._guard = AsyncTurn(), threading.Lock()
        self._session = self._ring = None
        self._hello = msgspec.structs.replace(self._hello, engine=self._new_engine(), leader=False, incarnation=0)

    async def _open(self, deadline: Deadline) -> AsyncSession:
        session = await self._dial(deadline)
        try:
            for layout in list(self._layouts.values()):
                await session.register(layout, deadline)
            if self._ring is not None:
                await session.hand_in(self._ring, deadline)
        except BaseException:
            session.close()
            raise
        self.connects += 1
        self._hello = msgspec.structs.replace(self._hello, incarnation=session.welcome.incarnation)
        return session

    async def _dial(self, deadline: Deadline) -> AsyncSession:
        self._absence.require_due()
        patience = Deadline(min(self._absence.patience, deadline.left()))
        pause = _PAUSE_FIRST
        while True:
            try:
                session = await AsyncSession.open(self.path, self._hello, deadline)
            except AbsentError as error:
                if self._closed or patience.passed:
                    # Who opens a cache and fails has none, so no later call of it would try again
                    raise self._absence.note(error) if self.connects else error from None
            else:
                self._absence.end()
                return session
            await async_sleep(pause)
            pause = min(2 * pause, _PAUSE_MAX)
