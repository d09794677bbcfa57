# Generated from kvledger/_async/session.py by scripts/unasync.py; change it there.
"""One connection after its hello, to its end: requests out, replies in, descriptors beside.

Many callers may have requests in flight on one session. Each writes its frame whole, under a turn; whoever waits for a
reply and finds nobody reading reads for all (see `kvledger.waiting`). A frame that was written in part ends the
session, since the daemon could never find the next one.
"""

import contextlib
import socket
from collections.abc import Iterable
from functools import partial
from typing import TypeVar

from kvledger._sync.dialling import HELLO_NUMBER, Greeted, dial
from kvledger.arenas import ArenaMaps
from kvledger.errors import CallerError, DisconnectedError, KVLedgerError, ProtocolError, error_from_wire
from kvledger.layout import Layout
from kvledger.mailbox import Mailbox
from kvledger.passing import Origin
from kvledger.registered import RegisteredLayout
from kvledger.shm import Ring
from kvledger.waiting import Deadline, Turn, background, readable, writable
from kvledger.wire import replies, requests
from kvledger.wire.descriptors import RingPacket, send_packet
from kvledger.wire.framing import REPLY_MAX, Splitter, decode_reply, encode_frame
from kvledger.wire.replies import Failed, Reply
from kvledger.wire.requests import Hello, Request

__all__ = ["Session"]

R = TypeVar("R", bound=Reply)

_PIECE = 1 << 18
_NO_REPLY = "the connection ended before the reply came"
_REMEDY = "see that the daemon runs (kvledger status) and ask again"


