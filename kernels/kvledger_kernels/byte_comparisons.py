"""Comparisons of the kernels that move bytes: each with its reference, on noise with poison around it.

Sizes are those of real pages, and some that fill neither words nor units. A comparison yields the bytes that it
compared and whether they, and their fingerprints, were the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import torch

from kvledger.page_formats import PageFormat
from kvledger_kernels.compact import ZEROS, Move, compact, compact_reference
from kvledger_kernels.fingerprint import finalise, fingerprint, partial_sum_numpy, partial_sum_torch
from kvledger_kernels.pack import pack, pack_reference
from kvledger_kernels.pages import PagedLayers, Piece
from kvledger_kernels.relayout import Conversion, relayout, relayout_reference
from kvledger_kernels.unpack import unpack, unpack_reference

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["BYTE_COMPARISONS", "Comparison", "noise", "poison"]

Comparison = Callable[[str], Iterator[tuple[int, bool]]]

_PAGES = 5
_PAGE_IDS = (4, 0, 3)
_LENGTHS = (0, 1, 7, 8, 63, 100, 1000, 65_536, 65_551, 200_000)

# Rows of a page, bytes of a row, bytes from row to row, bytes from page to page, bytes of a page in the object.
_SHAPES = (
    (64, 584, 584, 37_440, 37_440),
    (32, 528, 528, 16_896, 16_896),
    (64, 132, 132, 8_448, 8_448),
    (16, 256, 512, 8_192, 4_096),
    (9, 24, 40, 400, 256),
    (7, 63, 100, 700, 441),
    (1, 1000, 1000, 1024, 1024),
    (3, 1, 7, 21, 3),
)

# Two formats of one row, and the rows of a layer; pages of the target are others than those of the source.
_SPLIT, _TOGETHER = ((0, 1), (2,)), ((0, 1, 2),)
_HEADS = (64, 64, 64, 64)
_CONVERSIONS = (
    (
        PageFormat("split", "row", (448, 128, 8), _SPLIT, 16, 0, 9_792),
        PageFormat("rows", "row", (448, 128, 8), _TOGETHER, 8, 600, 4_864),
        41,
    ),
    (
        PageFormat("nhd", "kv", _HEADS, ((0, 1), (2, 3)), 8, 0, 2_048),
        PageFormat("hnd", "kv", _HEADS, ((0,), (1,), (2,), (3,)), 8, 0, 2_048),
        24,
    ),
    (
        PageFormat("keys first", "row", (128, 4), ((0,), (1,)), 16, 0, 2_112),
        PageFormat("rows", "row", (128, 4), ((0, 1),), 16, 0, 2_112),
        31,
    ),
    (
        PageFormat("odd", "row", (7, 3), ((0,), (1,)), 5, 0, 53),
        PageFormat("pitched", "row", (7, 3), ((0, 1),), 3, 13, 40),
        17,
    ),
)

# Source, target and length: 16-byte steps, words, half words, single bytes, zeros.
_MOVES = (
    Move(0, 40_000, 8_192),
    Move(8_200, 50_008, 4_104),
    Move(12_308, 60_004, 4_100),
    Move(17_001, 70_003, 3_001),
    Move(ZEROS, 80_000, 9_000),
    Move(ZEROS, 90_001, 77),
)


def noise(length: int, device: str) -> Tensor:
    """Return u8[length] without pattern."""
    return torch.randint(0, 256, (length,), dtype=torch.uint8).to(device)


def _compare_fingerprint(device: str) -> Iterator[tuple[int, bool]]:
    for length in _LENGTHS:
        data = noise(length, device)
        sums = {partial_sum_numpy(data.cpu().numpy()), partial_sum_torch(data)}
        yield length, {finalise(total, length, 5) for total in sums} == {fingerprint(data, abi=5)}


def _layers(shape: tuple[int, ...], memory: list[Tensor]) -> PagedLayers:
    rows, row_bytes, row_stride, page_stride, page_bytes = shape
    views = [part.as_strided((_PAGES, rows, row_bytes), (page_stride, row_stride, 1)) for part in memory]
    return PagedLayers.of(views, page_bytes=page_bytes)


def poison(length: int, device: str) -> Tensor:
    """Return u8[length] in which a byte that nobody wrote can be seen."""
    return torch.full((length,), 0xA5, dtype=torch.uint8, device=device)


def _compare_pack(device: str) -> Iterator[tuple[int, bool]]:
    for shape in _SHAPES:
        layers = _layers(shape, [noise(_PAGES * shape[3], device) for _ in range(2)])
        length = layers.object_bytes(len(_PAGE_IDS))
        got, want = poison(length, device), poison(length, device)
        value = pack(layers, _PAGE_IDS, got)
        pack_reference(Piece.whole(layers, _PAGE_IDS, writes=False), want)
        yield length, torch.equal(got, want) and value == finalise(partial_sum_torch(want), length)


def _compare_unpack(device: str) -> Iterator[tuple[int, bool]]:
    for shape in _SHAPES:
        got, want = ([poison(_PAGES * shape[3], device) for _ in range(2)] for _ in range(2))
        layers = _layers(shape, got)
        source = noise(layers.object_bytes(len(_PAGE_IDS)), device)
        value = unpack(source, layers, _PAGE_IDS)
        unpack_reference(Piece.whole(_layers(shape, want), _PAGE_IDS, writes=True), source)
        same = all(torch.equal(*pair) for pair in zip(got, want, strict=True))
        yield source.numel(), same and value == finalise(partial_sum_torch(source), source.numel())


def _compare_relayout(device: str) -> Iterator[tuple[int, bool]]:
    for one, other, rows in _CONVERSIONS:
        for source, target in ((one, other), (other, one)):
            conversion = Conversion(source, target, 2, rows)
            data = noise(conversion.object_bytes(source), device)
            got = poison(conversion.object_bytes(target), device)
            relayout(conversion, data, got)
            want = np.full(got.numel(), 0x5A, dtype=np.uint8)
            relayout_reference(conversion, data.cpu().numpy(), want)
            yield got.numel(), np.array_equal(got.cpu().numpy(), want)


def _compare_compact(device: str) -> Iterator[tuple[int, bool]]:
    got = noise(100_000, device)
    want = got.clone()
    compact(got, _MOVES)
    compact_reference(want, _MOVES)
    yield got.numel(), torch.equal(got, want)


BYTE_COMPARISONS: dict[str, Comparison] = {
    "fingerprint": _compare_fingerprint,
    "pack": _compare_pack,
    "unpack": _compare_unpack,
    "relayout": _compare_relayout,
    "compact": _compare_compact,
}
"""Each kernel's comparison, by its name."""
