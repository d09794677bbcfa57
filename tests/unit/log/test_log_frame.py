"""A frame gives back what was put in, and says what is wrong with anything else."""

import msgspec
import pytest
from crc32c import crc32c

from kvledger_storage.log import EventRefusedError, FrameError, LogVersionError
from kvledger_storage.log.frame import (
    HEADER_BYTES,
    MAX_PAYLOAD_BYTES,
    chain_of,
    decode_frame,
    encode_frame,
    join_events,
)

LOG_ID = b"log id of a test"
FIELDS = {
    "log_id": LOG_ID,
    "first_seq": 7,
    "incarnation": 3,
    "synced_through": 5,
    "boot_id": b"boot id of today",
    "previous_chain": b"c" * 32,
}


def frame_of(*events, **changes):
    """Return an encoded frame of these events."""
    return encode_frame(events, len(events), **(FIELDS | changes))


@pytest.mark.parametrize("count", [1, 15, 16, 65535, 65536])
def test_events_come_back(count):
    """Events return byte for byte across every width of the array header."""
    events = [msgspec.msgpack.encode(number) for number in range(count)]
    frame = decode_frame(frame_of(*events), 0, LOG_ID)
    assert frame.events() == events
    assert frame.payload == msgspec.msgpack.encode(list(range(count)))
    assert frame.header.last_seq == 7 + count - 1


def test_header_comes_back():
    """Every field of the header returns as given, at any offset."""
    encoded = frame_of(b"\xc0")
    frame = decode_frame(b"zzz" + encoded, 3, LOG_ID)
    header = frame.header
    given = (7, 3, 5, b"boot id of today", b"c" * 32)
    assert (header.first_seq, header.incarnation, header.synced_through, header.boot_id, header.previous_chain) == given
    assert frame.size == len(encoded)
    assert frame.chain == chain_of(encoded)


@pytest.mark.parametrize(
    ("spoil", "field"),
    [
        (lambda frame: b"X" + frame[1:], "frame magic"),
        (lambda frame: b"", "frame magic"),
        (lambda frame: frame[: HEADER_BYTES - 1], "frame header"),
        (lambda frame: frame[:20] + b"\xff" + frame[21:], "frame header CRC32C"),
        (lambda frame: frame[:-1], "frame length"),
        (lambda frame: frame[:-1] + b"\xc1", "payload CRC32C"),
    ],
)
def test_damage_is_named(spoil, field):
    """What is wrong with a frame is named by field, with the offset at which the frame begins."""
    with pytest.raises(FrameError) as caught:
        decode_frame(b"12345" + spoil(frame_of(b"\xc0")), 5, LOG_ID)
    assert (caught.value.field, caught.value.offset) == (field, 5)


@pytest.mark.hostile("OR05")
def test_a_frame_of_another_log_is_not_ours():
    """A whole frame that another log wrote fails the header checksum, so it can not be slipped in."""
    with pytest.raises(FrameError, match="for these bytes and this log"):
        decode_frame(frame_of(b"\xc0", log_id=b"some other log's"), 0, LOG_ID)


def test_a_newer_codec_is_refused_and_not_called_damage():
    """A whole frame of a newer codec raises the version error, so that no repair may cut it off."""
    frame = bytearray(frame_of(b"\xc0"))
    frame[24:28] = (2).to_bytes(4, "little")
    frame[HEADER_BYTES - 4 : HEADER_BYTES] = crc32c(bytes(frame[: HEADER_BYTES - 4]), crc32c(LOG_ID)).to_bytes(
        4, "little"
    )
    with pytest.raises(LogVersionError, match="codec version 2 is newer than 1"):
        decode_frame(bytes(frame), 0, LOG_ID)


@pytest.mark.parametrize("event", [b"", b"\xc0\xc0", b"\xa5abc", b"\xc1"])
def test_an_event_is_one_msgpack_value(event):
    """Anything but exactly one msgpack value is refused by its index before it gets a seq."""
    with pytest.raises(EventRefusedError, match="is not one msgpack value") as caught:
        join_events([b"\x01", event], 100)
    assert caught.value.index == 1


def test_an_event_has_a_cap():
    """An event over the cap is refused with both numbers, one at the cap is taken."""
    event = msgspec.msgpack.encode(b"x" * 98)
    join_events([event], 100)
    with pytest.raises(EventRefusedError, match="has 100 bytes, 99 is the most"):
        join_events([event], 99)


def test_a_frame_has_a_cap():
    """A payload over the cap is not encoded."""
    with pytest.raises(ValueError, match="split the batch"):
        frame_of(msgspec.msgpack.encode(bytes(MAX_PAYLOAD_BYTES)))


def test_a_wrong_count_is_found_when_events_are_taken_out():
    """A payload that passes its checksum but holds another number of events than the header says is refused."""
    frame = decode_frame(encode_frame([b"\xc0"], 1, **FIELDS), 0, LOG_ID)
    lying = msgspec.structs.replace(frame, payload=b"\x92\xc0\xc0")
    with pytest.raises(FrameError, match="found 2 events"):
        lying.events()
    with pytest.raises(FrameError, match="a msgpack array of 1 event,"):
        msgspec.structs.replace(frame, payload=b"\xc1").events()