class Session:
    """A connection that has been greeted. Made by `Session.open`.

    Attributes:
        welcome: What the daemon said at hello.
        arenas: Arenas whose descriptors this connection received.
        layouts: Numbers of registered layouts in this incarnation, by digest.
        origin: Engine and incarnation, to which receipts and addresses of this session belong.
        has_ring: Whether the ring was handed in.
    """

    def __init__(self, greeted: Greeted, engine: bytes) -> None:
        self.welcome = greeted.welcome
        self.origin = Origin(engine, greeted.welcome.log_id, greeted.welcome.incarnation)
        self.arenas = ArenaMaps(greeted.descriptors)
        self.layouts: dict[bytes, int] = {}
        self.has_ring = False
        self._end = greeted.end
        self._mail = Mailbox(HELLO_NUMBER)
        self._splitter = Splitter(REPLY_MAX)
        self._sending = Turn()
        self._reading = Turn()
        self._undo: list[Request] = []
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<Session {state}, incarnation {self.welcome.incarnation}, {self._mail.waiting} in flight>"

    @classmethod
    def open(cls, path: str, hello: Hello, deadline: Deadline) -> "Session":
        """Connect and greet; see `dial` for what it raises."""
        return cls(dial(path, hello, deadline), hello.engine)

    @property
    def closed(self) -> bool:
        """Whether the connection has ended, as far as is known."""
        return self._closed

    @property
    def in_flight(self) -> int:
        """Requests whose reply somebody waits for."""
        return self._mail.waiting

    def request(self, message: Request, expect: type[R], deadline: Deadline) -> R:
        """Send a request and return its reply.

        Raises:
            KVLedgerError: The daemon refused; the error is the one that its reply names.
            DisconnectedError: The connection ended first.
            DeadlineError: The reply did not come in time; if it comes later it is undone.
        """
        return self.narrowed(self.ask(message, deadline), expect)

    def ask(self, message: Request, deadline: Deadline) -> Reply:
        """Send a request that has several right replies and return the one that came; see `request`."""
        return self.collect(self.send(message, deadline), deadline)

    def send(self, message: Request, deadline: Deadline) -> int:
        """Send a request and return its id for `collect`."""
        number = self._mail.expect()
        try:
            frame = encode_frame(number, message, self.welcome.frame_max)
        except KVLedgerError:
            self._mail.withdraw(number)
            raise
        try:
            self._write(frame, deadline)
        except BaseException:
            self._mail.leave(number)
            raise
        return number

    def post(self, message: Request, deadline: Deadline) -> None:
        """Send a request for whose reply nobody waits, such as a settle."""
        self._mail.leave(self.send(message, deadline))

    def collect(self, number: int, deadline: Deadline) -> Reply:
        """Return the reply to the request of that id; see `request`."""
        try:
            while self._reading.take(deadline, lambda: self._mail.is_settled(number)):
                try:
                    self._read_some(deadline)
                finally:
                    self._reading.give()
                    self._close_if_unused()
            self._send_undo(deadline)
            reply = self._mail.collect(number)
        except BaseException:
            self._leave_late(number, deadline)
            raise
        if isinstance(reply, Failed):
            raise error_from_wire(reply.code, reply.message, reply.field, reply.remedy)
        return reply

    def forget(self, number: int) -> None:
        """Say that nobody waits for a reply any more; what it brings is undone."""
        self._undo += self._mail.leave(number)

    def narrowed(self, reply: Reply, expect: type[R]) -> R:
        """Return a reply that has the expected type; any other ends the session.

        Raises:
            ProtocolError: It has another.
        """
        if isinstance(reply, expect):
            return reply
        wrong = f"the daemon answered {type(reply).__name__} where {expect.__name__} was asked for"
        raise self.lose(ProtocolError(wrong, field="reply", remedy="run a daemon and a client of the same version"))

    def number(self, layout: RegisteredLayout) -> int:
        """Return a layout's number in this incarnation.

        Raises:
            CallerError: It was registered with another cache.
        """
        found = self.layouts.get(layout.digest)
        if found is None:
            remedy = "pass what register() of this cache returned"
            raise CallerError(f"{layout!r} is not registered here", field="layout", remedy=remedy)
        return found

    def register(self, layout: Layout, deadline: Deadline) -> None:
        """Make a layout known under a number of this incarnation.

        Raises:
            LayoutError: The daemon refuses it.
        """
        reply = self.request(requests.Register(layout), replies.Registered, deadline)
        if reply.digest != layout.digest:
            remedy = "run a daemon and a client of the same version"
            raise ProtocolError("the daemon reads another layout than was sent", field="digest", remedy=remedy)
        self.layouts[layout.digest] = reply.layout

    def hand_in(self, ring: Ring, deadline: Deadline) -> None:
        """Send the ring's descriptor, then its request; once for each session."""
        while True:
            try:
                send_packet(self.arenas.end, RingPacket(ring.size), ring.fd)
                break
            except BlockingIOError:
                writable(self.arenas.end, deadline)
            except OSError as error:
                raise self.lose(DisconnectedError(_NO_REPLY, field="ring", remedy=_REMEDY)) from error
        self.request(requests.Ring(ring.size), replies.Done, deadline)
        self.has_ring = True

    def map_arenas(self, arenas: Iterable[int], deadline: Deadline) -> None:
        """Make sure that arenas are mapped, asking again for descriptors that got lost.

        Raises:
            ProtocolError: The daemon does not send them.
        """
        lacking = self.arenas.lacking(arenas)
        if lacking:
            self.request(requests.Arenas(lacking), replies.ArenaList, deadline)
            lacking = self.arenas.lacking(lacking)
        if lacking:
            remedy = "raise this process's limit of open files (ulimit -n), or restart the daemon"
            raise ProtocolError(f"no descriptor came for arenas {lacking}", field="arenas", remedy=remedy)

    def close(self) -> None:
        """End the connection: leases and reservations of this engine end with its last one."""
        self.lose(DisconnectedError("the cache was closed", field="connection", remedy="open it again"))

    def lose(self, error: KVLedgerError) -> KVLedgerError:
        """Note that the connection has ended, let all who wait fail with `error`, and return it."""
        self._mail.fail(error)
        if not self._closed:
            self._closed = True
            with contextlib.suppress(OSError):
                self._end.shutdown(socket.SHUT_RDWR)  # wakes whoever reads; closing would not
            self.arenas.close()
        self._close_if_unused()
        return error

    def after_fork_in_child(self) -> None:
        """Close the child's copies of the sockets and leave the parent's connection alone."""
        self._closed = True
        self._mail = Mailbox(HELLO_NUMBER)
        self._mail.fail(DisconnectedError("the connection belongs to the parent process", field="connection"))
        self._sending, self._reading = Turn(), Turn()
        self._end.close()
        self.arenas.after_fork_in_child()

    def _leave_late(self, number: int, deadline: Deadline) -> None:
        # Nobody may ever call again, and then nobody would read what has to be undone.
        self._undo += self._mail.leave(number)
        if self._undo or self._mail.is_late(number):
            background(partial(self._read_late, number, deadline.again()))

    def _read_late(self, number: int, deadline: Deadline) -> None:
        with contextlib.suppress(KVLedgerError):
            while self._reading.take(deadline, lambda: not self._mail.is_late(number)):
                try:
                    self._read_some(deadline)
                finally:
                    self._reading.give()
                    self._close_if_unused()
            self._send_undo(deadline)

    def _close_if_unused(self) -> None:
        # A descriptor that another thread polls must not be closed under it: its number could be given away.
        if self._closed and not (self._reading.held or self._sending.held):
            self._end.close()

    def _send_undo(self, deadline: Deadline) -> None:
        # Best effort: an engine that ends gives everything back, and the caller's own reply matters more.
        with contextlib.suppress(KVLedgerError):
            while self._undo:
                request = self._undo.pop()
                try:
                    self.post(request, deadline)
                except BaseException:
                    self._undo.append(request)  # it was not sent, so the next call, or a later one, sends it
                    raise

    def _write(self, frame: bytes, deadline: Deadline) -> None:
        self._sending.take(deadline)
        sent = 0
        try:
            self._mail.require_open()
            while sent < len(frame):
                try:
                    sent += self._end.send(memoryview(frame)[sent:], socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
                except BlockingIOError:
                    writable(self._end, deadline)
        except OSError as error:
            lost = DisconnectedError(f"the daemon went away: {error.strerror}", field="connection", remedy=_REMEDY)
            raise self.lose(lost) from error
        except BaseException:
            if sent:
                self.lose(DisconnectedError("a request was cut off", field="connection", remedy="ask again"))
            raise
        finally:
            self._sending.give()
            self._close_if_unused()

    def _read_some(self, deadline: Deadline) -> None:
        try:
            data = self._receive(deadline)
        except OSError as error:
            self.lose(DisconnectedError(f"{_NO_REPLY}: {error.strerror}", field="connection", remedy=_REMEDY))
            return
        if not data:
            self.lose(DisconnectedError(_NO_REPLY, field="connection", remedy=_REMEDY))
            return
        try:
            self._deliver(data)
        except KVLedgerError as error:
            self.lose(error)

    def _deliver(self, data: bytes) -> None:
        for body in self._splitter.feed(data):
            number, reply = decode_reply(body)
            if number == 0 and isinstance(reply, Failed):  # the daemon could not even read the id, and hangs up
                raise error_from_wire(reply.code, reply.message, reply.field, reply.remedy)
            self._undo += self._mail.deliver(number, reply)

    def _receive(self, deadline: Deadline) -> bytes:
        while True:
            try:
                return self._end.recv(_PIECE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                readable(self._end, deadline)
