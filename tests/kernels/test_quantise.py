"""The lossy tier's numbers: every bf16, every code. Runs again under the Triton interpreter, see test_interpreter.py.

What is expected is made here with torch's own casts and with double precision, not by the reference.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvledger_kernels.dequantise import dequantise
from kvledger_kernels.errors import KernelArgumentError
from kvledger_kernels.quantise import GROUP, Code, quantise, quantised_bytes

LIMIT = {Code.E4M3: 448.0, Code.INT8: 127.0}
NO_NUMBER = {Code.E4M3: 0x7F, Code.INT8: 0x80}
LARGEST = float(torch.finfo(torch.bfloat16).max)


def bf16_of(bits: np.ndarray) -> torch.Tensor:
    """Return the bf16 tensor of the given bits."""
    return torch.from_numpy(bits.astype(np.uint16)).view(torch.bfloat16)


def every_number() -> torch.Tensor:
    """Return all 65,536 numbers, first among their neighbours, then shuffled, then a short group."""
    bits = np.arange(1 << 16)
    mixed = np.random.default_rng(2).permutation(1 << 14)
    usual = torch.randn(3 * GROUP + 11, generator=torch.Generator().manual_seed(1)).to(torch.bfloat16)
    return torch.cat([bf16_of(bits), bf16_of(mixed), usual])


def some_numbers() -> torch.Tensor:
    """Return every seventh number and a short group: of each exponent, sign and rounding some."""
    return torch.cat([bf16_of(np.arange(0, 1 << 16, 7)), every_number()[-11:]])


def quantised(values: torch.Tensor, code: Code) -> tuple[np.ndarray, np.ndarray]:
    """Return codes and scale bytes of values."""
    out = torch.full((quantised_bytes(values.numel()),), 0xA5, dtype=torch.uint8)
    quantise(values, out, code)
    return out[: values.numel()].numpy(), out[values.numel() :].numpy()


def restored(codes: np.ndarray, scales: np.ndarray, code: Code) -> torch.Tensor:
    """Return the values of codes and scale bytes."""
    out = torch.full((len(codes),), -1.0, dtype=torch.bfloat16)
    dequantise(torch.from_numpy(np.concatenate([codes, scales])), out, code)
    return out


@pytest.mark.parametrize("code", Code)
def test_every_number_takes_the_nearest_code_under_the_smallest_scale(code):
    """Codes are those of a correctly rounded cast, and half the scale would not hold the group's largest value."""
    values = every_number()
    codes, scales = quantised(values, code)
    exact = values.double().numpy()
    finite = np.isfinite(exact)
    power = np.repeat(2.0 ** (scales.astype(int) - 127), GROUP)[: len(exact)]
    with np.errstate(invalid="ignore"):
        scaled = exact / power
    if code is Code.E4M3:
        nearest = torch.from_numpy(scaled).to(torch.float32).to(torch.float8_e4m3fn).view(torch.uint8).numpy()
    else:
        nearest = np.rint(np.where(finite, scaled, 0)).astype(np.int8).view(np.uint8)

    assert np.array_equal(codes[finite], nearest[finite])
    assert set(codes[~finite] & (0x7F if code is Code.E4M3 else 0xFF)) == {NO_NUMBER[code]}
    padded = np.zeros(len(scales) * GROUP)
    padded[: len(exact)] = np.where(finite, np.abs(exact), 0)
    largest, scale = padded.reshape(-1, GROUP).max(axis=1), 2.0 ** (scales.astype(int) - 127)
    assert (largest <= LIMIT[code] * scale).all()
    assert ((largest > LIMIT[code] * scale / 2) | (scales == 0)).all()


@pytest.mark.parametrize("code", Code)
def test_what_comes_back_keeps_the_stated_bounds(code):
    """The error of no finite value passes the bound of the docstring, and what is no number stays none."""
    values = some_numbers()
    codes, scales = quantised(values, code)
    back = restored(codes, scales, code).double().numpy()
    exact = values.double().numpy()
    finite = np.isfinite(exact)
    place = np.repeat(scales.astype(int) - 127, GROUP)[: len(exact)]
    bound = np.maximum(np.abs(exact) / 16, 2.0 ** (place - 10)) if code is Code.E4M3 else 2.0 ** (place - 1)

    assert (np.abs(back - exact)[finite] <= bound[finite]).all()
    assert np.isnan(back[~finite]).all()


@pytest.mark.parametrize("code", Code)
def test_a_second_time_changes_nothing(code):
    """Values that went through the tier once come through again bit for bit."""
    once = restored(*quantised(some_numbers(), code), code)
    twice = restored(*quantised(once, code), code)
    number = ~once.isnan()

    assert torch.equal(once.view(torch.uint16)[number], twice.view(torch.uint16)[number])


@pytest.mark.parametrize("code", Code)
def test_every_code_under_every_scale_is_read_correctly_rounded(code):
    """All codes times all scales, hostile ones included, give the nearest bf16, the largest one at most."""
    codes = np.tile(np.arange(256, dtype=np.uint8), 256)
    scales = np.repeat(np.arange(256, dtype=np.uint8), 256 // GROUP)
    got = restored(codes, scales, code)
    if code is Code.E4M3:
        value = torch.from_numpy(codes).view(torch.float8_e4m3fn).double().numpy()
    else:
        value = np.where(codes == 0x80, np.nan, codes.view(np.int8).astype(float))
    power = np.repeat(scales.astype(int), GROUP) - 127
    exact = np.where(power == 128, np.nan, value * 2.0**power)
    want = torch.from_numpy(np.clip(exact, -LARGEST, LARGEST)).to(torch.float32).to(torch.bfloat16)

    assert torch.equal(got.isnan(), want.isnan())
    number = ~want.isnan()
    assert torch.equal(got[number], want[number])


@pytest.mark.parametrize("length", [1, 63, 64, 65, 2_048 + 1])
def test_short_groups_have_a_scale_of_their_own(length):
    """A last group of any length is scaled by what it holds, and nothing is written behind the object."""
    values = torch.full((length,), 2.0, dtype=torch.bfloat16)
    values[-1] = 448.0
    memory = torch.full((quantised_bytes(length) + 3,), 0xA5, dtype=torch.uint8)
    quantise(values, memory[:-3])

    assert memory[-3:].tolist() == [0xA5] * 3
    assert memory[-4] == 127
    assert (memory[length:-4] == 127 - 7).all()


GOOD = torch.zeros(64, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("values", "data", "field"),
    [
        (GOOD, torch.zeros(64, dtype=torch.uint8), "data"),
        (GOOD, torch.zeros(65), "data"),
        (GOOD, torch.zeros(65, dtype=torch.uint8, device="meta"), "data"),
        (GOOD.float(), torch.zeros(65, dtype=torch.uint8), "values"),
        (torch.zeros(8, 16, dtype=torch.bfloat16)[:, ::2], torch.zeros(65, dtype=torch.uint8), "values"),
        (GOOD[:0], torch.zeros(0, dtype=torch.uint8), "values"),
    ],
    ids=["short", "dtype", "device", "no bf16", "strided", "empty"],
)
def test_tensors_of_the_wrong_form_are_refused(values, data, field):
    """Both directions refuse what they could not write or read whole, by the name of the argument."""
    names = {"data": ("out", "data"), "values": ("values", "out")}[field]
    with pytest.raises(KernelArgumentError) as there:
        quantise(values, data)
    with pytest.raises(KernelArgumentError) as back:
        dequantise(data, values)

    assert (there.value.field, back.value.field) == names
