"""Numbers of 8 and 16 bits by integer arithmetic alone, in numpy and in Triton from one set of formulas.

A bf16 is ``sig * 2^(place - 134)`` with the eight bits of `sig` (the implicit one among them) and its exponent field as
`place` (denormals have place 1 and no implicit bit). An e4m3 is ``sig * 2^(place - 10)`` with four bits, largest 448,
no infinity, ``0x7f`` for no number. A UE8M0 scale byte stands for ``2^(byte - 127)``, 255 for no number. All follow the
OCP specifications (8-bit floating point 1.0, microscaling formats 1.0).

Rounding is to nearest, ties to even: ``(sig + half - 1 + odd) >> shift`` with half a unit of the last kept bit and
whether that bit is set. Shifts stop where nothing would be left.

Traps: Triton's interpreter rounds casts to bf16 and fp8 otherwise than a GPU does, and ``log2`` of a float is off by
one now and then near powers of two; so exponents come out of the bits, and nothing is ever cast to a small float.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvledger_kernels.runtime import jit, tl

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int32]

__all__ = [
    "bf16_bits",
    "bf16_bits_block",
    "bf16_of_f32_block",
    "e4m3_bits",
    "e4m3_bits_block",
    "rounded",
    "rounded_block",
]


# --- numpy -----------------------------------------------------------------------------------------------------------


def rounded(sig: Ints, shift: Ints) -> Ints:
    """Return ``sig * 2^-shift``, rounded to nearest, ties to even; shift from 1 on, sig below 2^16."""
    shift = np.minimum(shift, 24)
    odd = (sig >> shift) & 1
    found: Ints = (sig + (1 << (shift - 1)) - 1 + odd) >> shift
    return found


def _top(sig: Ints) -> Ints:
    """Return the number of the highest set bit of what is below 256, which a float knows; 0 of 0."""
    found: Ints = np.maximum((sig.astype(np.float32).view(np.int32) >> 23) - 127, 0)
    return found


def e4m3_bits(sig: Ints, exponent: Ints) -> Ints:
    """Return the seven bits of the e4m3 nearest to ``sig * 2^(exponent - 7)``, 448 at most.

    Args:
        sig: Up to eight bits; less than 128 in denormals of bf16.
        exponent: Power of two of the bit 128.
    """
    lead = 7 - _top(sig)
    sig, exponent = sig << lead, exponent - lead
    shift = np.where(exponent >= -6, 4, -exponent - 2)
    bits: Ints = (np.maximum(exponent + 6, 0) << 3) + rounded(sig, shift)
    found: Ints = np.where(sig == 0, 0, np.minimum(bits, 0x7E))
    return found


def bf16_bits(sig: Ints, place: Ints) -> Ints:
    """Return the fifteen bits of the bf16 nearest to ``sig * 2^place``, the largest at most; sig below 256."""
    top = _top(sig)
    exponent = place + top
    normal = ((exponent + 127) << 7) + ((sig << (7 - top)) & 0x7F)
    denormal = np.where(place >= -133, sig << np.clip(place + 133, 0, 8), rounded(sig, np.maximum(-133 - place, 1)))
    found: Ints = np.where(exponent > 127, 0x7F7F, np.where(exponent >= -126, normal, denormal))
    return np.where(sig == 0, 0, found)


# --- Triton ----------------------------------------------------------------------------------------------------------


@jit
def rounded_block(b_sig: tl.tensor, b_shift: tl.tensor) -> tl.tensor:
    """`rounded` of a tile of i32."""
    b_shift = tl.minimum(b_shift, 24)
    b_odd = (b_sig >> b_shift) & 1
    return (b_sig + (1 << (b_shift - 1)) - 1 + b_odd) >> b_shift


@jit
def top_block(b_sig: tl.tensor) -> tl.tensor:
    """Number of the highest set bit of a tile of i32 below 256; 0 of 0."""
    return tl.maximum((b_sig.to(tl.float32).to(tl.int32, bitcast=True) >> 23) - 127, 0)


@jit
def e4m3_bits_block(b_sig: tl.tensor, b_exponent: tl.tensor) -> tl.tensor:
    """`e4m3_bits` of a tile of i32."""
    b_lead = 7 - top_block(b_sig)
    b_sig = b_sig << b_lead
    b_exponent -= b_lead
    b_shift = tl.where(b_exponent >= -6, 4, -b_exponent - 2)
    b_bits = (tl.maximum(b_exponent + 6, 0) << 3) + rounded_block(b_sig, b_shift)
    return tl.where(b_sig == 0, 0, tl.minimum(b_bits, 0x7E))


@jit
def bf16_bits_block(b_sig: tl.tensor, b_place: tl.tensor) -> tl.tensor:
    """`bf16_bits` of a tile of i32."""
    b_top = top_block(b_sig)
    b_exponent = b_place + b_top
    b_normal = ((b_exponent + 127) << 7) + ((b_sig << (7 - b_top)) & 0x7F)
    b_up = b_sig << tl.minimum(tl.maximum(b_place + 133, 0), 8)
    b_denormal = tl.where(b_place >= -133, b_up, rounded_block(b_sig, tl.maximum(-133 - b_place, 1)))
    b_bits = tl.where(b_exponent > 127, 0x7F7F, tl.where(b_exponent >= -126, b_normal, b_denormal))
    return tl.where(b_sig == 0, 0, b_bits)


@jit
def bf16_of_f32_block(b_values: tl.tensor) -> tl.tensor:
    """The bits, as u16, of the bf16 nearest to each f32 of a tile; what is no number stays none."""
    b_bits = b_values.to(tl.uint32, bitcast=True)
    b_rounded = (b_bits + 0x7FFF + ((b_bits >> 16) & 1)) >> 16
    b_nan = (b_bits & 0x7FFFFFFF) > 0x7F800000
    return tl.where(b_nan, (b_bits >> 16) | 0x40, b_rounded).to(tl.uint16)
