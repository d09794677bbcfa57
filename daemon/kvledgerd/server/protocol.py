"""The request socket of one connection: bytes in, frames out, and pressure both ways.

A `BufferedProtocol`, because that is the fastest that asyncio has. All connections read into one shared buffer, since
whatever was read is cut up before the loop turns to the next connection; so a thousand idle connections hold no memory.

Replies of one turn of the loop go out together, since each call to the kernel costs as much as a small decision.

Pressure: a session may decline a frame (its engine is not known yet, it has as many requests in flight as it may, the
queue is full). The frame stays here, reading stops, and the session says when to go on. However many frames a peer has
sent, only some of them are handled in one turn of the loop, so that it costs the others no more than that. A peer that
does not read its replies is not read from either, and is dropped when that lasts too long or when what waits for it
gets too much.
"""

import asyncio
import os
import socket
from asyncio.trsock import TransportSocket
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol, cast

import structlog

from kvledger.errors import ProtocolError
from kvledger.wire.framing import REPLY_MAX, REQUEST_MAX, Splitter
from kvledgerd.foreign import empty
from kvledgerd.server.outbox import Outbox
from kvledgerd.server.unread import Lost, UnreadReplies

__all__ = ["RECEIVE_BYTES", "RequestProtocol", "StreamHandler"]

RECEIVE_BYTES: Final = 256 << 10
"""Size of the receive buffer that all connections share."""

# Reading stops above this; a look-up of a long prompt answers with some ten kilobytes.
_HIGH_WATER: Final = 1 << 20

# Two of the largest replies there are.
_DROP_ABOVE: Final = 2 * REPLY_MAX

# Cutting up short frames takes longer than reading them, so no more are read at once than a few turns handle.
_PIECE_BYTES: Final = 16 << 10

# What an engine asks without waiting; a turn with that many from each of a hundred peers takes a tenth of a second.
_TURN_FRAMES: Final = 64

_log = structlog.get_logger(__name__)


class StreamHandler(Protocol):
    """What a connection means: gets whole frames."""

    def take(self, body: bytes) -> bool:
        """Handle one frame body; False to get it again later, after `RequestProtocol.go_on`."""

    def holds(self, size: int) -> None:
        """So many bytes of requests are held for the connection now, of the unfinished one and of those that wait."""

    def broken(self, error: ProtocolError) -> None:
        """The stream can not be cut into frames any more."""

    def ended(self) -> None:
        """The connection is gone."""


