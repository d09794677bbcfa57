"""Dequantise: an object of `quantise` becomes bf16 again, nearest to what its codes and scales say.

Formula: ``x = code * 2^(scale - 127)``, rounded to nearest, ties to even, where a bf16 can not hold it (denormals
only), the largest bf16 at most. A code or scale for no number gives a quiet one with the code's sign. Source:
as for `quantise`.

Shapes and dtypes: object u8[n + ceil(n / 64)], values bf16[n]. Byte floor: n + n/64 + 2n. Tolerance: none; kernel and
reference are equal bit for bit, and what went through once comes through again as it is.

Traps: scales begin behind n codes and so at any address, which is why they are loaded byte by byte; hostile bytes may
hold any scale, so a shift is bounded before it is used.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from kvledger_kernels.errors import refuse
from kvledger_kernels.moves import check_bytes
from kvledger_kernels.quantise import CHUNK, GROUP, Code, check_values, launch_groups, quantised_bytes
from kvledger_kernels.runtime import constant, jit, kernel_serves, tl
from kvledger_kernels.small_floats import bf16_bits, bf16_bits_block

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["dequantise", "dequantise_kernel", "dequantise_reference"]

_GROUP = constant(GROUP)


# --- reference -------------------------------------------------------------------------------------------------------


def dequantise_reference(data: NDArray[np.uint8], values: int, code: Code) -> NDArray[np.uint16]:
    """Return the bits of the bf16 values of an object; it serves where there is no GPU."""
    found = np.empty(values, dtype=np.uint16)
    for first in range(0, values, CHUNK):
        codes, end = data[first : min(first + CHUNK, values)], values + (first + CHUNK) // GROUP
        scales = data[values + first // GROUP : end].astype(np.uint16) << np.uint16(8)
        found[first : first + len(codes)] = _table(code).take(np.repeat(scales, GROUP)[: len(codes)] | codes)
    return found


@cache
def _table(code: Code) -> NDArray[np.uint16]:
    """Return the value of every code under every scale byte: looking it up takes a part of the arithmetic's time."""
    scales, codes = np.divmod(np.arange(1 << 16, dtype=np.int32), 1 << 8)
    return _dequantised(codes, scales, code)


def _dequantised(codes: NDArray[np.int32], scales: NDArray[np.int32], code: Code) -> NDArray[np.uint16]:
    if code is Code.E4M3:
        sign, field = codes >> 7, (codes >> 3) & 0xF
        sig = (codes & 7) + np.where(field > 0, 8, 0)
        place = np.maximum(field, 1) - 10
        none = (codes & 0x7F) == 0x7F
    else:
        sign = codes >> 7
        sig = np.where(sign > 0, 256 - codes, codes)
        place = np.zeros_like(codes)
        none = codes == 0x80
    bits = bf16_bits(sig, place + scales - 127)
    found: NDArray[np.uint16] = (np.where(none | (scales == 0xFF), 0x7FC0, bits) | (sign << 15)).astype(np.uint16)
    return found


# --- kernel ----------------------------------------------------------------------------------------------------------


@jit
def dequantise_kernel(
    p_codes: tl.tensor,  # u8*[values]
    p_scales: tl.tensor,  # u8*[groups]
    p_values: tl.tensor,  # u16*[values]: bits of bf16
    values: tl.tensor,
    groups: tl.tensor,
    int8: tl.constexpr,
    short: tl.constexpr,  # whether the last group lacks values; else masks are constant along a group
    group_block: tl.constexpr,
) -> None:
    """Dequantise one tile of groups."""
    i_program = tl.program_id(0).to(tl.int64)
    o_groups = i_program * group_block + tl.arange(0, group_block)
    o_values = o_groups[:, None] * _GROUP + tl.arange(0, _GROUP)[None, :]
    m_values = o_values < values if short else (o_groups < groups)[:, None]
    b_codes = tl.load(p_codes + o_values, mask=m_values, other=0).to(tl.int32)
    b_scales = tl.load(p_scales + o_groups, mask=o_groups < groups, other=0).to(tl.int32)[:, None]
    b_sign = b_codes >> 7
    if int8:
        b_sig = tl.where(b_sign > 0, 256 - b_codes, b_codes)
        b_place = tl.zeros_like(b_codes)
        b_none = b_codes == 0x80
    else:
        b_field = (b_codes >> 3) & 0xF
        b_sig = (b_codes & 7) + tl.where(b_field > 0, 8, 0)
        b_place = tl.maximum(b_field, 1) - 10
        b_none = (b_codes & 0x7F) == 0x7F
    b_bits = bf16_bits_block(b_sig, b_place + b_scales - 127)
    b_bits = tl.where(b_none | (b_scales == 0xFF), 0x7FC0, b_bits) | (b_sign << 15)
    tl.store(p_values + o_values, b_bits.to(tl.uint16), mask=m_values)


# --- launch ----------------------------------------------------------------------------------------------------------


def dequantise(data: Tensor, out: Tensor, code: Code = Code.E4M3) -> None:
    """Write the values of an object.

    Args:
        data: u8[quantised_bytes(out.numel())].
        out: bf16, contiguous, any shape, on the same device; all of it is written.
        code: What the values had become.

    Raises:
        KernelArgumentError: A tensor has the wrong dtype, shape, size, device or alignment; nothing has been written
            then.
    """
    import torch  # noqa: PLC0415 - the daemon dequantises host buffers without ever loading torch

    check_values("out", out)
    count = out.numel()
    check_bytes("data", data, quantised_bytes(count), out.device)
    raw = out.detach().reshape(-1).view(torch.uint16)
    if not kernel_serves(out):
        raw.copy_(torch.from_numpy(dequantise_reference(data.numpy(), count, code)))
        return
    if data.is_cuda and data.data_ptr() % 16:
        refuse("data", "does not begin at a multiple of 16 bytes", "pass a buffer from its beginning")
    launch_groups(dequantise_kernel, raw, data, code)
