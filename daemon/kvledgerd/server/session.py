"""What one connection may say, in which order, and who answers it.

A session is in one of four states. *New*: only `Hello` is listened to. *Joining*: the core is being told of the engine;
frames wait. *Open*: requests go to the writer loop, except for the few that are about the connection itself. *Closed*:
nothing is listened to and nothing is said.

Every request gets exactly one reply, under its own id. Where a frame has no readable id there is nobody to answer, so
the refusal goes out under id 0 and the connection ends; where it has one, the connection goes on.
"""

import asyncio
import enum
from collections.abc import Callable
from functools import partial
from typing import Final

import structlog
from anyio import WouldBlock

from kvledger.errors import KVLedgerError, LimitError, NotFoundError, ProtocolError
from kvledger.mailbox import undoing
from kvledger.wire.commands import BY_TYPE, allows
from kvledger.wire.framing import REPLY_MAX, decode_request, encode_frame, peek_id
from kvledger.wire.replies import ArenaList, Done, Reply
from kvledger.wire.requests import Arenas, ChangeTopology, Hello, RegisterTopology, Request, Ring
from kvledger_storage.events import Process
from kvledgerd.access import Access
from kvledgerd.core.commands import Ask, Caller
from kvledgerd.loop.refusals import failed, internal
from kvledgerd.server.channel import ArenaChannel
from kvledgerd.server.greeting import VersionRefusedError, check_version, welcome
from kvledgerd.server.peer import Peer, ProcessWatch
from kvledgerd.server.protocol import RequestProtocol
from kvledgerd.server.services import Services
from kvledgerd.tenants import User

__all__ = ["Session"]

_log = structlog.get_logger(__name__)
_PINNING: Final = (RegisterTopology, ChangeTopology)
"""Requests for which an engine's processes are watched."""


class _State(enum.Enum):
    NEW = enum.auto()
    JOINING = enum.auto()
    OPEN = enum.auto()
    CLOSED = enum.auto()