class RequestProtocol(asyncio.BufferedProtocol):
    """Bytes of one connection.

    Args:
        shared: The receive buffer of all connections.
        opened: Makes the handler once the connection is there.
        slow_seconds: How long a peer may leave its replies unread.
        outbox: Says when replies leave.

    Attributes:
        socket: The socket, for questions to the kernel only.
    """

    socket: TransportSocket

    def __init__(
        self,
        shared: memoryview,
        opened: Callable[["RequestProtocol"], StreamHandler],
        slow_seconds: float,
        outbox: Outbox,
    ) -> None:
        self._shared: Final = shared
        self._opened: Final = opened
        self._slow_seconds: Final = slow_seconds
        self._outbox: Final = outbox
        self._splitter: Final = Splitter(REQUEST_MAX)
        self._bodies: Final[deque[bytes]] = deque()
        self._broken: ProtocolError | None = None
        self._slow_timer: asyncio.TimerHandle | None = None
        self._outgoing: list[bytes] = []
        self._outgoing_bytes = self._sent_bytes = self._held_bytes = 0
        self._unread: Final = UnreadReplies()
        self._pumping = self._paused = self._closing = self._continuing = False
        self._loop: Final = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._handler: StreamHandler

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport (called by asyncio)."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=_HIGH_WATER)
        self.socket = self._transport.get_extra_info("socket")
        self._handler = self._opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002  the shared buffer has one size
        """Return where to read to: the rest of a long frame, or a little of many short ones (called by asyncio)."""
        return self._shared[: max(_PIECE_BYTES, self._splitter.missing)]

    def buffer_updated(self, nbytes: int) -> None:
        """Cut up what arrived (called by asyncio)."""
        if self._closing:
            return
        try:
            self._bodies.extend(self._splitter.feed(self._shared[:nbytes]))
        except ProtocolError as error:
            self._broken = error
        self.pump()

    def eof_received(self) -> bool:
        """Close: who has stopped sending can not be told from who is gone (called by asyncio)."""
        self.close()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the handler (called by asyncio)."""
        self._closing = True
        self._stop_slow_timer()
        self._bodies.clear()
        self._outgoing.clear()
        self._handler.ended()
        if self._unread:
            # Whoever was given the error took it away, so it is not there to be looked for.
            reset = isinstance(exc, ConnectionResetError)
            self._unread.ended(unread=reset or not self._unread.look(self.socket))
        with _raw(self.socket) as raw:
            empty(raw)

    def pause_writing(self) -> None:
        """Stop reading from a peer that does not read (called by asyncio)."""
        self._slow_timer = asyncio.get_running_loop().call_later(self._slow_seconds, self._drop_slow, "time")
        self._regulate()

    def resume_writing(self) -> None:
        """Go on (called by asyncio)."""
        if not self._closing:
            self._stop_slow_timer()
            self.pump()

    def go_on(self) -> None:
        """Offer the frames that wait, if there are any, since the handler may take one now."""
        if self._bodies:
            self.pump()

    def pump(self) -> None:
        """Offer waiting frames to the handler until it declines one, or has had its share of this turn of the loop."""
        if self._pumping:
            return
        self._pumping = True
        try:
            for _ in range(_TURN_FRAMES):
                if not self._bodies or self._closing or self._slow_timer is not None:
                    break
                body = self._bodies.popleft()
                if not self._handler.take(body):
                    self._bodies.appendleft(body)
                    break
            else:
                self._continue_later()
            if self._broken is not None and not self._bodies and not self._closing:
                error, self._broken = self._broken, None
                self._handler.broken(error)
        finally:
            self._pumping = False
        self._regulate()
        self._tell_held()

    def _tell_held(self) -> None:
        held = self._splitter.pending + (sum(map(len, self._bodies)) if self._bodies else 0)
        if held != self._held_bytes and not self._closing:
            self._held_bytes = held
            self._handler.holds(held)

    def _continue_later(self) -> None:
        if not self._continuing:
            self._continuing = True
            self._loop.call_soon(self._continue)

    def _continue(self) -> None:
        self._continuing = False
        self.pump()

    def send(self, frame: bytes, lost: Lost | None = None) -> None:
        """Send a frame at the end of this turn, together with what else it brings, or when the peer reads.

        An engine that asks without waiting is answered by one call to the kernel instead of several, and wakes once.

        Args:
            frame: The frame.
            lost: Called if the connection ends before the peer has read it.
        """
        if self._closing:
            if lost is not None:
                lost()
            return
        if not self._outgoing:
            self._outbox.add(self._flush)
        self._outgoing.append(frame)
        self._outgoing_bytes += len(frame)
        self._sent_bytes += len(frame)
        if lost is not None:
            self._unread.add(self._sent_bytes, lost)
        if self._outgoing_bytes > _HIGH_WATER:
            self._flush()

    def _flush(self) -> None:
        if self._closing or not self._outgoing:
            return
        try:
            self._write()
        except Exception:  # noqa: BLE001  a bug costs its own connection and no other; its peer must not wait for ever
            _log.exception("replies not sent")
            self.abort()

    def _write(self) -> None:
        frames, self._outgoing, self._outgoing_bytes = self._outgoing, [], 0
        if self._unread and not self._transport.is_closing():
            self._unread.look(self.socket)
        self._transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        if not self._transport.is_closing():  # else the write failed
            self._unread.written(self._sent_bytes - self._transport.get_write_buffer_size())
        if self._transport.get_write_buffer_size() > _DROP_ABOVE:
            self._drop_slow("bytes")

    def send_first(self, frame: bytes, descriptor: int) -> None:
        """Send the connection's first frame with a descriptor, past the transport, which carries none.

        Raises:
            OSError: The peer is gone.
        """
        with _raw(self.socket) as raw:
            sent = socket.send_fds(raw, [frame], [descriptor])
        # The send buffer of a new connection is empty and hundreds of times larger than this frame.
        assert sent == len(frame), f"{sent} of {len(frame)} bytes went out on an empty connection"

    def close(self) -> None:
        """Send what is waiting, then close; what arrives meanwhile is not looked at.

        A peer that leaves it unread is cut off in the end: what belongs to the connection lasts as long as it does.
        """
        self._flush()
        self._closing = True
        self._bodies.clear()
        self._transport.close()
        if self._transport.get_write_buffer_size():
            self._stop_slow_timer()
            self._slow_timer = self._loop.call_later(self._slow_seconds, self._drop_slow, "time")

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self._transport.abort()

    def _drop_slow(self, limit: str) -> None:
        _log.warning("slow reader dropped", limit=limit, unread_bytes=self._transport.get_write_buffer_size())
        self.abort()

    def _stop_slow_timer(self) -> None:
        if self._slow_timer is not None:
            self._slow_timer.cancel()
            self._slow_timer = None

    def _regulate(self) -> None:
        wanted = bool(self._bodies) or self._slow_timer is not None
        if wanted == self._paused or self._transport.is_closing():
            return
        self._paused = wanted
        if wanted:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()


def _raw(end: TransportSocket) -> socket.socket:
    """Return a socket of its own for what the transport's does not do."""
    return socket.socket(fileno=os.dup(end.fileno()))
