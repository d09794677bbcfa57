"""Comparisons of the kernels that compute: bits where the result is exact, within the stated tolerance where it is not.

What is quantised are all 65,536 numbers of bf16, what is dequantised all 256 codes, so infinities, denormals and what
is no number among them. The others get random numbers, so what is no number in their result is a difference. A
comparison yields the bytes that it compared and whether they were the same, or near enough.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from kvledger.page_formats import PageFormat
from kvledger_kernels.byte_comparisons import Comparison, noise, poison
from kvledger_kernels.dequantise import dequantise, dequantise_reference
from kvledger_kernels.indexer_check import (
    DIM,
    IndexerPages,
    index_scores,
    index_scores_reference,
)
from kvledger_kernels.indexer_check import TOLERANCE as SCORE_TOLERANCE
from kvledger_kernels.pool import TOLERANCE, Finish, RawRows, pool, pool_reference
from kvledger_kernels.quantise import Code, quantise, quantise_reference, quantised_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["VALUE_COMPARISONS"]

# Ratio, channels of a row, whether windows overlap, whether there is a halo.
_POOLS = ((128, 64, False, False), (4, 128, True, True), (4, 20, True, False))
_WINDOWS = 3

_PAGES = (
    PageFormat("split", "indexer-fp8", (DIM, 4), ((0,), (1,)), 64, 0, 8_448),
    PageFormat("rows", "indexer-fp8", (DIM, 4), ((0, 1),), 16, 132, 2_112),
)


def _compare_quantise(device: str) -> Iterator[tuple[int, bool]]:
    bits = np.concatenate([np.arange(1 << 16, dtype=np.uint16), np.arange(37, dtype=np.uint16) * 1771])
    values = torch.from_numpy(bits).view(torch.bfloat16).to(device)
    for code in Code:
        got = poison(quantised_bytes(len(bits)), device)
        quantise(values, got, code)
        yield got.numel(), np.array_equal(got.cpu().numpy(), quantise_reference(bits, code))


def _compare_dequantise(device: str) -> Iterator[tuple[int, bool]]:
    count = 16_421
    for code in Code:
        data = noise(quantised_bytes(count), device)
        got = torch.full((count,), -1.0, dtype=torch.bfloat16, device=device)
        dequantise(data, got, code)
        want = dequantise_reference(data.cpu().numpy(), count, code)
        yield got.nbytes, np.array_equal(got.view(torch.uint16).cpu().numpy(), want)


def _compare_pool(device: str) -> Iterator[tuple[int, bool]]:
    for ratio, dim, overlap, has_halo in _POOLS:
        width = 2 * dim if overlap else dim
        rows = RawRows(torch.randn(_WINDOWS * ratio, width), torch.randn(_WINDOWS * ratio, width), folded=True)
        before = RawRows(torch.randn(ratio, dim), torch.randn(ratio, dim), folded=True) if has_halo else None
        angle = torch.randn(_WINDOWS, dim // 4)
        finish = Finish(torch.randn(dim), 1e-6, angle.cos(), angle.sin())
        want = pool_reference(rows, ratio, finish, before, overlap=overlap)
        there = Finish(finish.weight.to(device), 1e-6, finish.cos.to(device), finish.sin.to(device))
        halo = _to(before, device) if before is not None else None
        got = pool(_to(rows, device), ratio, there, halo=halo, overlap=overlap).cpu()
        yield got.nbytes, bool(((got - want).abs() <= TOLERANCE * want.abs().amax(dim=1, keepdim=True)).all())


def _to(rows: RawRows, device: str) -> RawRows:
    return RawRows(rows.kv.to(device), rows.gate.to(device), rows.folded)


def _compare_indexer(device: str) -> Iterator[tuple[int, bool]]:
    for form in _PAGES:
        data = noise(4 * form.page_bytes, "cpu")
        key, scale = form.places()
        for row in range(form.rows):
            codes = data.view(4, -1)[:, key.base + row * key.stride :][:, :DIM]
            codes[codes & 0x7F == 0x7F] = 0
            data.view(4, -1)[:, scale.base + row * scale.stride :][:, :4] = torch.rand(4, 1).view(torch.uint8)
        count = 3 * form.rows - 5
        inputs = torch.randn(3, 8, DIM), torch.randn(3, 8), torch.tensor([0, count, 9], dtype=torch.int32)
        want = index_scores_reference(IndexerPages.of(data, form, (3, 0, 1), count), *inputs)
        pages = IndexerPages.of(data.to(device), form, (3, 0, 1), count)
        got = index_scores(pages, *(part.to(device) for part in inputs)).cpu()
        bound = SCORE_TOLERANCE * want.masked_fill(want.isinf(), 0).abs().amax()
        same = torch.where(want.isinf(), got == want, (got - want).abs() <= bound)
        yield 3 * count * (DIM + 4), bool(same.all())


VALUE_COMPARISONS: dict[str, Comparison] = {
    "quantise": _compare_quantise,
    "dequantise": _compare_dequantise,
    "pool": _compare_pool,
    "indexer_check": _compare_indexer,
}
"""Each kernel's comparison, by its name."""
