"""Page formats into each other, byte for byte. Runs again under the Triton interpreter, see test_interpreter.py.

What is expected is made here by walking row by row and field by field in plain Python, not by the reference.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvledger import Form, GroupSpec, Kind
from kvledger.page_formats import PageFormat, format_of
from kvledger_kernels.errors import KernelArgumentError
from kvledger_kernels.relayout import Conversion, relayout

POISON = 0xA5


def named(layout_id: str, rows: int, row_bytes: int, page_bytes: int) -> PageFormat:
    """Return a known format with the numbers of a group."""
    numbers = {"rows_per_page": rows, "row_bytes": row_bytes, "page_bytes": page_bytes}
    group = GroupSpec(name="g", kind=Kind.COMPRESSED_KV, form=Form.ROWS, layers=(0,), layout_id=layout_id, **numbers)
    found = format_of(group)
    assert found is not None
    return found


# Two formats of one row, and how many rows a layer has: whole pages, or the last one in part.
PAIRS = {
    "v4-split-rows": (named("mla-v4.split", 64, 584, 37_440), named("mla-v4.rows", 64, 584, 37_376), 128),
    "v4-pitch-and-pages": (named("mla-v4.split", 64, 584, 37_440), named("mla-v4.rows", 16, 600, 9_728), 101),
    "v4.1": (named("mla-v4.1.split", 32, 528, 16_896), named("mla-v4.1.rows", 16, 528, 8_448), 48),
    "nope-528-interleaved": (named("mla-nope.rows", 32, 528, 16_896), named("mla-nope.split", 32, 528, 17_024), 64),
    "v3.2-repitched": (named("mla-v3.2.rows", 16, 656, 10_496), named("mla-v3.2.rows", 16, 768, 12_288), 32),
    "indexer": (named("indexer-fp8.split", 64, 132, 8_448), named("indexer-fp8.rows", 16, 132, 2_112), 65),
    "nhd-hnd": (named("kv.nhd:4", 16, 1_024, 16_384), named("kv.hnd:4", 16, 1_024, 16_384), 32),
    "nhd-packed-hnd": (named("kv.nhd:2", 8, 96, 768), named("kv.packed-hnd:2", 4, 96, 448), 29),
    "rows-packed-nhd": (named("kv.rows:3", 7, 42, 294), named("kv.packed-nhd:3", 5, 42, 211), 11),
}


def expected(conversion: Conversion, source: np.ndarray) -> np.ndarray:
    """Return the target by its definition."""
    one, other = conversion.source, conversion.target
    target = np.zeros(conversion.object_bytes(other), dtype=np.uint8)
    for layer in range(conversion.layers):
        for row in range(conversion.rows):
            for read, written in zip(one.places(), other.places(), strict=True):
                page, place = divmod(row, one.rows)
                start = (layer * conversion.pages(one) + page) * one.page_bytes + read.base + place * read.stride
                page, place = divmod(row, other.rows)
                end = (layer * conversion.pages(other) + page) * other.page_bytes + written.base
                end += place * written.stride
                target[end : end + read.bytes] = source[start : start + read.bytes]
    return target


def noise(length: int) -> torch.Tensor:
    """Return bytes without pattern."""
    return torch.frombuffer(bytearray(np.random.default_rng(length).bytes(length)), dtype=torch.uint8)


@pytest.mark.parametrize("pair", PAIRS.values(), ids=list(PAIRS))
def test_rows_arrive_where_the_other_format_keeps_them(pair):
    """Every field of every row lies where the target's format says, and all else of the target is zero."""
    conversion = Conversion(pair[0], pair[1], 2, pair[2])
    source = noise(conversion.object_bytes(pair[0]))
    target = torch.full((conversion.object_bytes(pair[1]),), POISON, dtype=torch.uint8)
    before = source.clone()

    relayout(conversion, source, target)

    assert np.array_equal(target.numpy(), expected(conversion, source.numpy()))
    assert torch.equal(source, before)


@pytest.mark.parametrize("pair", PAIRS.values(), ids=list(PAIRS))
def test_there_and_back_is_the_same_image(pair):
    """A conversion loses nothing: what comes back is the source with its padding zeroed."""
    there, back = Conversion(pair[0], pair[1], 1, pair[2]), Conversion(pair[1], pair[0], 1, pair[2])
    source = noise(there.object_bytes(pair[0]))
    middle, again = (torch.full((there.object_bytes(form),), POISON, dtype=torch.uint8) for form in pair[1::-1])
    relayout(there, source, middle)
    relayout(back, middle, again)

    assert np.array_equal(again.numpy(), expected(Conversion(pair[0], pair[0], 1, pair[2]), source.numpy()))


def test_views_at_odd_addresses_convert():
    """Source and target may begin at any byte; nothing around them is read or written."""
    conversion = Conversion(*PAIRS["nhd-packed-hnd"][:2], 1, 29)
    lengths = [conversion.object_bytes(form) for form in (conversion.source, conversion.target)]
    memory = torch.full((lengths[1] + 6,), POISON, dtype=torch.uint8)
    source = noise(lengths[0] + 5)[5:]
    relayout(conversion, source, memory[3:-3])

    assert np.array_equal(memory[3:-3].numpy(), expected(conversion, source.numpy()))
    assert memory[:3].tolist() == memory[-3:].tolist() == [POISON] * 3


ONE = Conversion(*PAIRS["nhd-hnd"][:2], 1, 16)


@pytest.mark.parametrize(
    ("source", "target", "field"),
    [
        (torch.zeros(16_383, dtype=torch.uint8), torch.zeros(16_384, dtype=torch.uint8), "source"),
        (torch.zeros(16_384, dtype=torch.uint8), torch.zeros(16_385, dtype=torch.uint8), "target"),
        (torch.zeros(4_096), torch.zeros(16_384, dtype=torch.uint8), "source"),
        (torch.zeros(16_384, dtype=torch.uint8), torch.zeros(32_768, dtype=torch.uint8)[::2], "target"),
        (torch.zeros(16_384, dtype=torch.uint8), torch.empty(16_384, dtype=torch.uint8, device="meta"), "target"),
    ],
    ids=["short", "long", "dtype", "strided", "device"],
)
def test_buffers_of_the_wrong_form_are_refused(source, target, field):
    """A buffer that would be overrun is refused by name."""
    with pytest.raises(KernelArgumentError) as caught:
        relayout(ONE, source, target)

    assert caught.value.field == field
    assert caught.value.remedy


def test_overlapping_buffers_are_refused():
    """A conversion in place would read what it has written already."""
    memory = torch.zeros(2 * 16_384 - 1, dtype=torch.uint8)
    with pytest.raises(KernelArgumentError, match="shares memory"):
        relayout(ONE, memory[:16_384], memory[-16_384:])


@pytest.mark.parametrize(
    ("source", "target", "layers", "rows", "field"),
    [
        ("v4-split-rows", "v4.1", 1, 1, "target"),
        ("nhd-hnd", "nhd-packed-hnd", 1, 1, "target"),
        ("v4.1", "nope-528-interleaved", 1, 1, "target"),
        ("v4.1", "v4.1", 0, 1, "rows"),
        ("v4.1", "v4.1", 1, 0, "rows"),
    ],
    ids=["other rows", "other heads", "equal sizes", "no layer", "no row"],
)
def test_formats_of_other_rows_do_not_convert(source, target, layers, rows, field):
    """Equal sizes prove nothing: 512 values with 16 bytes of scales are two different rows."""
    with pytest.raises(KernelArgumentError) as caught:
        Conversion(PAIRS[source][0], PAIRS[target][1], layers, rows)

    assert caught.value.field == field
