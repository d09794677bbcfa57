"""``fp64``: a 64-bit fingerprint that is the same on a GPU, in torch and in numpy.

Formula, over the 8-byte little-endian words ``w_0 .. w_(n-1)`` of an object, the last one padded with zero bytes::

    sum   = sum_i mix64(w_i xor mix64(i * GAMMA + SEED))                     mod 2^64
    fp64  = mix64(sum xor mix64(length * GAMMA + mix64(abi * GAMMA + SEED)))

Sources: ``mix64`` is the finaliser of splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators,
OOPSLA 2014; the constants are variant 13 of Stafford's improvements on the finaliser of MurmurHash3); GAMMA is 2^64
divided by the golden ratio, made odd; SEED is the first 64 bits of the fraction of pi, so that a zero word at position
0 does not mix to zero.

Why a sum: addition does not care about order, so programs of a grid need none, and the sums of parts of an object,
each taken with the number of its first word, add up to the sum of the whole (`partial_sum`, `finalise`). What pack
and unpack fold in is exactly this. ``mix64`` is a bijection, so a change within one word always changes the sum; the
length keeps padding apart from zeros, and the ABI number keeps equal bytes of two kernel layouts apart. It finds
damage, not forgery.

Shapes and dtypes: any contiguous tensor or buffer, taken as bytes. Byte floor: N (each byte is read once; one i64 is
written for each program). Tolerance: none, bit for bit.

Traps: torch has no unsigned shift, so the sign bits it drags in are masked off; numpy warns on overflow of scalars
but not of arrays; a launch argument equal to 1 becomes a constant that has no ``.to``; word numbers are 64 bits wide
before they are multiplied.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from kvledger_kernels.errors import refuse
from kvledger_kernels.runtime import constant, jit, kernel_serves, on_device_of, tl

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = [
    "Buffer",
    "finalise",
    "fingerprint",
    "fingerprint_kernel",
    "mix64",
    "partial_sum",
    "partial_sum_numpy",
    "partial_sum_torch",
    "words_sum",
]

Buffer = bytes | bytearray | memoryview

WRAP = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15
SEED = 0x243F6A8885A308D3
FIRST = 0xBF58476D1CE4E5B9
SECOND = 0x94D049BB133111EB

_GAMMA, _SEED, _FIRST, _SECOND = constant(GAMMA), constant(SEED), constant(FIRST), constant(SECOND)

# Half a megabyte of words and scratch stays in a core's own cache while the sixteen passes of numpy run over it.
_CHUNK_WORDS = 1 << 15

UNITS = 512  # 16-byte units that a program holds at a time
LOOPS = 8  # at most so many times: 64 KiB for each program


# --- reference -------------------------------------------------------------------------------------------------------


def mix64(value: int) -> int:
    """Return the splitmix64 finaliser of a 64-bit number."""
    value = ((value ^ (value >> 30)) * FIRST) & WRAP
    value = ((value ^ (value >> 27)) * SECOND) & WRAP
    return value ^ (value >> 31)


def finalise(total: int, length: int, abi: int = 0) -> int:
    """Turn the sum over all words of an object into its fingerprint.

    Args:
        total: Sum of the partial sums; may have grown past 64 bits.
        length: Bytes of the object, padding of the last word not counted.
        abi: Number of the kernel ABI that the object's group declares.
    """
    tag = mix64((abi * GAMMA + SEED) & WRAP)
    return mix64((total & WRAP) ^ mix64((length * GAMMA + tag) & WRAP))


def _mix_numpy(words: NDArray[np.uint64], scratch: NDArray[np.uint64]) -> None:
    for shift, factor in ((30, FIRST), (27, SECOND)):
        np.right_shift(words, np.uint64(shift), out=scratch)
        np.bitwise_xor(words, scratch, out=words)
        np.multiply(words, np.uint64(factor), out=words)
    np.right_shift(words, np.uint64(31), out=scratch)
    np.bitwise_xor(words, scratch, out=words)


def _sum_words_numpy(words: NDArray[np.uint64], first_word: int) -> int:
    total = 0
    steps = np.arange(min(len(words), _CHUNK_WORDS), dtype=np.uint64) * np.uint64(GAMMA)
    mixed, scratch = np.empty_like(steps), np.empty_like(steps)
    for start in range(0, len(words), _CHUNK_WORDS):
        part = words[start : start + _CHUNK_WORDS]
        keys, spare = mixed[: len(part)], scratch[: len(part)]
        np.add(steps[: len(part)], np.uint64(((first_word + start) * GAMMA + SEED) & WRAP), out=keys)
        _mix_numpy(keys, spare)
        np.bitwise_xor(keys, part, out=keys)
        _mix_numpy(keys, spare)
        total += int(np.add.reduce(keys))
    return total & WRAP


def partial_sum_numpy(data: Buffer | NDArray[np.uint8], first_word: int = 0) -> int:
    """Return the sum over the words of `data`, the first of which is word `first_word` of its object.

    Args:
        data: C-contiguous bytes; unless they end the object, a multiple of 8 of them.
        first_word: Position of the first word in the object.
    """
    raw = np.frombuffer(data, dtype=np.uint8)
    whole = len(raw) // 8
    total = _sum_words_numpy(raw[: whole * 8].view("<u8"), first_word)
    if len(raw) % 8:
        last = np.zeros(8, dtype=np.uint8)
        last[: len(raw) % 8] = raw[whole * 8 :]
        total += _sum_words_numpy(last.view("<u8"), first_word + whole)
    return total & WRAP


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _mix_torch(words: Tensor) -> Tensor:
    words = (words ^ ((words >> 30) & (WRAP >> 30))) * _signed(FIRST)
    words = (words ^ ((words >> 27) & (WRAP >> 27))) * _signed(SECOND)
    return words ^ ((words >> 31) & (WRAP >> 31))


def partial_sum_torch(data: Tensor, first_word: int = 0) -> int:
    """Do what `partial_sum_numpy` does, in torch operations, on the device where the tensor lies."""
    import torch  # noqa: PLC0415 - the daemon fingerprints host buffers without ever loading torch

    raw = data.reshape(-1).view(torch.uint8)
    padded = torch.nn.functional.pad(raw, (0, -raw.numel() % 8))
    words = padded.clone().view(torch.int64) if padded.data_ptr() % 8 else padded.view(torch.int64)
    places = torch.arange(first_word, first_word + words.numel(), dtype=torch.int64, device=data.device)
    keys = _mix_torch(places * _signed(GAMMA) + SEED)
    return int(_mix_torch(words ^ keys).sum()) & WRAP


# --- kernel ----------------------------------------------------------------------------------------------------------


@jit
def mix64_block(b_words: tl.tensor) -> tl.tensor:
    """`mix64` of a tile of u64."""
    b_words = (b_words ^ (b_words >> 30)) * _FIRST
    b_words = (b_words ^ (b_words >> 27)) * _SECOND
    return b_words ^ (b_words >> 31)


@jit
def words_sum(b_words: tl.tensor, o_words: tl.tensor, m_words: tl.tensor) -> tl.tensor:
    """Sum over axis 1 of the mixed words u64[B, L] at positions i64[B, L] where the mask holds: u64[B]."""
    b_keys = mix64_block(o_words.to(tl.uint64) * _GAMMA + _SEED)
    b_mixed = mix64_block(b_words ^ b_keys)
    return tl.sum(tl.where(m_words, b_mixed, 0), axis=1)


@jit
def fingerprint_kernel(
    p_data: tl.tensor,  # u8*
    p_sums: tl.tensor,  # i64*[programs]
    units: tl.tensor,  # whole 16-byte units
    tail: tl.tensor,  # bytes after them, 0 to 15
    first_word: tl.tensor,
    loops: tl.tensor,  # tiles of units for each program
    alignment: tl.constexpr,  # of p_data: 16 for 128-bit loads, or 8
    unit_block: tl.constexpr,
) -> None:
    """Write the partial sum of each program's share of the units; the first program adds the tail."""
    i_program = tl.program_id(0).to(tl.int64)
    p_words = tl.multiple_of(p_data.to(tl.pointer_type(tl.uint64)), alignment)
    b_sum = tl.zeros([unit_block], dtype=tl.uint64)
    for i_loop in range(loops):
        o_units = (i_program * loops + i_loop) * unit_block + tl.arange(0, unit_block)
        o_words = o_units[:, None] * 2 + tl.arange(0, 2)[None, :]  # [unit_block, 2], one 128-bit load each
        m_words = (o_units < units)[:, None]
        b_words = tl.load(p_words + o_words, mask=m_words, other=0)
        b_sum += words_sum(b_words, o_words + first_word, m_words)
    total = tl.sum(b_sum, axis=0)
    if i_program == 0:
        o_bytes = tl.arange(0, 2)[:, None] * 8 + tl.arange(0, 8)[None, :]
        p_tail = p_data + tl.cast(units, tl.int64) * 16
        b_bytes = tl.load(p_tail + o_bytes, mask=o_bytes < tail, other=0).to(tl.uint64)
        b_last = tl.sum(b_bytes << (tl.arange(0, 8) * 8).to(tl.uint64)[None, :], axis=1)[:, None]
        o_last = (tl.arange(0, 2) + tl.cast(units, tl.int64) * 2 + first_word)[:, None]
        total += tl.sum(words_sum(b_last, o_last, (tl.arange(0, 2) * 8 < tail)[:, None]), axis=0)
    tl.store(p_sums + i_program, total.to(tl.int64, bitcast=True))


