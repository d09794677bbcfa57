"""Run every kernel against its reference and count the bytes that were compared.

As a program (``python -m kvledger_kernels.equality [DEVICE]``) it prints one JSON object, kernel to {"bytes",
"equal"}. On a CPU it needs TRITON_INTERPRET=1, as otherwise the reference would be compared with itself. The memory
is random with poison around it: bits that are no numbers in any dtype, and sizes that fill neither words nor units.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import msgspec
import torch

from kvledger_kernels.errors import refuse
from kvledger_kernels.fingerprint import finalise, fingerprint, partial_sum_numpy, partial_sum_torch
from kvledger_kernels.pack import pack, pack_reference
from kvledger_kernels.pages import PagedLayers, Piece
from kvledger_kernels.runtime import kernel_serves
from kvledger_kernels.unpack import unpack, unpack_reference

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

__all__ = ["Outcome", "compare"]

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


class Outcome(msgspec.Struct):
    """What came of comparing one kernel with its reference.

    Attributes:
        bytes: Bytes that were compared.
        equal: Whether every one, and every fingerprint, was the same.
    """

    bytes: int = 0
    equal: bool = True

    def add(self, length: int, *, equal: bool) -> None:
        """Count one comparison."""
        self.bytes += length
        self.equal = self.equal and equal


def compare(device: str) -> dict[str, Outcome]:
    """Compare all kernels with their references on a device.

    Raises:
        KernelArgumentError: On this device the references serve, so there is nothing to compare.
    """
    if not kernel_serves(torch.empty(0, device=device)):
        refuse("device", f"no kernel serves {device}", "set TRITON_INTERPRET=1, or name a GPU")
    checks: dict[str, Callable[[str], Iterator[tuple[int, bool]]]] = {
        "fingerprint": _compare_fingerprint,
        "pack": _compare_pack,
        "unpack": _compare_unpack,
    }
    outcomes = {name: Outcome() for name in checks}
    torch.manual_seed(1)
    for name, check in checks.items():
        for length, equal in check(device):
            outcomes[name].add(length, equal=equal)
    return outcomes


def _noise(length: int, device: str) -> Tensor:
    return torch.randint(0, 256, (length,), dtype=torch.uint8).to(device)


def _compare_fingerprint(device: str) -> Iterator[tuple[int, bool]]:
    for length in _LENGTHS:
        data = _noise(length, device)
        sums = {partial_sum_numpy(data.cpu().numpy()), partial_sum_torch(data)}
        yield length, {finalise(total, length, 5) for total in sums} == {fingerprint(data, abi=5)}


def _layers(shape: tuple[int, ...], memory: list[Tensor]) -> PagedLayers:
    rows, row_bytes, row_stride, page_stride, page_bytes = shape
    views = [part.as_strided((_PAGES, rows, row_bytes), (page_stride, row_stride, 1)) for part in memory]
    return PagedLayers.of(views, page_bytes=page_bytes)


def _poison(length: int, device: str) -> Tensor:
    return torch.full((length,), 0xA5, dtype=torch.uint8, device=device)


def _compare_pack(device: str) -> Iterator[tuple[int, bool]]:
    for shape in _SHAPES:
        layers = _layers(shape, [_noise(_PAGES * shape[3], device) for _ in range(2)])
        length = layers.object_bytes(len(_PAGE_IDS))
        got, want = _poison(length, device), _poison(length, device)
        value = pack(layers, _PAGE_IDS, got)
        pack_reference(Piece.whole(layers, _PAGE_IDS, writes=False), want)
        yield length, torch.equal(got, want) and value == finalise(partial_sum_torch(want), length)


def _compare_unpack(device: str) -> Iterator[tuple[int, bool]]:
    for shape in _SHAPES:
        got, want = ([_poison(_PAGES * shape[3], device) for _ in range(2)] for _ in range(2))
        layers = _layers(shape, got)
        source = _noise(layers.object_bytes(len(_PAGE_IDS)), device)
        value = unpack(source, layers, _PAGE_IDS)
        unpack_reference(Piece.whole(_layers(shape, want), _PAGE_IDS, writes=True), source)
        same = all(torch.equal(*pair) for pair in zip(got, want, strict=True))
        yield source.numel(), same and value == finalise(partial_sum_torch(source), source.numel())


if __name__ == "__main__":
    sys.stdout.write(msgspec.json.encode(compare(*sys.argv[1:] or ["cpu"])).decode() + "\n")
