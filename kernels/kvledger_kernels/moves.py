"""What kernels share that move bytes: how wide an access may be, how long a run, and that buffers are plain bytes.

Numbers of a launch are counted in *steps*: 16 bytes (two 64-bit words, one 128-bit access), 8, 4 or 1, the largest
that divides every address, offset and size of it. Products of steps stay divisible, so that the compiler can prove the
width that the host has found.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from kvledger_kernels.errors import refuse
from kvledger_kernels.runtime import jit, tl

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = ["MAX_STEPS", "as_elements", "check_bytes", "elements", "overlap", "step_of"]

# Kernels count the steps of one run in 32 bits, and the last program counts past its end by less than this again.
MAX_STEPS = 1 << 30


def step_of(*numbers: int) -> int:
    """Return the widest step, in bytes, that divides all numbers."""
    common = math.gcd(16, *numbers)
    return 1 if common == 2 else common


def check_bytes(name: str, data: Tensor, length: int, device: torch.device) -> None:
    """Check a flat buffer of exactly `length` bytes on a device.

    Raises:
        KernelArgumentError: It is not u8, not flat and contiguous, of another size or on another device.
    """
    import torch  # noqa: PLC0415 - the daemon converts host buffers without ever loading torch

    if data.dtype != torch.uint8 or data.ndim != 1 or not data.is_contiguous():
        refuse(name, f"is {data.dtype}{list(data.shape)}", "pass a flat, contiguous tensor of uint8")
    if data.numel() != length:
        refuse(name, f"has {data.numel()} bytes instead of {length}", "pass exactly the bytes of these pages")
    if data.device != device:
        refuse(name, f"lies on {data.device}, the other one on {device}", "pass buffers of one device")


def overlap(one: Tensor, other: Tensor) -> bool:
    """Tell whether two flat buffers share a byte."""
    first, second = one.data_ptr(), other.data_ptr()
    return first < second + other.nbytes and second < first + one.nbytes


@jit
def elements(o_steps: tl.tensor, step: tl.constexpr) -> tl.tensor:
    """Offsets in elements, i64 [B, 2] for a step of 16 (neighbouring words) and [B, 1] else, of steps i64[B, 1]."""
    return o_steps * 2 + tl.arange(0, 2)[None, :] if step == 16 else o_steps


@jit
def as_elements(pointer: tl.tensor, step: tl.constexpr) -> tl.tensor:
    """Point at elements of a step: u64 for 16 and 8 bytes, u32 for 4, u8 for 1; says what the host has checked."""
    word: tl.constexpr = tl.uint8 if step == 1 else (tl.uint32 if step == 4 else tl.uint64)
    return tl.multiple_of(pointer.to(tl.pointer_type(word)), step)
