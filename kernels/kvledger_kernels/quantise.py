"""Quantise: bf16 becomes 8 bits with a power of two as scale for each 64 values, for a tier that may lose precision.

Formula, for a group of up to 64 neighbouring values ``x`` whose largest finite magnitude is ``a``::

    k    = smallest integer with a <= limit * 2^k, from -127 to 127      limit: 448 for e4m3, 127 for int8
    code = x * 2^-k, rounded to nearest, ties to even
    object = codes u8[n] | scales u8[ceil(n / 64)] = k + 127             (UE8M0)

What is not finite becomes the code for no number (``0x7f`` with its sign, or -128): an infinity that turned into a
large number would hide what went wrong. Source: block scaling of the OCP microscaling formats 1.0 with groups of 64,
as DeepSeek-V4's own rows have; the scales travel inside the object, so that nothing else has to be kept.

Shapes and dtypes: bf16[n], contiguous, any n; object u8[n + ceil(n / 64)]. Byte floor: 2n + n + n/64. Tolerance: the
kernel equals its reference bit for bit. The error of a value is at most ``max(|x| / 16, 2^(k - 10))`` for e4m3 and
``2^(k - 1)`` for int8, which is at most ``a / 16`` and ``a / 127``.

Traps: bytes that an engine already stores in fp8 or fp4 are copied and never come here; casts and ``log2`` are not
used (`small_floats` says why); the last group may be short: its absent values must not count as its maximum, and it has
a launch of its own, since a mask that may end anywhere would make every access narrow.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np

from kvledger_kernels.errors import refuse
from kvledger_kernels.moves import check_bytes
from kvledger_kernels.runtime import constant, jit, kernel_serves, on_device_of, tl
from kvledger_kernels.small_floats import e4m3_bits, e4m3_bits_block, rounded, rounded_block

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = [
    "CHUNK",
    "GROUP",
    "Code",
    "check_values",
    "launch_groups",
    "quantise",
    "quantise_kernel",
    "quantise_reference",
    "quantised_bytes",
]

GROUP = 64
"""Values that share a scale."""
CHUNK = 1 << 14  # values that the reference takes at a time, so that what it computes stays in a core's own cache
GROUPS = 32  # groups that a program holds: 4 KiB of bf16

_GROUP = constant(GROUP)


class Code(IntEnum):
    """What a value becomes."""

    E4M3 = 0
    INT8 = 1


_TABLES = {code: (np.zeros((255, 1 << 16), dtype=np.uint8), np.zeros(255, dtype=np.bool_)) for code in Code}
"""Of each sort the code of every bf16 under each scale byte, and which scales were met and have theirs.

Looking a code up takes a fifth of the arithmetic that makes it. A scale takes 64 KiB from when it is met, none before.
"""


def quantised_bytes(values: int) -> int:
    """Return the bytes of the object of so many values."""
    return values + -(-values // GROUP)


# --- reference -------------------------------------------------------------------------------------------------------


def quantise_reference(values: NDArray[np.uint16], code: Code) -> NDArray[np.uint8]:
    """Return the object of bf16 values, given as bits; it serves where there is no GPU."""
    count = len(values)
    found = np.empty(quantised_bytes(count), dtype=np.uint8)
    for first in range(0, count, CHUNK):
        part = values[first : first + CHUNK]
        scales = count + first // GROUP
        codes, found[scales : scales - (-len(part) // GROUP)] = _quantised(part, code)
        found[first : first + len(part)] = codes
    return found


def _quantised(values: NDArray[np.uint16], code: Code) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    groups = -(-len(values) // GROUP)
    padded = np.zeros(groups * GROUP, dtype=np.uint16)
    padded[: len(values)] = values
    bits = padded.reshape(groups, GROUP)
    size = bits & np.uint16(0x7FFF)
    largest = np.where(size < 0x7F80, size, np.uint16(0)).max(axis=1)
    scales = (_scale(largest.astype(np.int32), code) + 127).astype(np.uint8)
    tables, made = _TABLES[code]
    for scale in np.unique(scales[~made[scales]]):
        tables[scale] = _codes_under(int(scale) - 127, code)
        made[scale] = True  # only now: another thread may be reading
    found = tables.reshape(-1).take((scales.astype(np.int32) << 16)[:, None] | bits)
    return found.reshape(-1)[: len(values)], scales


def _codes_under(scale: int, code: Code) -> NDArray[np.uint8]:
    """Return the code of every bf16, by its bits, under one power of two."""
    bits = np.arange(1 << 16, dtype=np.int32)
    size = bits & 0x7FFF
    sig, exponent = _parts(size)
    codes = _codes(bits >> 15, sig, exponent - scale, code)
    none = np.where(bits >> 15, 0xFF, 0x7F) if code is Code.E4M3 else 0x80
    found: NDArray[np.uint8] = np.where(size < 0x7F80, codes, none).astype(np.uint8)
    return found


def _parts(size: NDArray[np.int32]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return significand and exponent of bf16 magnitudes."""
    field = size >> 7
    return (size & 0x7F) + np.where(field > 0, 128, 0), np.maximum(field, 1) - 127


def _scale(largest: NDArray[np.int32], code: Code) -> NDArray[np.int32]:
    top, mantissa = (8, 0x60) if code is Code.E4M3 else (6, 0x7E)
    exponent = np.maximum(largest >> 7, 1) - 127
    found: NDArray[np.int32] = np.clip(exponent - top + ((largest & 0x7F) > mantissa), -127, 127)
    return found


