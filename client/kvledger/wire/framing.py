"""Frames: how messages are cut out of a byte stream, and what is refused before it costs anything.

A frame is a 4-byte little-endian length and a msgpack array ``[request id, message]``. The length is judged as soon as
its four bytes are there, before a byte of the body is kept, so a peer can not make this side hold more than one frame's
cap. What is inside is decoded straight into the typed messages: there is no intermediate tree of objects, hence nothing
that deep nesting or a header claiming 2**32 elements could grow.

After a bad length the borders of all later frames are unknown, so the stream ends there. After a bad body they are
known: the peer gets a `Failed` under the id of its request and may go on.
"""

import struct
from typing import Final

import msgspec

from kvledger.errors import CallerError, ProtocolError
from kvledger.wire.fields import Id
from kvledger.wire.replies import Reply
from kvledger.wire.requests import Request

__all__ = [
    "FRAME_MIN",
    "REPLY_MAX",
    "REQUEST_MAX",
    "Splitter",
    "decode_reply",
    "decode_request",
    "encode_frame",
    "peek_id",
]

FRAME_MIN: Final = 8
"""Bytes of the shortest body there is: ``[id, ["done"]]`` with a small id."""
REQUEST_MAX: Final = 1 << 20
"""Bytes of the longest request body; with it `block_tokens` bounds the context (docs/protocol.md)."""
REPLY_MAX: Final = 16 << 20
"""Bytes of the longest reply body: the fingerprints of 2**20 objects."""

_LENGTH: Final = struct.Struct("<I")
_INTEGERS: Final = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
_PAIR: Final = 0x92
_ENCODER: Final = msgspec.msgpack.Encoder()
_REQUESTS: Final = msgspec.msgpack.Decoder(tuple[Id, Request])
_REPLIES: Final = msgspec.msgpack.Decoder(tuple[Id, Reply])
# What msgspec raises on input: its own errors and bad UTF-8 are ValueErrors, the rest are the interpreter's limits.
_REFUSALS: Final = (ValueError, RecursionError, OverflowError, MemoryError)


def encode_frame(number: int, message: Request | Reply, cap: int = REQUEST_MAX) -> bytes:
    """Return a message as a whole frame, length included.

    Args:
        number: Request id, at most 2**63 - 1; a reply carries the id of its request, events have none.
        message: What to say.
        cap: Longest body that the peer takes, bytes.

    Raises:
        ProtocolError: The body is longer than `cap`.
        CallerError: A field holds what no message can: half a character, a number beyond 64 bits, a foreign type.
    """
    try:
        body = _ENCODER.encode((number, message))
    except (UnicodeEncodeError, OverflowError, TypeError) as error:
        name = str(type(message).__struct_config__.tag)
        remedy = "pass text, numbers and bytes of the documented types"
        raise CallerError(f"the request can not be sent: {error}", field=name, remedy=remedy) from error
    length = len(body)
    if length > cap:
        remedy = "use a larger block_tokens, or ask for less at once"
        raise ProtocolError(f"a body of {length} bytes passes the cap of {cap}", field="frame", remedy=remedy)
    return _LENGTH.pack(length) + body


def decode_request(body: bytes | memoryview) -> tuple[int, Request]:
    """Return id and message of a request body (a frame without its length).

    Raises:
        ProtocolError: Says what is wrong and where; `peek_id` gives the id to answer under.
    """
    try:
        return _REQUESTS.decode(body)
    except _REFUSALS as error:
        raise _refusal("request", error) from error


def decode_reply(body: bytes | memoryview) -> tuple[int, Reply]:
    """Return id and message of a reply body (a frame without its length).

    Raises:
        ProtocolError: Says what is wrong and where.
    """
    try:
        return _REPLIES.decode(body)
    except _REFUSALS as error:
        raise _refusal("reply", error) from error


def peek_id(body: bytes | memoryview) -> int:
    """Return the request id of a body that can not be decoded, 0 if even that is unreadable.

    Only the first bytes are looked at: a decoder would walk the whole body, whatever its depth.
    """
    head = bytes(body[:10])
    if len(head) < 2 or head[0] != _PAIR:
        return 0
    if head[1] < 0x80:
        return head[1]
    code = _INTEGERS.get(head[1])
    if code is None or len(head) < 2 + struct.calcsize(code):
        return 0
    number: int = struct.unpack_from(code, head, 2)[0]
    return number if number < 2**63 else 0


def _refusal(what: str, error: BaseException) -> ProtocolError:
    why = str(error) or type(error).__name__
    remedy = "send one message of docs/protocol.md, encoded as it says"
    return ProtocolError(f"this {what} can not be read: {why}", field="frame", remedy=remedy)


class Splitter:
    """Cuts frames out of whatever pieces a stream arrives in.

    It holds at most one unfinished frame: never more than `cap` bytes and one length.

    Args:
        cap: Longest body that is accepted, bytes.
    """

    __slots__ = ("_buffer", "_cap", "_error", "_need")

    def __init__(self, cap: int = REQUEST_MAX) -> None:
        self._cap = cap
        self._buffer = bytearray()
        self._need = _LENGTH.size
        self._error: ProtocolError | None = None

    def __repr__(self) -> str:
        state = "broken" if self._error else f"{len(self._buffer)} of {self._need} bytes"
        return f"<Splitter {state}, cap {self._cap}>"

    @property
    def pending(self) -> int:
        """Bytes of an unfinished frame; more than 0 at the end of a stream means that it was cut."""
        return len(self._buffer)

    @property
    def missing(self) -> int:
        """Bytes until the unfinished frame is whole, or until its length is known."""
        return self._need - len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Take the next piece of the stream and return the bodies that it completes.

        Frames before a bad one in the same piece are not returned: the peer breaks the rules, so none of it counts.

        Raises:
            ProtocolError: A length is out of bounds; raised again by every later call.
        """
        view, bodies = memoryview(data), list[bytes]()
        at = 0 if self._buffer else self._cut_whole(view, bodies)
        while at < len(view):
            if self._error is not None:
                raise self._error
            taken = min(self._need - len(self._buffer), len(view) - at)
            self._buffer += view[at : at + taken]
            at += taken
            if len(self._buffer) == _LENGTH.size == self._need:
                self._need += self._checked_length()
            elif len(self._buffer) == self._need:
                bodies.append(bytes(memoryview(self._buffer)[_LENGTH.size :]))
                self._buffer, self._need = bytearray(), _LENGTH.size
        return bodies

    def _cut_whole(self, view: memoryview, bodies: list[bytes]) -> int:
        """Cut out what arrived whole, as nearly all frames do, and return where the rest begins."""
        at = 0
        while len(view) - at >= _LENGTH.size:
            start = at + _LENGTH.size
            end = start + _LENGTH.unpack_from(view, at)[0]
            if end > len(view) or not start + FRAME_MIN <= end <= start + self._cap:
                break
            bodies.append(bytes(view[start:end]))
            at = end
        return at

    def _checked_length(self) -> int:
        length: int = _LENGTH.unpack(self._buffer)[0]
        if FRAME_MIN <= length <= self._cap:
            return length
        why = f"longer than {self._cap}" if length > self._cap else f"shorter than {FRAME_MIN}, which no message is"
        self._error = ProtocolError(
            f"a frame of {length} bytes is {why}", field="length", remedy="open a new connection and send whole frames"
        )
        raise self._error
