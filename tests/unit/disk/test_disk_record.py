"""The bytes of headers: fixed for ever, and no bit of them unchecked."""

import hashlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvledger_storage.blob_ref import BlobRef
from kvledger_storage.disk import HeaderState, RecordKey, RecordType
from kvledger_storage.disk.pages import PAGE, new_pages
from kvledger_storage.disk.record import BadHeaderError, NodeName, decode_header, encode_header, record_bytes
from kvledger_storage.disk.segments import encode_segment_header, judge_segment_header, segment_name, segment_number
from support.disk_faults import LAYOUT, LOG_ID

KEY = RecordKey(0x0123456789ABCDEF, 7, 1 << 40, LAYOUT, 3, 10_000, bytes(range(16)), RecordType.MANIFEST)
REF = BlobRef(5, 12 * PAGE, 10_000)

keys = st.builds(
    RecordKey,
    cell=st.integers(0, (1 << 64) - 1),
    slot=st.integers(0, (1 << 32) - 1),
    generation=st.integers(0, (1 << 64) - 1),
    layout=st.binary(min_size=32, max_size=32),
    kind=st.integers(0, 255),
    length=st.integers(0, (1 << 48) - 1),
    fingerprint=st.binary(min_size=16, max_size=16),
    record_type=st.sampled_from(RecordType),
    commit=st.integers(0, (1 << 64) - 1),
    at=st.builds(
        NodeName,
        st.integers(0, (1 << 64) - 1),
        *[st.binary(min_size=32, max_size=32)] * 2,
        st.integers(-1, (1 << 63) - 1),
        st.binary(min_size=32, max_size=32),
    ),
    precision=st.integers(0, 255),
)


def header_page(key=KEY, ref=REF):
    """Return the header page of a record."""
    page = new_pages(1)
    encode_header(page, key, ref, LOG_ID)
    return page


def flipped(page, bit):
    """Return a copy of a page with one bit flipped."""
    copy = bytearray(page)
    copy[bit // 8] ^= 1 << bit % 8
    return memoryview(copy)


def test_the_form_of_a_record_header_does_not_change():
    """Files of this version stay readable: the bytes of a known header are known."""
    page = bytes(header_page())
    assert page[:8] == b"KVLRECRD"
    assert page[8:18].hex() == "0100" + "02" + "03" + "07000000" + "efcd"
    assert hashlib.sha256(page).hexdigest() == "943dba279fbbab6322900ffc953ec4da8f23e0d1bab27b541fca0320c529b434"


def test_the_form_of_a_segment_header_does_not_change():
    """Files of this version stay recognised: the bytes of a known segment header are known."""
    page = new_pages(1)
    encode_segment_header(page, 5, LOG_ID)
    assert bytes(page[:8]) == b"KVLSEGMT"
    assert hashlib.sha256(page).hexdigest() == "b66fea27784dc07985cef5ba8bb747d1cf0c767f86fa2f04ae96afc968b3d980"


@given(key=keys, segment=st.integers(1, (1 << 64) - 1), page=st.integers(1, 1 << 40))
def test_a_header_says_what_was_written(key, segment, page):
    """Key and place of any record come back from its header."""
    ref = BlobRef(segment, page * PAGE, key.length)
    header = decode_header(header_page(key, ref))
    assert header == (key, ref, LOG_ID)
    assert type(header.key.record_type) is RecordType


def test_every_bit_of_a_header_counts():
    """No single flipped bit of the 4,096 bytes leaves a header that is believed."""
    page = header_page()
    for bit in range(PAGE * 8):
        with pytest.raises(BadHeaderError):
            decode_header(flipped(page, bit))


def test_every_bit_of_a_segment_header_counts():
    """No single flipped bit of the 4,096 bytes leaves a segment header that is believed."""
    page = new_pages(1)
    encode_segment_header(page, 5, LOG_ID)
    assert judge_segment_header(page, 5, LOG_ID) is HeaderState.OURS
    for bit in range(PAGE * 8):
        assert judge_segment_header(flipped(page, bit), 5, LOG_ID) is HeaderState.DAMAGED


@given(seed=st.integers(0, 1 << 32), magic=st.sampled_from([b"", b"KVLRECRD", b"KVLSEGMT"]))
def test_no_page_of_noise_is_a_header(seed, magic):
    """Bytes that nobody wrote as a header are not taken for one, whatever they begin with."""
    page = memoryview(magic + random.Random(seed).randbytes(PAGE - len(magic)))
    with pytest.raises(BadHeaderError):
        decode_header(page)


@pytest.mark.parametrize(("length", "takes"), [(0, 1), (1, 2), (PAGE, 2), (PAGE + 1, 3)])
def test_a_record_takes_its_header_and_whole_pages(length, takes):
    """A record takes one page for its header and as many as its payload touches."""
    assert record_bytes(length) == takes * PAGE


@pytest.mark.parametrize(
    "name", ["1.seg", "0000000001.seg.bak", "00000000001.seg", "000000000a.seg", "\u0661" * 10 + ".seg"]
)
def test_other_names_are_no_segments(name):
    """Only ten plain digits name a segment."""
    assert segment_number(name) is None
    assert segment_number(segment_name(42)) == 42
