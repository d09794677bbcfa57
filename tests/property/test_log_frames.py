"""Frames and logs give back any events, however they were batched."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvledger_storage.log import EventLog, FrameError
from kvledger_storage.log.frame import decode_frame, encode_frame
from support.log_sessions import Session
from support.log_simulation import SimulatedLogIO

HOME = Path("/log")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.binary(max_size=60) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=8,
)
EVENTS = st.builds(msgspec.msgpack.encode, VALUES)
U64 = st.integers(0, 2**64 - 1)


@given(st.lists(EVENTS, min_size=1, max_size=40), U64, U64, st.binary(min_size=16, max_size=16), st.integers(0, 20))
def test_a_frame_round_trips(events, first_seq, incarnation, boot_id, offset):
    """Any events with any header return as given, at any offset of the file."""
    encoded = encode_frame(
        events,
        len(events),
        log_id=boot_id,
        first_seq=first_seq,
        incarnation=incarnation,
        synced_through=first_seq,
        boot_id=boot_id,
        previous_chain=bytes(32),
    )
    frame = decode_frame(bytes(offset) + encoded, offset, boot_id)
    assert frame.events() == events
    assert (frame.header.first_seq, frame.header.incarnation, frame.header.boot_id) == (first_seq, incarnation, boot_id)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_no_frame(data):
    """Bytes that no writer made raise the typed error and nothing else."""
    with pytest.raises(FrameError):
        decode_frame(data, 0, bytes(16))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(EVENTS, min_size=1, max_size=8), min_size=1, max_size=12), st.data())
def test_a_log_gives_back_what_was_submitted(submissions, data):
    """Submissions come back in order with consecutive seqs, over segments and a restart, from any seq on."""
    io = SimulatedLogIO()
    session = Session(HOME, io, segment_bytes=4096)
    last_seqs = [session.writer.submit([events], durable=data.draw(st.booleans())) for events in submissions]
    session.close()
    events = [event for submission in submissions for event in submission]
    from_seq = data.draw(st.integers(1, len(events)))
    with EventLog.open(HOME, io=io) as log:
        assert [(seq, event) for seq, _, event in log.read(from_seq)] == list(enumerate(events, 1))[from_seq - 1 :]
        assert log.last_seq == last_seqs[-1] == len(events)
