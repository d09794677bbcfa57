"""Pool: compressed rows out of raw rows, as the compressors of DeepSeek-V4 make them; to rebuild or to verify.

Formula, for window ``w`` of `ratio` raw rows and each channel ``d`` alone::

    p      = softmax_j(gate[j][d] + bias[j][d])          over the rows j of the window
    c[d]   = sum_j p_j * kv[j][d]
    row[d] = c[d] / sqrt(mean(c^2) + eps) * weight[d]    then the last 2 * len(cos) channels, pair by pair:
    row[2i], row[2i + 1] = e * cos_i - o * sin_i, o * cos_i + e * sin_i

HCA (ratio 128) pools a window alone. CSA (ratio 4) overlaps: a raw row has two halves, and window ``w`` pools the first
halves of window ``w - 1`` with the second halves of window ``w``, so 2 * ratio rows; the window before the first is the
*halo*, and where there is none it takes no part. Sources: DeepSeek-V4 report 2.3.1 and 2.3.2 (equations 9 to 12 and 20
to 23), DeepseekV4HCACompressor and DeepseekV4CSACompressor of transformers 5.24.

**Two ABIs.** Gates are kept *folded* (the bias already added) or *plain*. vLLM stores them folded; Transformers keeps
plain ones for rows that wait, and folded ones in the halo. Adding the bias twice, or never, gives rows that look right
and are not, so every `RawRows` says what it holds, and nothing is pooled that does not fit: `fold` turns plain into
folded.

Shapes and dtypes: kv and gate f32[windows * ratio, width] with width = dim or, overlapping, 2 * dim; halo f32[ratio,
dim]; bias f32[ratio, width]; weight f32[dim]; cos and sin f32[windows, rope / 2]; result f32 or bf16[windows, dim].
Byte floor: each raw row and gate read once (an overlapping half is read by one window), each row written once:
``8 * windows * ratio * width + 4 * windows * dim``. Tolerance: `TOLERANCE` of the largest magnitude of a row, in
f32, since sums and exponentials round differently; bf16 adds half a unit of its own.

Traps: one pass with a running maximum instead of two passes over the gates; a gate of minus infinity must not meet a
maximum of minus infinity, whose difference is no number; Triton's interpreter rounds casts to bf16 wrongly, so bits are
rounded by `small_floats`; row 0 of a cache is not position 0 of a prompt, so positions come as cos and sin.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from kvledger_kernels.errors import refuse
from kvledger_kernels.runtime import jit, kernel_serves, on_device_of, tl
from kvledger_kernels.small_floats import bf16_of_f32_block

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["TOLERANCE", "Finish", "RawRows", "fold", "pool", "pool_bytes", "pool_kernel", "pool_reference"]

TOLERANCE = 2e-6
"""Largest difference of two implementations in f32, in parts of the largest magnitude of a row."""


@dataclass(frozen=True)
class RawRows:
    """Raw rows of a compressor: projected keys-and-values, and their gates.

    Attributes:
        kv: f32[rows, width].
        gate: f32[rows, width].
        folded: Whether the positional bias has been added to the gates.
    """

    kv: Tensor
    gate: Tensor
    folded: bool


@dataclass(frozen=True)
class Finish:
    """What happens to a pooled row.

    Attributes:
        weight: f32[dim] of the norm.
        eps: Added to the mean square.
        cos: f32[windows, pairs] of each window's position.
        sin: f32[windows, pairs].
    """

    weight: Tensor
    eps: float
    cos: Tensor
    sin: Tensor


def fold(rows: RawRows, bias: Tensor) -> RawRows:
    """Return plain rows with the bias added to their gates.

    Args:
        rows: Whole windows of plain rows.
        bias: f32[ratio, width].

    Raises:
        KernelArgumentError: The rows are folded already, or are no whole windows of this bias.
    """
    if rows.folded:
        refuse("rows", "are folded already", "pass plain rows; a bias is added once")
    if rows.gate.ndim != 2 or rows.gate.shape[0] % len(bias) or rows.gate.shape[1] != bias.shape[1]:
        refuse("bias", f"is {list(bias.shape)} for gates {list(rows.gate.shape)}", "pass the bias of these windows")
    gate = rows.gate.view(-1, *bias.shape) + bias
    return replace(rows, gate=gate.view(rows.gate.shape), folded=True)


def pool_bytes(windows: int, ratio: int, dim: int, *, overlap: bool) -> int:
    """Return the byte floor of pooling so many windows into rows of `dim` values in f32."""
    return 8 * windows * ratio * dim * (2 if overlap else 1) + 4 * windows * dim


# --- reference -------------------------------------------------------------------------------------------------------


def pool_reference(rows: RawRows, ratio: int, finish: Finish, halo: RawRows | None, *, overlap: bool) -> Tensor:
    """Pool folded rows by the formula, in f32; it serves where there is no GPU."""
    windows, dim = rows.kv.shape[0] // ratio, len(finish.weight)
    kv, gate = (part.view(windows, ratio, -1) for part in (rows.kv, rows.gate))
    if overlap:
        absent = torch.zeros_like(kv[:1, :, :dim]), torch.full_like(gate[:1, :, :dim], float("-inf"))
        first = absent if halo is None else (halo.kv[None], halo.gate[None])
        kv = torch.cat([torch.cat([first[0], kv[:-1, :, :dim]]), kv[..., dim:]], dim=1)
        gate = torch.cat([torch.cat([first[1], gate[:-1, :, :dim]]), gate[..., dim:]], dim=1)
    pooled = (kv * gate.softmax(dim=1)).sum(dim=1)
    normal = pooled * torch.rsqrt(pooled.square().mean(dim=-1, keepdim=True) + finish.eps) * finish.weight
    plain = dim - 2 * finish.cos.shape[1]
    even, odd = normal[:, plain::2], normal[:, plain + 1 :: 2]
    turned = torch.stack([even * finish.cos - odd * finish.sin, odd * finish.cos + even * finish.sin], dim=-1)
    return torch.cat([normal[:, :plain], turned.flatten(1)], dim=1)


# --- kernel ----------------------------------------------------------------------------------------------------------


@jit
def pooled_rows(
    p_kv: tl.tensor,
    p_gate: tl.tensor,
    o_columns: tl.tensor,
    m_columns: tl.tensor,
    count: tl.tensor,
    stride: tl.tensor,
    b_top: tl.tensor,
    b_weight: tl.tensor,
    b_sum: tl.tensor,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """Add `count` rows to the running maximum, weight and weighted sum of each channel."""
    for i_row in range(count):
        b_gate = tl.load(p_gate + i_row * stride + o_columns, mask=m_columns, other=0.0)
        b_kv = tl.load(p_kv + i_row * stride + o_columns, mask=m_columns, other=0.0)
        b_new = tl.maximum(b_top, b_gate, propagate_nan=tl.PropagateNan.ALL)
        b_base = tl.where(b_new == float("-inf"), 0.0, b_new)
        b_old = tl.exp(b_top - b_base)
        b_part = tl.exp(b_gate - b_base)
        b_weight = b_weight * b_old + b_part
        b_sum = b_sum * b_old + b_part * b_kv
        b_top = b_new
    return b_top, b_weight, b_sum


@jit
def pool_kernel(
    p_kv: tl.tensor,  # f32*[windows * ratio, width]
    p_gate: tl.tensor,  # f32*
    p_halo_kv: tl.tensor,  # f32*[ratio, dim]
    p_halo_gate: tl.tensor,  # f32*
    p_weight: tl.tensor,  # f32*[dim]
    p_cos: tl.tensor,  # f32*[windows, pairs]
    p_sin: tl.tensor,  # f32*
    p_out: tl.tensor,  # f32* or u16*[windows, dim]
    pairs: tl.tensor,
    eps: tl.tensor,
    ratio: tl.constexpr,
    dim: tl.constexpr,
    overlap: tl.constexpr,
    halo: tl.constexpr,
    bf16: tl.constexpr,
    channel_block: tl.constexpr,
) -> None:
    """Pool, norm and turn one row."""
    i_window = tl.program_id(0).to(tl.int64)
    o_columns = tl.arange(0, channel_block)
    m_columns = o_columns < dim
    width: tl.constexpr = dim * 2 if overlap else dim
    b_top = tl.full([channel_block], float("-inf"), dtype=tl.float32)
    b_weight = tl.zeros([channel_block], dtype=tl.float32)
    b_sum = tl.zeros([channel_block], dtype=tl.float32)
    first = i_window * ratio * width
    if overlap:
        if i_window > 0:
            before = first - ratio * width
            b_top, b_weight, b_sum = pooled_rows(
                p_kv + before, p_gate + before, o_columns, m_columns, ratio, width, b_top, b_weight, b_sum
            )
        elif halo:
            b_top, b_weight, b_sum = pooled_rows(
                p_halo_kv, p_halo_gate, o_columns, m_columns, ratio, dim, b_top, b_weight, b_sum
            )
        first += dim
    b_top, b_weight, b_sum = pooled_rows(
        p_kv + first, p_gate + first, o_columns, m_columns, ratio, width, b_top, b_weight, b_sum
    )
    b_row = tl.where(m_columns, b_sum / b_weight, 0.0)
    b_row *= tl.rsqrt(tl.sum(b_row * b_row, axis=0) / dim + eps)
    b_row *= tl.load(p_weight + o_columns, mask=m_columns, other=0.0)
    o_pairs = tl.arange(0, channel_block // 2) - (dim // 2 - pairs)
    m_pairs = (o_pairs >= 0) & (o_pairs < pairs)
    b_cos = tl.load(p_cos + i_window * pairs + o_pairs, mask=m_pairs, other=1.0)
    b_sin = tl.load(p_sin + i_window * pairs + o_pairs, mask=m_pairs, other=0.0)
    b_even, b_odd = tl.split(tl.reshape(b_row, [channel_block // 2, 2]))
    b_turned = tl.join(b_even * b_cos - b_odd * b_sin, b_odd * b_cos + b_even * b_sin)
    b_row = tl.reshape(b_turned, [channel_block])
    p_row = p_out + i_window * dim + o_columns
    tl.store(p_row, bf16_of_f32_block(b_row) if bf16 else b_row, mask=m_columns)


# --- launch ----------------------------------------------------------------------------------------------------------


def _check_rows(name: str, rows: RawRows, width: int, device: torch.device) -> None:
    for part, data in (("kv", rows.kv), ("gate", rows.gate)):
        if data.dtype != torch.float32 or not data.is_contiguous() or data.device != device:
            refuse(f"{name}.{part}", f"is {data.dtype} on {data.device}", f"pass contiguous f32 on {device}")
        if data.ndim != 2 or data.shape[1] != width or data.shape != rows.kv.shape:
            refuse(f"{name}.{part}", f"has shape {list(data.shape)}", f"pass rows of {width} values, gates alike")


def _check_finish(finish: Finish, windows: int, device: torch.device) -> None:
    pairs = finish.cos.shape[-1]
    wanted = {"weight": (len(finish.weight),), "cos": (windows, pairs), "sin": (windows, pairs)}
    for name, shape in wanted.items():
        data = getattr(finish, name)
        wrong = data.dtype != torch.float32 or not data.is_contiguous() or data.device != device
        if wrong or tuple(data.shape) != shape:
            refuse(f"finish.{name}", f"is {data.dtype}{list(data.shape)}", f"pass contiguous f32{list(shape)}")
    if len(finish.weight) % 2 or 2 * pairs > len(finish.weight):
        refuse("finish.cos", f"has {pairs} pairs for {len(finish.weight)} channels", "turn pairs of the last channels")


def _one_abi(rows: RawRows, bias: Tensor | None, halo: RawRows | None) -> RawRows:
    """Return folded rows, or refuse what would add the bias twice or never."""
    if halo is not None and not halo.folded:
        refuse("halo", "is plain, and a halo is kept folded", "fold it with the window that it came from")
    if rows.folded and bias is not None:
        refuse("bias", "is given for rows that hold it already", "pass None, or plain rows")
    if not rows.folded and bias is None:
        refuse("bias", "lacks for plain rows", "pass the positional bias of the compressor, or folded rows")
    return rows if bias is None else fold(rows, bias)


def pool(
    rows: RawRows,
    ratio: int,
    finish: Finish,
    *,
    bias: Tensor | None = None,
    halo: RawRows | None = None,
    overlap: bool = False,
    dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Make the compressed rows of whole windows of raw rows.

    Args:
        rows: Whole windows, plain or folded.
        ratio: Raw rows of a window.
        finish: Norm and position of each row.
        bias: Positional bias f32[ratio, width] of plain rows, None for folded ones.
        halo: Folded first halves of the window before, None at the beginning of a prompt.
        overlap: Whether windows overlap (CSA) or stand alone (HCA).
        dtype: f32 or bf16 of the result.

    Returns:
        The rows [windows, dim], new.

    Raises:
        KernelArgumentError: The ABIs of rows, bias and halo do not fit, or a shape, dtype, stride or device is wrong.
    """
    dim, device = len(finish.weight), rows.kv.device
    width = 2 * dim if overlap else dim
    _check_rows("rows", rows, width, device)
    if ratio < 1 or not len(rows.kv) or len(rows.kv) % ratio:
        refuse("rows", f"are {len(rows.kv)}, no whole windows of {ratio}", "pass whole windows; the rest waits")
    if halo is not None:
        _check_rows("halo", halo, dim, device)
        if not overlap or len(halo.kv) != ratio:
            refuse("halo", f"has {len(halo.kv)} rows", f"pass {ratio} rows where windows overlap, else None")
    if dtype not in {torch.float32, torch.bfloat16}:
        refuse("dtype", f"is {dtype}", "ask for float32 or bfloat16")
    _check_finish(finish, len(rows.kv) // ratio, device)
    folded = _one_abi(rows, bias, halo)
    if not kernel_serves(rows.kv):
        return pool_reference(folded, ratio, finish, halo, overlap=overlap).to(dtype)
    return _launch(folded, ratio, finish, halo, overlap=overlap, dtype=dtype)


def _launch(
    rows: RawRows, ratio: int, finish: Finish, halo: RawRows | None, *, overlap: bool, dtype: torch.dtype
) -> Tensor:
    dim, windows, before = len(finish.weight), len(rows.kv) // ratio, halo or rows
    out = torch.empty(windows, dim, dtype=dtype, device=rows.kv.device)
    bf16 = dtype == torch.bfloat16
    with on_device_of(out):
        pool_kernel[(windows,)](
            p_kv=rows.kv,
            p_gate=rows.gate,
            p_halo_kv=before.kv,
            p_halo_gate=before.gate,
            p_weight=finish.weight,
            p_cos=finish.cos,
            p_sin=finish.sin,
            p_out=out.view(torch.uint16) if bf16 else out,
            pairs=finish.cos.shape[1],
            eps=finish.eps,
            ratio=ratio,
            dim=dim,
            overlap=overlap,
            halo=halo is not None,
            bf16=bf16,
            channel_block=1 << (dim - 1).bit_length(),
        )
    return out