class Session:
    """One connection.

    Args:
        number: Unique in this incarnation.
        stream: Its request socket.
        origin: Name of the socket that it came to, and who opened it.
        access: What the peer may do.
        services: The daemon's parts.
        closed: Called when the connection has ended.
    """

    def __init__(
        self,
        number: int,
        stream: RequestProtocol,
        origin: tuple[str, Peer],
        access: Access,
        services: Services,
        closed: Callable[["Session"], None],
    ) -> None:
        self.number: Final = number
        self.socket: Final = origin[0]
        self.peer: Final = origin[1]
        self.admitted: Final = access
        self._stream: Final = stream
        self._access = access
        self._user: Final = User(access.tenant, self.peer.uid)
        self._services: Final = services
        self._closed: Final = closed
        self._state = _State.NEW
        self._in_flight: Final[set[int]] = set()
        self._waits_for_room = self._draining = self._sees_all = False
        self._caller, self._actor = Caller(number, 0, access.tenant), ""
        self._hello_number = self._held_bytes = 0
        self._watch: ProcessWatch | None = None
        self._channel: ArenaChannel | None = None
        self._reason = "connection closed"
        self._log = _log.bind(connection=number, uid=self.peer.uid, pid=self.peer.pid, tenant=access.tenant)
        hello_seconds = services.limits.hello_seconds
        self._hello_timer = asyncio.get_running_loop().call_later(hello_seconds, self._overdue)

    def __repr__(self) -> str:
        return f"<Session {self.number} {self._state.name.lower()}, {len(self._in_flight)} in flight>"

    @property
    def process(self) -> Process | None:
        """The process at the other end, by pid and start time; None if it can not be told for sure."""
        return self._watch.process if self._watch is not None else None

    @property
    def busy(self) -> bool:
        """Whether a request waits for its reply."""
        return bool(self._in_flight)

    def take(self, body: bytes) -> bool:
        """Handle one frame; False if it has to wait."""
        if self._state is _State.CLOSED:
            return True
        full = len(self._in_flight) >= self._services.limits.connection_requests
        if full or self._draining or self._state is _State.JOINING:
            return False
        try:
            number, request = decode_request(body)
        except ProtocolError as error:
            self._refuse_frame(body, error)
            return True
        self._services.engines.heard(self)
        try:
            return self._route(number, request)
        except KVLedgerError as error:
            self._reply(number, failed(error))
        except Exception as error:  # noqa: BLE001  a bug must cost its own request and no other
            self._log.exception("request failed", request=number, type=type(request).__name__)
            self._reply(number, internal(error))
        return True

    def holds(self, size: int) -> None:
        """Count the bytes of requests that are held; whoever has more than a user may is turned away."""
        try:
            self._services.users.hold(self._user, size - self._held_bytes)
        except LimitError as error:
            self._end_with(0, error)
        else:
            self._held_bytes = size

    def broken(self, error: ProtocolError) -> None:
        """Say why the stream ends here, and end it."""
        self._end_with(0, error)

    def ended(self) -> None:
        """Let go of everything that belongs to the connection."""
        self._state = _State.CLOSED
        self._hello_timer.cancel()
        services = self._services
        services.engines.leave(self, self._reason)
        services.writer.drop_connection(self.number)
        services.rings.drop(self.number)
        for _ in self._in_flight:
            services.users.end(self._user)
        self._in_flight.clear()
        services.users.hold(self._user, -self._held_bytes)
        services.users.disconnect(self._user)
        for part in (self._watch, self._channel):
            if part is not None:
                part.close()
        self._closed(self)

    def joined(self, engine: int) -> None:
        """Answer the hello, now that the core knows the engine."""
        if self._state is not _State.JOINING:
            return
        self._caller = Caller(self.number, engine, self._access.tenant, operator=self._sees_all)
        self._actor = f"engine:{engine}"
        self._log = self._log.bind(engine=engine)
        assert self._channel is not None, "the channel is made before the engine joins"
        frame = encode_frame(self._hello_number, welcome(self._services, self._access.tenant), REPLY_MAX)
        try:
            self._stream.send_first(frame, self._channel.client_end)
        except OSError:
            self._stream.abort()
            return
        self._channel.client_end_sent()
        self._state = _State.OPEN
        self._log.debug("connection opened")
        self._stream.go_on()

    def refused(self, error: KVLedgerError) -> None:
        """Answer the hello with a refusal and close."""
        self._end_with(self._hello_number, error)

    def expelled(self, reason: str) -> None:
        """Close, since the engine has ended."""
        self._reason = reason
        self._stream.close()

    def drain(self) -> None:
        """Begin nothing more; what is in flight is still answered."""
        self._draining = True

    def close(self) -> None:
        """Send what is waiting, then close."""
        self._state = _State.CLOSED
        self._stream.close()

    def abort(self) -> None:
        """Close at once."""
        self._stream.abort()

    def _overdue(self) -> None:
        seconds = self._services.limits.hello_seconds
        self._end_with(0, ProtocolError(f"no hello within {seconds:g} s", field="hello", remedy="send it first"))

    def _refuse_frame(self, body: bytes, error: ProtocolError) -> None:
        number = peek_id(body)
        if self._state is _State.NEW:
            self._end_with(number, check_version(body) or error)
        elif number == 0:
            self._end_with(0, error)
        else:
            self._reply(number, failed(error))

    def _route(self, number: int, request: Request) -> bool:
        if isinstance(request, Hello):
            self._hello(number, request)
            return True
        if self._state is _State.NEW:
            self._end_with(
                number,
                ProtocolError(
                    "a request came before hello", field="hello", remedy="send hello first, then wait for it"
                ),
            )
            return True
        if number in self._in_flight:
            raise ProtocolError(f"request {number} is in flight", field="id", remedy="use each id once at a time")
        permitted = allows(self._access.right, BY_TYPE[type(request)].right)
        if not permitted:
            self._tell_refused("request denied", request=BY_TYPE[type(request)].name, right=self._access.right)
        elif isinstance(request, Ring):
            self._take_ring(request)
            self._reply(number, Done())
            return True
        if isinstance(request, Arenas):
            self._require_own(request.arenas)
            self._reply(number, ArenaList(request.arenas))
            return True
        return self._ask(number, request, permitted=permitted)

    def _hello(self, number: int, hello: Hello) -> None:
        if self._state is not _State.NEW:
            raise ProtocolError("hello came twice", field="hello", remedy="open a new connection for another engine")
        self._hello_timer.cancel()
        try:
            VersionRefusedError.require(hello.versions)
            self._access = self._services.admission.acting(self.admitted, hello.tenant)
            # An operator that names a tenant sees what that one sees
            self._sees_all = self._access.right == "operator" and not hello.tenant
            self._channel = ArenaChannel.open()
            self._watch = ProcessWatch(self._stream.socket, self.peer.pid, self._process_ended)
            self._hello_number, self._state = number, _State.JOINING
            self._services.engines.join(self, hello, self._access.tenant)
        except OSError as error:
            self._end_with(number, LimitError(f"no descriptor is left: {error.strerror}", field="connections"))
        except KVLedgerError as error:
            self._end_with(number, error)

    def _take_ring(self, ring: Ring) -> None:
        assert self._channel is not None, "an open session has its channel"
        with self._channel.received_ring(ring.size) as fd:
            self._services.rings.accept(self.number, User(self._access.tenant, self.peer.uid), fd.number, ring.size)
            fd.keep()

    def _require_own(self, arenas: list[int]) -> None:
        own = self._services.arenas.of_tenant(self._access.tenant)
        if not own.issuperset(arenas):
            raise NotFoundError("there is no such arena", field="arenas", remedy="ask for arenas that a reply named")

    def _ask(self, number: int, request: Request, *, permitted: bool) -> bool:
        processes = self._services.engines.processes(self) if isinstance(request, _PINNING) else ()
        self._services.users.begin(self._user)
        try:
            self._services.writer.submit_nowait(
                Ask(self._caller, request, processes=processes, permitted=permitted),
                actor=self._actor,
                answer=partial(self._answered, number),
            )
        except WouldBlock:
            self._services.users.end(self._user)
            self._wait_for_room()
            return False
        self._in_flight.add(number)
        return True

    def _wait_for_room(self) -> None:
        if not self._waits_for_room:
            self._waits_for_room = True
            self._services.writer.when_room(self._room)

    def _room(self) -> None:
        self._waits_for_room = False
        self._stream.go_on()

    def _answered(self, number: int, reply: Reply | None) -> None:
        if number not in self._in_flight:
            self._undo(reply)
            return
        self._in_flight.discard(number)
        self._services.users.end(self._user)
        if reply is None:
            self._log.error("no reply", request=number)
            reply = internal(RuntimeError("the core had no answer"))
        self._reply(number, reply)
        self._stream.go_on()

    def _reply(self, number: int, reply: Reply) -> None:
        if self._state is _State.CLOSED:
            self._undo(reply)
            return
        try:
            if self._channel is not None:
                self._channel.send_arenas(reply, self._services.arenas)
            frame = encode_frame(number, reply, REPLY_MAX)
        except BlockingIOError:
            self._log.warning("slow reader dropped", limit="descriptors")
            self._undo(reply)
            self._stream.abort()
            return
        except OSError:
            # The peer is going away; the end of the connection will be reported in a moment.
            self._undo(reply)
            self._stream.abort()
            return
        except KVLedgerError as error:
            self._undo(reply)
            reply = failed(error)
            frame = encode_frame(number, reply, REPLY_MAX)
        self._stream.send(frame, partial(self._undo, reply) if undoing(reply) else None)

    def _undo(self, reply: Reply | None) -> None:
        """Give back what a reply brings that reaches nobody: the engine may live on with other connections."""
        for request in undoing(reply) if reply is not None else ():
            self._services.writer.post(Ask(self._caller, request))

    def _end_with(self, number: int, error: KVLedgerError) -> None:
        self._tell_refused("connection refused", code=error.code, field=error.field, why=error.message)
        self._reply(number, failed(error))
        self._state = _State.CLOSED
        self._stream.close()

    def _tell_refused(self, event: str, **fields: str) -> None:
        self._services.refusals.tell(self._log.info, self.peer.uid, event, **fields)

    def _process_ended(self) -> None:
        self._reason = "process ended"
        self._stream.abort()
