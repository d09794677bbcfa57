"""What one engine stored in its page formats serves another that keeps the same rows elsewhere, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from kvledger import Cache
from kvledger.conversions import conversion
from kvledger.testing import Daemon
from kvledger_kernels.relayout import Conversion, relayout_reference
from support.formats import v4_layout

END = 448  # a block, and a residue whose last page of rows is not full
SPLIT, BY_ROWS, SMALL_PAGES = v4_layout(), v4_layout(split=False), v4_layout(split=False, csa_rows=16)


@pytest.fixture(scope="module")
def daemon():
    """Give one daemon to all tests of this module."""
    with Daemon(memory="64MiB", settings={"arena_bytes": "1MiB"}) as running:
        yield running


@pytest.fixture
def writer(daemon):
    """Give the cache of the engine that stores."""
    with Cache.open(daemon.socket, name="writer") as cache:
        yield cache


@pytest.fixture
def reader(daemon):
    """Give the cache of the engine that reads."""
    with Cache.open(daemon.socket, name="reader") as cache:
        yield cache


def prompt(seed: int, end: int = END) -> list[int]:
    """Return a prompt that no other seed begins like."""
    return [1_000_000 + seed, *range(end - 1)]


def store(cache, layout, tokens) -> dict[tuple[str, int], bytes]:
    """Commit noise at the end of a prompt and return it by group and first token."""
    known, noise = cache.register(layout), np.random.default_rng(len(tokens))
    written = {}
    with cache.reserve(known, tokens, boundary=len(tokens)) as unit:
        for slot in unit.objects:
            written[slot.group, slot.first_token] = data = noise.bytes(slot.length)
            unit.put(slot, data)
    return written


def expected(stored, asked, group: str, tokens: int, data: bytes) -> bytes:
    """Return what an object becomes under another layout."""
    number = [spec.name for spec in asked.groups].index(group)
    formats, spec = conversion(stored, asked)[number], asked.groups[number]
    if formats is None:
        return data
    how = Conversion(*formats, layers=spec.owners, rows=tokens // spec.tokens_per_row)
    target = np.full(how.object_bytes(formats[1]), 0xA5, dtype=np.uint8)
    relayout_reference(how, np.frombuffer(data, dtype=np.uint8), target)
    return target.tobytes()


@pytest.mark.parametrize("end", [512, END])
@pytest.mark.parametrize(
    ("stored", "asked"),
    [(SPLIT, BY_ROWS), (SPLIT, SMALL_PAGES), (SMALL_PAGES, SPLIT)],
    ids=["split-rows", "split-small", "small-split"],
)
def test_stored_pages_become_pages_of_the_asked_format(writer, reader, stored, asked, end):
    """A look-up under another layout of the same rows is a hit over all that was stored, in the asked page format."""
    tokens = prompt(end + int.from_bytes(stored.digest[:2] + asked.digest[:1] + bytes(1), "big"), end)
    written = store(writer, stored, tokens)

    with reader.acquire(reader.register(asked), [*tokens, 7]) as hit:
        assert hit.tokens == end
        assert hit.exactness.name == "EXACT"
        read = {(one.group, one.first_token): (one.tokens, bytes(one.buffer)) for one in hit}
    assert read.keys() == written.keys()
    for key, (count, data) in read.items():
        assert data == expected(stored, asked, key[0], count, written[key]), key


def test_converted_objects_are_objects_like_others(writer, reader):
    """The second look-up finds ready what the first one had converted, and the stored objects are still there."""
    tokens = prompt(3)
    store(writer, SPLIT, tokens)
    layout = reader.register(BY_ROWS)
    with reader.acquire(layout, [*tokens, 7]) as first:
        converted = [bytes(one.buffer) for one in first]
    with reader.acquire(layout, [*tokens, 7], restore=False) as again:
        assert [bytes(one.buffer) for one in again] == converted
    with writer.acquire(writer.register(SPLIT), [*tokens, 7], restore=False) as own:
        assert own.tokens == END


def test_nobody_converts_what_was_not_asked_for(writer, reader):
    """With `restore=False` the verdict is a miss that names the formats, as without conversions."""
    tokens = prompt(4)
    store(writer, SPLIT, tokens)
    with reader.acquire(reader.register(BY_ROWS), [*tokens, 7], restore=False) as hit:
        assert hit.tokens == 0
        assert "layout_id: stored 'mla-v4.split', asked 'mla-v4.rows'" in hit.why


def test_without_wait_a_conversion_is_pending(writer, reader):
    """`wait=0` tells of the job; the next look-up joins it or finds it done."""
    tokens = prompt(5)
    store(writer, SPLIT, tokens)
    layout = reader.register(BY_ROWS)
    with reader.acquire(layout, [*tokens, 7], wait=0) as hit:
        assert hit.pending is not None
        assert hit.tokens == 0
    with reader.acquire(layout, [*tokens, 7]) as hit:
        assert hit.tokens == END


@pytest.mark.parametrize("wait", [20.0, 0.0])
def test_what_lies_on_disk_alone_is_restored_and_converted(writer, reader, wait):
    """One look-up reads back what the other layout keeps on disk and converts it; without wait it is pending first."""
    tokens = prompt(7 + int(wait))
    written = store(writer, SPLIT, tokens)
    writer.offload(writer.register(SPLIT), tokens, boundary=END, drop_memory=True)
    layout = reader.register(BY_ROWS)
    while True:
        with reader.acquire(layout, [*tokens, 7], wait=wait) as hit:
            if hit.pending is None:
                assert hit.tokens == END
                read = {(one.group, one.first_token): (one.tokens, bytes(one.buffer)) for one in hit}
                break
    for key, (count, data) in read.items():
        assert data == expected(SPLIT, BY_ROWS, key[0], count, written[key]), key


def test_other_weights_are_not_converted(writer, reader):
    """Formats convert, identities do not: state of other weights stays a miss."""
    tokens = prompt(6)
    store(writer, SPLIT, tokens)
    with reader.acquire(reader.register(v4_layout(split=False, rope_digest="other")), [*tokens, 7]) as hit:
        assert hit.tokens == 0
        assert "rope_digest" in hit.why
