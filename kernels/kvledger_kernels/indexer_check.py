"""Indexer check: do stored routing keys belong to the rows they choose among, and choose what the engine chose.

An indexer whose keys are stale or shifted changes nothing that can be seen in a short prompt: below ``ratio * top_k``
tokens every row is chosen anyway. So its state is checked itself, in three steps, cheap to dear:

- `check_counts`: as many keys as compressed rows, both as many as the tokens make, both from one commit;
- `index_scores`, the kernel: the scores of sampled queries over the stored keys. Formula::

      score[t] = sum_h weight[h] * relu(query[h] . key[t])      key = e4m3 values * fp32 scale of the row

- `check_choice`: what the engine chose against these scores. Any choice whose scores reach the k-th largest is right:
  with few heads many scores tie (ReLU makes them 0), and equal state then chooses unequal rows.

Source: DeepSeek-V4 report 2.3.1 (equations 13 to 17), the lightning indexer of DeepSeek-V3.2; the pages are those of
`kvledger.page_formats` (row ``indexer-fp8``: keys before scales, or interleaved).

Shapes and dtypes: pages u8[pages * page_bytes]; queries f32[n, heads, 128], weights f32[n, heads] (constant factors of
the model multiplied in), limits i32[n]: rows that a query may see; scores f32[n, rows]. Byte floor: keys and scales
read once, 132 bytes a row, for all sampled queries together; scores are 4 n bytes a row. Tolerance: the choice is
compared within `tolerance` times the largest score, since sums round differently.

Traps: a page keeps keys before scales, so a row's two parts are far apart; page ids are checked on the host; a key may
hold the code for no number, and a score that is none is reported and never compared.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from kvledger.page_formats import PageFormat
from kvledger_kernels.errors import refuse
from kvledger_kernels.moves import check_bytes
from kvledger_kernels.pages import host_ids
from kvledger_kernels.runtime import constant, jit, kernel_serves, on_device_of, tl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = [
    "IndexerPages",
    "check_choice",
    "check_counts",
    "index_scores",
    "index_scores_kernel",
    "index_scores_reference",
]

DIM = 128
ROWS = 32  # rows that a program holds: 16 KiB of f32
TOLERANCE = 1e-5

_DIM = constant(DIM)


@dataclass(frozen=True)
class IndexerPages:
    """Stored keys of one layer.

    Attributes:
        data: u8[pages * form.page_bytes].
        form: A format of row ``indexer-fp8``.
        page_ids: Pages of the sequence, in order.
        rows: Keys in them.
    """

    data: Tensor
    form: PageFormat
    page_ids: tuple[int, ...]
    rows: int

    def __post_init__(self) -> None:
        if self.form.row != "indexer-fp8":
            refuse("form", f"{self.form.name} holds no indexer keys", "name a format of row indexer-fp8")
        if self.form.page_bytes % 4 or self.form.places()[1].stride % 4:
            refuse("form", f"{self.form.name} keeps scales at odd addresses", "use a pitch that 4 divides")
        check_bytes("data", self.data, self.pages * self.form.page_bytes, self.data.device)
        if self.data.data_ptr() % 4:
            refuse("data", "begins at an odd address, where no scale can be read", "pass a buffer from its beginning")
        if not 0 < self.rows <= len(self.page_ids) * self.form.rows:
            wrong = f"are {self.rows} in {len(self.page_ids)} pages of {self.form.rows}"
            refuse("rows", wrong, "count the keys of these pages")

    @classmethod
    def of(cls, data: Tensor, form: PageFormat, page_ids: Sequence[int] | Tensor, rows: int) -> IndexerPages:
        """Describe the pages of a sequence; ids are brought to the host and checked there.

        Raises:
            KernelArgumentError: An id, the format, the number of rows or the buffer is wrong.
        """
        return cls(data, form, host_ids(page_ids, data.numel() // form.page_bytes), rows)

    @property
    def pages(self) -> int:
        """Pages of the buffer."""
        return self.data.numel() // self.form.page_bytes

    @cached_property
    def table(self) -> Tensor:
        """The page ids on the device, i64."""
        return torch.tensor(self.page_ids, dtype=torch.int64).to(self.data.device)


def check_counts(tokens: int, ratio: int, rows: int, keys: int, commits: tuple[int, int]) -> list[str]:
    """Return what is wrong with the number of compressed rows and indexer keys, or with where they come from.

    Args:
        tokens: Tokens that the state stands for.
        ratio: Tokens of a row.
        rows: Compressed rows.
        keys: Indexer keys.
        commits: The `commit_id` of both.
    """
    found = []
    if rows != tokens // ratio:
        found.append(f"{tokens} tokens make {tokens // ratio} rows, there are {rows}")
    if keys != rows:
        found.append(f"{keys} keys choose among {rows} rows")
    if commits[0] != commits[1]:
        found.append(f"rows are of commit {commits[0]}, keys of commit {commits[1]}")
    return found


def check_choice(
    scores: Tensor, chosen: Tensor, limits: Sequence[int], top_k: int, *, tolerance: float = TOLERANCE
) -> list[str]:
    """Return what is wrong with the rows that sampled queries chose, one sentence each.

    Args:
        scores: f32[n, rows] of `index_scores`.
        chosen: Whole numbers [n, k]: the rows that each query chose, in any order, -1 where it chose none.
        limits: Rows that each query could see.
        top_k: Rows that a query chooses where it can.
        tolerance: Scores that differ by less, in parts of the query's largest, are ties.
    """
    found = []
    for number, limit in enumerate(limits):
        wrong = _wrong_choice(scores[number, :limit].cpu().numpy(), chosen[number].tolist(), top_k, tolerance)
        found += [f"query {number} {wrong}"] if wrong else []
    return found


def _wrong_choice(scores: np.ndarray, chosen: list[int], top_k: int, tolerance: float) -> str:
    picked = [row for row in chosen if row != -1]
    wanted = min(top_k, len(scores))
    if not np.isfinite(scores).all():
        return f"meets a key that is no number at row {int(np.flatnonzero(~np.isfinite(scores))[0])}"
    if len(picked) != wanted or len(set(picked)) != wanted:
        return f"chose {len(set(picked))} rows in {len(picked)} places instead of {wanted}"
    outside = [row for row in picked if not 0 <= row < len(scores)]
    if outside:
        return f"chose row {outside[0]} of {len(scores)} that it sees"
    if not wanted:
        return ""
    least = np.sort(scores)[-wanted]
    bound = least - tolerance * np.abs(scores).max()
    low = [row for row in picked if scores[row] < bound]
    if low:
        return f"chose row {low[0]} with {scores[low[0]]:.6g} where {wanted} rows reach {least:.6g}"
    return ""


# --- reference -------------------------------------------------------------------------------------------------------


def index_scores_reference(pages: IndexerPages, queries: Tensor, weights: Tensor, limits: Tensor) -> Tensor:
    """Return the scores by the formula; it serves where there is no GPU."""
    key, scale = pages.form.places()
    held = pages.data.view(-1, pages.form.page_bytes)[list(pages.page_ids)]
    rows = torch.arange(pages.form.rows)
    codes = held[:, (key.base + rows * key.stride)[:, None] + torch.arange(DIM)]
    bits = held[:, (scale.base + rows * scale.stride)[:, None] + torch.arange(4)]
    keys = codes.view(torch.float8_e4m3fn).float() * bits.view(torch.float32)
    keys = keys.view(-1, DIM)[: pages.rows]
    scores = torch.einsum("nhd,td->nht", queries, keys).relu()
    found = (scores * weights[..., None]).sum(dim=1)
    return found.masked_fill(torch.arange(pages.rows) >= limits[:, None], float("-inf"))


# --- kernel ----------------------------------------------------------------------------------------------------------


@jit
def f32_of_e4m3(b_codes: tl.tensor) -> tl.tensor:
    """Values of a tile of e4m3, exactly; made from bits, since the interpreter's casts from fp8 are not to be had."""
    b_codes = b_codes.to(tl.int32)
    b_field = (b_codes >> 3) & 0xF
    b_sig = ((b_codes & 7) + tl.where(b_field > 0, 8, 0)).to(tl.float32)
    b_power = ((tl.maximum(b_field, 1) - 10 + 127) << 23).to(tl.float32, bitcast=True)
    b_values = tl.where(b_codes >> 7 > 0, -b_sig, b_sig) * b_power
    return tl.where((b_codes & 0x7F) == 0x7F, float("nan"), b_values)


