"""Every truncation and every single-byte mutation of every golden frame: a typed error or a valid message."""

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvledger.errors import ProtocolError
from kvledger.wire.framing import REPLY_MAX, Splitter, decode_reply, decode_request, encode_frame, peek_id

GOLDEN = json.loads((Path(__file__).parents[1] / "golden/frames.json").read_text())
DECODE = {"request": decode_request, "reply": decode_reply}
# Every value of a byte would be 256 times as many; these flip each bit, and reach all first bytes of msgpack's types.
FLIPS = (1, 2, 4, 8, 16, 32, 64, 128, 0xFF)


def verdict(decode, body):
    """Return the message that a body holds, None for a typed error; anything else that is raised is a failure."""
    try:
        number, message = decode(body)
    except ProtocolError as error:
        refusal = error
    else:
        assert number == peek_id(body)
        return message
    assert refusal.field == "frame"
    assert refusal.remedy
    assert 0 <= peek_id(body) < 2**63
    return None


@pytest.mark.hostile("FU01")
@pytest.mark.parametrize("entry", GOLDEN, ids=lambda entry: entry["message"])
def test_truncations(entry):
    """No part of a body is a message, and none is taken for one."""
    body = bytes.fromhex(entry["frame"])[4:]
    assert verdict(DECODE[entry["direction"]], body) is not None
    for end in range(len(body)):
        assert verdict(DECODE[entry["direction"]], body[:end]) is None


@pytest.mark.hostile("FU01")
@pytest.mark.parametrize("entry", GOLDEN, ids=lambda entry: entry["message"])
def test_mutations(entry):
    """A body with one wrong byte is a typed error or another valid message, which can be sent again as it is."""
    frame = bytes.fromhex(entry["frame"])
    for at in range(4, len(frame)):
        for flip in FLIPS:
            body = frame[4:at] + bytes([frame[at] ^ flip]) + frame[at + 1 :]
            message = verdict(DECODE[entry["direction"]], body)
            if message is not None:
                again = encode_frame(peek_id(body), message, REPLY_MAX)[4:]
                assert DECODE[entry["direction"]](again)[1] == message


@given(st.lists(st.sampled_from(GOLDEN), max_size=8), st.data())
@settings(max_examples=300, deadline=None)
def test_pieces(entries, data):
    """However a stream is cut into pieces, the same bodies come out of it in the same order."""
    stream = b"".join(bytes.fromhex(entry["frame"]) for entry in entries)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=10)))
    splitter = Splitter(REPLY_MAX)
    pieces = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    bodies = [body for piece in pieces for body in splitter.feed(piece)]
    assert bodies == [bytes.fromhex(entry["frame"])[4:] for entry in entries]
    assert splitter.pending == 0


@pytest.mark.hostile("FU01")
@given(st.binary(max_size=200))
@settings(max_examples=2000, deadline=None)
def test_noise(body):
    """Random bytes are a typed error or a valid message, as requests and as replies."""
    verdict(decode_request, body)
    verdict(decode_reply, body)


@given(st.binary(max_size=64), st.integers(8, 64))
@settings(max_examples=1000, deadline=None)
def test_noise_in_a_stream(stream, cap):
    """A splitter takes any stream whole or ends it with a typed error, and never holds more than one frame."""
    splitter = Splitter(cap)
    with contextlib.suppress(ProtocolError):
        splitter.feed(stream)
    assert splitter.pending <= cap + 4
