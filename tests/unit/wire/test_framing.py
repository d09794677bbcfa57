"""Frames: what is taken, and that everything else is a typed error that costs nothing."""

import struct
import tracemalloc

import msgspec
import pytest

from kvledger.errors import ProtocolError
from kvledger.wire.framing import (
    FRAME_MIN,
    REQUEST_MAX,
    Splitter,
    decode_reply,
    decode_request,
    encode_frame,
    peek_id,
)
from kvledger.wire.replies import ArenaList, Done
from kvledger.wire.requests import Acquire, Release, Settle

FRAME = encode_frame(3, Release(9))
BODY = FRAME[4:]
RELEASE = b"\x92\x01\x92\xa7release"

MALFORMED = {
    "empty": (b"", "truncated"),
    "trailing bytes": (BODY + b"\0", "trailing"),
    "unknown tag": (b"\x92\x01\x92\xa4nope\x01", "'nope'"),
    "float for an integer": (RELEASE + b"\xcb" + struct.pack(">d", 1.0), "got `float`"),
    "boolean for an integer": (RELEASE + b"\xc3", "got `bool`"),
    "nothing for an integer": (RELEASE + b"\xc0", "got `None`"),
    "extension type": (RELEASE + b"\xd4\x01\x00", "got `ext`"),
    "timestamp": (RELEASE + b"\xd6\xff\0\0\0\0", "got `ext`"),
    "negative integer": (RELEASE + b"\xff", ">= 0"),
    "integer of 2**63": (RELEASE + b"\xcf\x80" + bytes(7), "<= 9223372036854775807"),
    "integer of 2**64 - 1": (RELEASE + b"\xcf" + b"\xff" * 8, "<= 9223372036854775807"),
    "field too many": (b"\x92\x01\x93\xa7release\x01\x01", "at most length 1"),
    "field too few": (b"\x92\x01\x91\xa7release", "at least"),
    "bad UTF-8 in a tag": (b"\x92\x01\x92\xa2\xff\xfe\x01", "UTF-8"),
    "bad UTF-8 in a string": (
        b"\x92\x01\x95\xa5hello\x92\x01\x01\xc4\x10" + bytes(16) + b"\xc2\xa2\xff\xfe",
        "UTF-8",
    ),
    "message without id": (b"\x91\x91\xa6status", "length 2"),
    "id is negative": (b"\x92\xff\x91\xa6status", ">= 0"),
    "nested 100,000 deep": (b"\x92\x01" + b"\x91" * 100_000, "got `array`"),
    "nested 100,000 deep in a field": (RELEASE + b"\x91" * 100_000, "got `array`"),
    "nested 100,000 deep after the end": (RELEASE + b"\x01" + b"\x91" * 100_000, "trailing"),
    "nested maps in a layout": (b"\x92\x01\x92\xa8register\x81\xa5model" + b"\x81\xa1a" * 100_000, "got `object`"),
    "array header of 2**32 - 1": (b"\x92\x01\x92\xa6arenas\xdd\xff\xff\xff\xff", "<= 256"),
    "map header of 2**32 - 1": (b"\x92\x01\x92\xa8register\xdf\xff\xff\xff\xff", "truncated"),
    "bytes header of 2**32 - 1": (b"\x92\x01\x93\xa6commit\x01\xc6\xff\xff\xff\xff", "length <= 1048576"),
    "outer header of 2**32 - 1": (b"\xdd\xff\xff\xff\xff", "length 2"),
    "list of a million": (b"\x92\x01\x92\xa6arenas\xdd\x00\x0f\x42\x40" + b"\x01" * 1_000_000, "<= 256"),
    "other msgpack": (b"\xc1" * 16, "malformed"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_body(name):
    """A malformed body is a ProtocolError that says what is wrong, and costs less memory than the cap."""
    body, why = MALFORMED[name]
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match=why) as caught:
            decode_request(body)
        assert tracemalloc.get_traced_memory()[1] < REQUEST_MAX
    finally:
        tracemalloc.stop()
    assert caught.value.field == "frame"
    assert "docs/protocol.md" in caught.value.remedy


@pytest.mark.parametrize("length", [0, 3, 4, FRAME_MIN - 1, REQUEST_MAX + 1, 2**31, 2**32 - 1])
def test_bad_length(length):
    """A length out of bounds is refused with its number as soon as it is read, and the stream stays broken."""
    splitter = Splitter()
    with pytest.raises(ProtocolError, match=f"length: a frame of {length} bytes is (longer|shorter) than"):
        splitter.feed(length.to_bytes(4, "little"))
    assert splitter.pending == 4
    with pytest.raises(ProtocolError, match=str(length)):
        splitter.feed(FRAME)
    assert repr(splitter) == f"<Splitter broken, cap {REQUEST_MAX}>"


def test_longest_frame():
    """A body of exactly the cap is taken."""
    body = bytes(REQUEST_MAX)
    assert Splitter().feed(len(body).to_bytes(4, "little") + body) == [body]


def test_shortest_frame():
    """No message is shorter than the least length that is taken."""
    assert Splitter().feed(encode_frame(0, Done())) == [encode_frame(0, Done())[4:]]
    assert len(encode_frame(0, Done())) == 4 + FRAME_MIN


def test_several_frames_in_one_piece():
    """Two frames in one write, and the start of a third, come out as two, and the third when it is whole."""
    splitter = Splitter()
    assert splitter.feed(FRAME + FRAME + FRAME[:6]) == [BODY, BODY]
    assert splitter.pending == 6
    assert repr(splitter) == f"<Splitter 6 of {len(FRAME)} bytes, cap {REQUEST_MAX}>"
    assert splitter.feed(FRAME[6:]) == [BODY]
    assert splitter.pending == 0


def test_one_frame_in_4096_pieces():
    """A frame that comes in 4,096 writes is whole after the last one, and not before."""
    frame = encode_frame(3, Acquire(1, 0, bytes(4096 * 200)))
    step = -(-len(frame) // 4096)
    pieces = [frame[at : at + step] for at in range(0, len(frame), step)]
    splitter = Splitter()
    assert [splitter.feed(piece) for piece in pieces[:-1]] == [[]] * (len(pieces) - 1)
    assert splitter.feed(pieces[-1]) == [frame[4:]]


def test_memory_is_capped():
    """A peer that announces the cap and sends on without end makes this side hold one frame, never more."""
    splitter, piece = Splitter(), bytes(1 << 16)
    tracemalloc.start()
    try:
        splitter.feed(REQUEST_MAX.to_bytes(4, "little"))
        for _ in range(16):
            splitter.feed(piece)
        with pytest.raises(ProtocolError, match="shorter than"):
            splitter.feed(piece)
        assert tracemalloc.get_traced_memory()[1] < 4 * REQUEST_MAX
    finally:
        tracemalloc.stop()


def test_too_long_to_send():
    """A message that the peer would not take is refused before it is sent, with the remedy."""
    with pytest.raises(ProtocolError, match=r"passes the cap of 1024.*larger block_tokens"):
        encode_frame(1, Acquire(1, 0, bytes(2048)), 1024)


def test_names_may_hold_anything_printable_or_not():
    """Strings are data: NUL and ../ are taken as they are, since nothing builds a path or a query from them."""
    body = msgspec.msgpack.encode((1, ["hello", [1, 1], bytes(16), False, "../\0x", 0]))
    assert decode_request(body)[1].name == "../\0x"


@pytest.mark.parametrize("number", [0, 127, 128, 2**16, 2**32, 2**63 - 1])
def test_id_of_an_unreadable_body(number):
    """The id of a body that can not be decoded is still found, so that the refusal reaches who waits for it."""
    body = msgspec.msgpack.encode((number, ["nope"]))
    with pytest.raises(ProtocolError):
        decode_request(body)
    assert peek_id(body) == number


@pytest.mark.parametrize("body", [b"", b"\x92", b"\x91\x01", b"\x92\xff", b"\x92\xcf\x01", b"\x92\xcf" + b"\xff" * 8])
def test_no_readable_id(body):
    """Where not even the id can be read, it is 0."""
    assert peek_id(body) == 0


def test_directions_are_kept_apart():
    """A reply is no request and a request is no reply."""
    with pytest.raises(ProtocolError):
        decode_request(encode_frame(1, ArenaList([1]))[4:])
    with pytest.raises(ProtocolError):
        decode_reply(encode_frame(1, Settle(1, 0))[4:])
