"""The listening sockets and all connections behind them."""

import asyncio
import itertools
import socket
from collections.abc import Collection, Mapping
from typing import Final

import structlog

from kvledger.counts import counted
from kvledger.errors import KVLedgerError, ProtocolError
from kvledger.wire.framing import REPLY_MAX, encode_frame
from kvledgerd.access import AccessRules
from kvledgerd.loop.refusals import failed
from kvledgerd.server.peer import peer_of
from kvledgerd.server.protocol import RECEIVE_BYTES, RequestProtocol, StreamHandler
from kvledgerd.server.request_socket import RequestListener
from kvledgerd.server.services import Services
from kvledgerd.server.session import Session
from kvledgerd.tenants import User

__all__ = ["Server"]

# Looking at a handful of flags; stopping is not worth a notification from each session.
_POLL_SECONDS: Final = 0.01

# asyncio listens anew with what it is told; connects beyond it fail at once. The kernel cuts it to net.core.somaxconn.
_BACKLOG: Final = 4096

_log = structlog.get_logger(__name__)


class _TurnedAway:
    """Stands in for a session where there will be none."""

    def take(self, _body: bytes) -> bool:
        return True

    def holds(self, size: int) -> None:
        pass

    def broken(self, error: ProtocolError) -> None:
        pass

    def ended(self) -> None:
        pass


class Server:
    """Accepts connections and keeps track of them.

    Args:
        services: What sessions use.
    """

    def __init__(self, services: Services) -> None:
        self._services: Final = services
        self._shared: Final = memoryview(bytearray(RECEIVE_BYTES))
        self._sessions: Final[dict[int, Session]] = {}
        self._numbers: Final = itertools.count(1)
        self._quiet: Final = asyncio.Event()
        self._servers: Final[list[asyncio.Server]] = []
        self._names: Final[set[str]] = set()

    def __repr__(self) -> str:
        return f"<Server {counted(len(self._sessions), 'connection')}>"

    @property
    def connections(self) -> int:
        """Number of open connections."""
        return len(self._sessions)

    async def start(self, listeners: Mapping[str, socket.socket]) -> None:
        """Begin to accept connections on listening sockets, the server's from now on, by the names in rules."""
        for name, listener in listeners.items():
            self._names.add(name)
            self._servers.append(await self._listen(name, listener))

    async def _listen(self, name: str, listener: socket.socket) -> asyncio.Server:
        settings = self._services.limits.slow_seconds, self._services.outbox
        return await asyncio.get_running_loop().create_unix_server(
            lambda: RequestProtocol(self._shared, lambda stream: self._admit(stream, name), *settings),
            sock=RequestListener(fileno=listener.detach()),
            backlog=_BACKLOG,
        )

    def change(self, rules: AccessRules, sockets: Collection[str] | None = None) -> int:
        """Take other rules, and return how many connections end since they are given something else by them.

        A connection has its tenant's secret and descriptors, so its rights can not change while it lasts.

        Args:
            rules: The rules.
            sockets: Names of the sockets that they were written for; all if None. At others nobody is let in.
        """
        admission = self._services.admission
        admission.rules = rules
        admission.closed = () if sockets is None else self._names - set(sockets)
        changed = [one for one in self._sessions.values() if admission.of(one.socket, one.peer) != one.admitted]
        for session in changed:
            session.expelled("rights changed")
        return len(changed)

    async def stop(self, seconds: float) -> None:
        """Accept nothing more, give requests in flight ``seconds`` to be answered, then close all connections."""
        for server in self._servers:
            server.close()
        try:
            async with asyncio.timeout(seconds):
                await self._wind_down()
        except TimeoutError:
            _log.warning("connections cut off", connections=len(self._sessions))
            for session in list(self._sessions.values()):
                session.abort()
            await self._emptied()

    async def _wind_down(self) -> None:
        for session in self._sessions.values():
            session.drain()
        while any(session.busy for session in self._sessions.values()):  # noqa: ASYNC110  see _POLL_SECONDS
            await asyncio.sleep(_POLL_SECONDS)
        for session in list(self._sessions.values()):
            session.close()
        await self._emptied()

    async def _emptied(self) -> None:
        while self._sessions:
            self._quiet.clear()
            await self._quiet.wait()

    def _admit(self, stream: RequestProtocol, name: str) -> StreamHandler:
        uid = -1  # not known
        try:
            peer = peer_of(stream.socket)
            uid = peer.uid
            access = self._services.admission.admit(name, peer)
            self._services.users.connect(User(access.tenant, peer.uid))
        except KVLedgerError as error:
            told = {"socket": name, "uid": uid, "why": error.message}
            self._services.refusals.tell(_log.warning, uid, "connection turned away", **told)
            stream.send(encode_frame(0, failed(error), REPLY_MAX))
            stream.close()
            return _TurnedAway()
        session = Session(next(self._numbers), stream, (name, peer), access, self._services, self._gone)
        self._sessions[session.number] = session
        return session

    def _gone(self, session: Session) -> None:
        del self._sessions[session.number]
        self._quiet.set()