def _codes(
    sign: NDArray[np.int32], sig: NDArray[np.int32], exponent: NDArray[np.int32], code: Code
) -> NDArray[np.int32]:
    if code is Code.E4M3:
        return (sign << 7) | e4m3_bits(sig, exponent)
    sizes = rounded(sig, 7 - exponent)
    return np.where(sign > 0, -sizes, sizes) & 0xFF


# --- kernel ----------------------------------------------------------------------------------------------------------


@jit
def quantise_kernel(
    p_values: tl.tensor,  # u16*[values]: bits of bf16
    p_codes: tl.tensor,  # u8*[values]
    p_scales: tl.tensor,  # u8*[groups]
    values: tl.tensor,
    groups: tl.tensor,
    int8: tl.constexpr,
    short: tl.constexpr,  # whether the last group lacks values; else masks are constant along a group
    group_block: tl.constexpr,
) -> None:
    """Quantise one tile of groups."""
    i_program = tl.program_id(0).to(tl.int64)
    o_groups = i_program * group_block + tl.arange(0, group_block)
    o_values = o_groups[:, None] * _GROUP + tl.arange(0, _GROUP)[None, :]
    m_values = o_values < values if short else (o_groups < groups)[:, None]
    b_bits = tl.load(p_values + o_values, mask=m_values, other=0).to(tl.int32)
    b_size = b_bits & 0x7FFF
    b_finite = b_size < 0x7F80
    b_largest = tl.max(tl.where(b_finite, b_size, 0), axis=1)
    top: tl.constexpr = 6 if int8 else 8
    mantissa: tl.constexpr = 0x7E if int8 else 0x60
    b_scale = tl.maximum(b_largest >> 7, 1) - 127 - top + ((b_largest & 0x7F) > mantissa).to(tl.int32)
    b_scale = tl.minimum(tl.maximum(b_scale, -127), 127)
    b_field = b_size >> 7
    b_sig = (b_size & 0x7F) + tl.where(b_field > 0, 128, 0)
    b_exponent = tl.maximum(b_field, 1) - 127 - b_scale[:, None]
    b_sign = b_bits >> 15
    if int8:
        b_rounded = rounded_block(b_sig, 7 - b_exponent)
        b_codes = tl.where(b_finite, tl.where(b_sign > 0, -b_rounded, b_rounded), 0x80)
    else:
        b_codes = (b_sign << 7) | tl.where(b_finite, e4m3_bits_block(b_sig, b_exponent), 0x7F)
    tl.store(p_codes + o_values, (b_codes & 0xFF).to(tl.uint8), mask=m_values)
    tl.store(p_scales + o_groups, (b_scale + 127).to(tl.uint8), mask=o_groups < groups)


# --- launch ----------------------------------------------------------------------------------------------------------


def check_values(name: str, values: Tensor) -> None:
    """Check a tensor of bf16.

    Raises:
        KernelArgumentError: It has another dtype, is empty, not contiguous, or on a GPU not aligned to 16 bytes.
    """
    import torch  # noqa: PLC0415 - the daemon quantises host buffers without ever loading torch

    if values.dtype != torch.bfloat16 or not values.is_contiguous() or not values.numel():
        refuse(name, f"is {values.dtype}{list(values.shape)}", "pass a contiguous tensor of bfloat16 that is not empty")
    if values.is_cuda and values.data_ptr() % 16:
        refuse(name, "does not begin at a multiple of 16 bytes", "pass a tensor from its beginning")


def launch_groups(kernel: Any, values: Tensor, data: Tensor, code: Code) -> None:
    """Launch one of the two kernels over all whole groups, then over a short one if there is one.

    Args:
        kernel: `quantise_kernel`, or the one of `dequantise`.
        values: u16[n]: bits of the values.
        data: u8[quantised_bytes(n)]: the object.
        code: What the values become, or had become.
    """
    count = len(values)
    whole = count - count % GROUP
    with on_device_of(values):
        for first, end in ((0, whole), (whole, count)):
            groups = -(-(end - first) // GROUP)
            if groups:
                kernel[(-(-groups // GROUPS),)](
                    p_values=values[first:],
                    p_codes=data[first:],
                    p_scales=data[count + first // GROUP :],
                    values=end - first,
                    groups=groups,
                    int8=code is Code.INT8,
                    short=(end - first) % GROUP > 0,
                    group_block=GROUPS,
                )


def quantise(values: Tensor, out: Tensor, code: Code = Code.E4M3) -> None:
    """Quantise bf16 values into an object.

    Args:
        values: bf16, contiguous, any shape.
        out: u8[quantised_bytes(values.numel())] on the same device; all of it is written.
        code: What a value becomes.

    Raises:
        KernelArgumentError: A tensor has the wrong dtype, shape, size, device or alignment; nothing has been written
            then.
    """
    import torch  # noqa: PLC0415 - the daemon quantises host buffers without ever loading torch

    check_values("values", values)
    count = values.numel()
    check_bytes("out", out, quantised_bytes(count), values.device)
    raw = values.detach().reshape(-1).view(torch.uint16)
    if not kernel_serves(values):
        out.copy_(torch.from_numpy(quantise_reference(raw.numpy(), code)))
        return
    if out.is_cuda and out.data_ptr() % 16:
        refuse("out", "does not begin at a multiple of 16 bytes", "pass a buffer from its beginning")
    launch_groups(quantise_kernel, raw, out, code)
