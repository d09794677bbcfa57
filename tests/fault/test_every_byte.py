"""Every byte of every golden frame takes every other value: a typed error, or a message that can be sent again."""

import pytest

from kvledger.wire.framing import REPLY_MAX, encode_frame, peek_id
from property.test_wire_mutations import DECODE, GOLDEN, verdict

HEAD = 4


def mutate(decode, frame, at, value):
    """Judge a frame with one other byte."""
    body = frame[HEAD:at] + bytes([value]) + frame[at + 1 :]
    message = verdict(decode, body)
    if message is not None:
        assert decode(encode_frame(peek_id(body), message, REPLY_MAX)[HEAD:])[1] == message


@pytest.mark.slow
@pytest.mark.parametrize("entry", GOLDEN, ids=lambda entry: entry["message"])
def test_every_value_of_every_byte(entry):
    """No value of any byte is taken for what it is not, and none ends in anything but a typed error."""
    frame = bytes.fromhex(entry["frame"])
    for at in range(HEAD, len(frame)):
        for value in range(256):
            if value != frame[at]:
                mutate(DECODE[entry["direction"]], frame, at, value)
