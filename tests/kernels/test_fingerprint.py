"""``fp64`` against its formula in plain integers. Runs again under the Triton interpreter, see test_interpreter.py."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvledger_kernels import fingerprint as fp
from kvledger_kernels.errors import KernelArgumentError

LENGTHS = [0, 1, 7, 8, 9, 15, 16, 17, 63, 100, 1000, 65_536, 65_543]


def noise(length: int, seed: int = 0) -> bytes:
    """Return bytes without pattern."""
    return np.random.default_rng([length, seed]).bytes(length)


def by_formula(data: bytes, first_word: int = 0) -> int:
    """Return the sum of the docstring's formula, word by word."""
    padded = data + bytes(-len(data) % 8)
    total = 0
    for number in range(len(padded) // 8):
        word = int.from_bytes(padded[8 * number : 8 * number + 8], "little")
        total += fp.mix64(word ^ fp.mix64(((first_word + number) * fp.GAMMA + fp.SEED) % 2**64))
    return total % 2**64


def as_tensor(data: bytes) -> torch.Tensor:
    """Return a u8 tensor of its own memory."""
    return torch.tensor(list(data), dtype=torch.uint8)


@pytest.mark.parametrize("first_word", [0, 1, 5, 2**33])
@pytest.mark.parametrize("length", LENGTHS)
def test_all_implementations_follow_the_formula(length, first_word):
    """The numpy, torch and launched sums are the formula's, at any length and word number."""
    data = noise(length)
    tensor = as_tensor(data)
    sums = {
        "numpy": fp.partial_sum_numpy(data, first_word),
        "torch": fp.partial_sum_torch(tensor, first_word),
        "tensor": fp.partial_sum(tensor, first_word),
        "buffer": fp.partial_sum(memoryview(data), first_word),
    }

    assert sums == dict.fromkeys(sums, by_formula(data, first_word))


@pytest.mark.parametrize("byte", [0x00, 0xFF, 0x7F, 0x80])
def test_constant_bytes_are_no_special_case(byte):
    """Words of zeros, all ones and extreme signs follow the formula as well."""
    data = bytes([byte]) * 1003

    assert fp.partial_sum(as_tensor(data)) == fp.partial_sum_torch(as_tensor(data)) == by_formula(data)


@pytest.mark.parametrize(
    ("data", "abi", "value"),
    [
        (b"", 0, 0x3A4CA1B40C2BF811),
        (b"kvledger", 0, 0xC46DF4E24EDCD599),
        (bytes(range(256)) * 3 + b"odd", 0, 0x3CEEB3448CDF8B42),
        (bytes(range(256)) * 3 + b"odd", 7, 0x7D79D22B6234EC85),
    ],
)
def test_values_are_pinned(data, abi, value):
    """Fingerprints on disk and in logs outlive the code, so these values never change."""
    assert f"{fp.fingerprint(data, abi=abi):#x}" == f"{value:#x}"


@given(data=st.binary(max_size=200), cuts=st.lists(st.integers(0, 24), max_size=4), order=st.randoms())
@settings(max_examples=60, deadline=None)
def test_sums_of_parts_add_up_in_any_order(data, cuts, order):
    """An object cut at whole words, its parts summed in any order, has the fingerprint of the whole."""
    bounds = sorted({0, *(min(8 * cut, len(data)) for cut in cuts), len(data)})
    parts = [(data[start:end], start // 8) for start, end in pairwise(bounds)]
    order.shuffle(parts)
    total = sum(fp.partial_sum(part, first_word) for part, first_word in parts)

    assert fp.finalise(total, len(data)) == fp.fingerprint(data)


def test_part_may_begin_at_any_word():
    """A part that begins 8 bytes behind a 16-byte boundary adds up as well, read where it lies."""
    data = as_tensor(noise(1003))
    total = fp.partial_sum(data[8:], 1) + fp.partial_sum(data[:8])

    assert fp.finalise(total, 1003) == fp.fingerprint(data)


def test_every_flipped_bit_shows():
    """No single flipped bit leaves the fingerprint as it was, in the padded last word neither."""
    data = noise(43)
    seen = {fp.fingerprint(data)}
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        seen.add(fp.fingerprint(damaged))

    assert len(seen) == 1 + 8 * len(data)


def test_position_length_and_abi_count():
    """Swapped words, zeros appended within the last word and another ABI number each give another fingerprint."""
    data = noise(20)
    variants = [data, data[8:16] + data[:8] + data[16:], data + b"\0", data + b"\0\0\0\0", data + bytes(8)]
    seen = {fp.fingerprint(variant, abi=abi) for variant in variants for abi in (0, 1)}

    assert len(seen) == 2 * len(variants)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn, torch.int64])
def test_dtype_of_a_tensor_does_not_count(dtype):
    """A tensor of any dtype and shape has the fingerprint of its bytes, NaN payloads included."""
    data = noise(960)
    tensor = as_tensor(data).view(dtype).view(2, 5, -1)

    assert fp.fingerprint(tensor) == fp.fingerprint(data)


@pytest.mark.parametrize(
    ("data", "first_word", "field"),
    [
        (torch.zeros(4, 4)[:, 1:], 0, "data"),
        (memoryview(bytes(16))[::2], 0, "data"),
        (b"12345678", -1, "first_word"),
    ],
    ids=["strided tensor", "strided buffer", "negative word"],
)
def test_bytes_without_order_are_refused(data, first_word, field):
    """What has no byte order, or no place in an object, is refused with field and remedy."""
    with pytest.raises(KernelArgumentError) as caught:
        fp.partial_sum(data, first_word)

    assert caught.value.field == field
    assert caught.value.remedy