# --- launch ----------------------------------------------------------------------------------------------------------


def _launch(raw: Tensor, first_word: int) -> int:
    import torch  # noqa: PLC0415 - the daemon fingerprints host buffers without ever loading torch

    alignment = math.gcd(16, raw.data_ptr())
    if alignment < 8:
        refuse("data", "does not begin at a whole word", "begin at a multiple of 8 bytes")
    units, tail = divmod(raw.numel(), 16)
    tiles = max(1, -(-units // UNITS))
    loops = min(tiles, LOOPS)
    programs = -(-tiles // loops)
    sums = torch.empty(programs, dtype=torch.int64, device=raw.device)
    numbers = (units, tail, first_word, loops)
    with on_device_of(raw):
        fingerprint_kernel[(programs,)](raw, sums, *numbers, alignment=alignment, unit_block=UNITS)
    return int(sums.sum()) & WRAP


def _tensor_sum(data: Tensor, first_word: int) -> int:
    import torch  # noqa: PLC0415 - only reached with a tensor in hand

    if not data.is_contiguous():
        refuse("data", "is not contiguous, so its bytes have no order", "pass data.contiguous(), or pack it")
    raw = data.detach().reshape(-1).view(torch.uint8)
    return _launch(raw, first_word) if kernel_serves(raw) else partial_sum_numpy(raw.numpy(), first_word)


def partial_sum(data: Buffer | Tensor, first_word: int = 0) -> int:
    """Return the sum over the words of a part of an object; sums of parts add up to that of the whole.

    Args:
        data: Bytes in C order; unless they end the object, a multiple of 8 of them.
        first_word: Number of words of the object before this part.

    Raises:
        KernelArgumentError: The data are not contiguous or, on a GPU, not at a whole word; or `first_word` is negative.
    """
    if first_word < 0:
        refuse("first_word", f"is {first_word}", "count the 8-byte words before this part")
    if not isinstance(data, Buffer):
        return _tensor_sum(data, first_word)
    view = memoryview(data)
    if not view.c_contiguous:
        refuse("data", "is not contiguous, so its bytes have no order", "pass bytes(data)")
    return partial_sum_numpy(view.cast("B") if view.nbytes else b"", first_word)


def fingerprint(data: Buffer | Tensor, *, abi: int = 0) -> int:
    """Return ``fp64`` of an object's bytes.

    Args:
        data: The object: a contiguous tensor of any dtype on any device, or a buffer.
        abi: Number of the kernel ABI that the object's group declares.

    Raises:
        KernelArgumentError: The data are not contiguous.
    """
    length = len(data) if isinstance(data, bytes | bytearray) else data.nbytes
    return finalise(partial_sum(data), length, abi)