@jit
def index_scores_kernel(
    p_data: tl.tensor,  # u8*
    p_pages: tl.tensor,  # i64*[pages of the sequence]
    p_queries: tl.tensor,  # f32*[queries, heads, 128]
    p_weights: tl.tensor,  # f32*[queries, heads]
    p_limits: tl.tensor,  # i32*[queries]
    p_scores: tl.tensor,  # f32*[queries, rows]
    rows: tl.tensor,
    queries: tl.tensor,
    heads: tl.tensor,
    page_rows: tl.tensor,
    page_bytes: tl.tensor,
    key_base: tl.tensor,
    key_stride: tl.tensor,
    scale_base: tl.tensor,
    scale_stride: tl.tensor,
    alignment: tl.constexpr,  # of every key: 16 for 128-bit loads, or less
    row_block: tl.constexpr,
) -> None:
    """Hold a tile of keys and score all sampled queries against it."""
    o_rows = tl.program_id(0) * row_block + tl.arange(0, row_block)
    m_rows = o_rows < rows
    o_columns = tl.arange(0, _DIM)
    b_pages = tl.load(p_pages + o_rows // page_rows, mask=m_rows, other=0) * page_bytes
    o_places = (o_rows % page_rows).to(tl.int64)
    o_firsts = tl.multiple_of(b_pages + key_base + o_places * key_stride, [alignment])
    o_keys = o_firsts[:, None] + o_columns[None, :]
    p_scales = (p_data + b_pages + scale_base + o_places * scale_stride).to(tl.pointer_type(tl.float32))
    b_scales = tl.load(p_scales, mask=m_rows, other=0.0)
    b_keys = f32_of_e4m3(tl.load(p_data + o_keys, mask=m_rows[:, None], other=0)) * b_scales[:, None]
    for i_query in range(queries):
        b_scores = tl.zeros([row_block], dtype=tl.float32)
        for i_head in range(heads):
            i_row = i_query * heads + i_head
            b_query = tl.load(p_queries + i_row * _DIM + o_columns)
            b_dot = tl.sum(b_keys * b_query[None, :], axis=1)
            b_positive = tl.maximum(b_dot, 0.0, propagate_nan=tl.PropagateNan.ALL)
            b_scores += tl.load(p_weights + i_row) * b_positive
        b_scores = tl.where(o_rows < tl.load(p_limits + i_query), b_scores, float("-inf"))
        tl.store(p_scores + tl.cast(i_query, tl.int64) * rows + o_rows, b_scores, mask=m_rows)


# --- launch ----------------------------------------------------------------------------------------------------------


def index_scores(pages: IndexerPages, queries: Tensor, weights: Tensor, limits: Tensor) -> Tensor:
    """Return the scores of sampled queries over the stored keys, minus infinity where a query can not see a row.

    Args:
        pages: The keys.
        queries: f32[n, heads, 128], contiguous.
        weights: f32[n, heads], contiguous.
        limits: i32[n].

    Returns:
        f32[n, pages.rows].

    Raises:
        KernelArgumentError: A tensor has the wrong dtype, shape, strides or device.
    """
    count = queries.shape[:1]
    wanted = {
        "queries": (queries, torch.float32, (*queries.shape[:2], DIM)),
        "weights": (weights, torch.float32, tuple(queries.shape[:2])),
        "limits": (limits, torch.int32, tuple(count)),
    }
    for name, (data, dtype, shape) in wanted.items():
        if (data.dtype, tuple(data.shape)) != (dtype, shape) or not data.is_contiguous() or not data.numel():
            refuse(name, f"is {data.dtype}{list(data.shape)}", f"pass contiguous {dtype}{list(shape)}")
        if data.device != pages.data.device:
            refuse(name, f"lies on {data.device}", f"bring it to {pages.data.device}, where the pages are")
    if not kernel_serves(pages.data):
        return index_scores_reference(pages, queries, weights, limits)
    scores = torch.empty(*count, pages.rows, dtype=torch.float32, device=pages.data.device)
    key, scale = pages.form.places()
    with on_device_of(scores):
        index_scores_kernel[(-(-pages.rows // ROWS),)](
            p_data=pages.data,
            p_pages=pages.table,
            p_queries=queries,
            p_weights=weights,
            p_limits=limits,
            p_scores=scores,
            rows=pages.rows,
            queries=queries.shape[0],
            heads=queries.shape[1],
            page_rows=pages.form.rows,
            page_bytes=pages.form.page_bytes,
            key_base=key.base,
            key_stride=key.stride,
            scale_base=scale.base,
            scale_stride=scale.stride,
            alignment=math.gcd(16, pages.form.page_bytes, key.base, key.stride, pages.data.data_ptr()),
            row_block=ROWS,
        )
    return scores
