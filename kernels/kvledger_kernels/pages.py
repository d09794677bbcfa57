"""What pack and unpack agree on: how paged memory is cut into rows, and where its pages lie in an object.

Everything here is bytes. A page holds `rows` rows of `row_bytes`, `row_stride` apart; the pages of a layer lie
`page_stride` apart; all layers of one `PagedLayers` share these numbers and differ in their address. In the object a
page is its rows without gaps, padded with zeros to `page_bytes`; pages follow in the order asked for, layers in the
order given::

    object[offset[layer] + slot * page_bytes ...] = page page_ids[slot] of that layer

A `Piece` is that much of an object; objects whose layers differ in shape consist of several pieces.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from operator import index
from typing import TYPE_CHECKING

import torch

from kvledger_kernels.errors import refuse
from kvledger_kernels.moves import MAX_STEPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["PagedLayers", "Piece", "as_bytes", "check_object", "collapse", "host_ids"]


def collapse(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return (size, stride) of the fewest dimensions that visit the same elements in the same order.

    Dimensions of size 1 go, and neighbours that form one run become one; units are those of `strides`. The result is
    empty for a single element.
    """
    runs: list[tuple[int, int]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if runs and runs[-1][1] == size * stride:
            runs[-1] = (runs[-1][0] * size, stride)
        else:
            runs.append((size, stride))
    return runs


def as_bytes(tensor: Tensor, runs: Sequence[tuple[int, int]], outer: int) -> Tensor | None:
    """View a tensor as u8 with `outer` strided dimensions before rows of consecutive bytes.

    Args:
        tensor: Any dtype; never copied.
        runs: Its elements as `collapse` returned them.
        outer: How many dimensions may stand before the bytes of a row.

    Returns:
        The view u8[.., row_bytes] with exactly `outer + 1` dimensions, or None if the tensor needs more.
    """
    item = tensor.element_size()
    dense = bool(runs) and runs[-1][1] == 1
    row = runs[-1][0] * item if dense else item
    rest = list(runs[:-1] if dense else runs)
    if len(rest) > outer:
        return None
    rest += [(1, 0)] * (outer - len(rest))
    sizes = [size for size, _ in rest]
    strides = [stride * item for _, stride in rest]
    view = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    start = tensor.storage_offset() * item
    return view.set_(tensor.untyped_storage(), start, [*sizes, row], [*strides, 1])


@dataclass(frozen=True)
class PagedLayers:
    """Layers whose pages have the same shape and strides.

    Attributes:
        views: One u8[pages, rows, row_bytes] for each layer, rows of consecutive bytes.
        page_bytes: Bytes of a page in an object, zero padding included.
    """

    views: tuple[Tensor, ...]
    page_bytes: int

    @classmethod
    def of(cls, layers: Sequence[Tensor], *, page_bytes: int | None = None) -> PagedLayers:
        """Describe the paged tensors of an engine; nothing is copied.

        Args:
            layers: Tensors [pages, ...] of any dtype, equal in shape, strides, dtype and device. The dimensions after
                the first may leave one gap: rows may be apart, and so may pages.
            page_bytes: Bytes of a page in the object; by default those of its rows, without padding.

        Raises:
            KernelArgumentError: No layers, unequal ones, more than one gap, or `page_bytes` below what a page holds.
        """
        if not layers:
            refuse("layers", "is empty", "pass at least one paged tensor")
        views = tuple(_page_view(layer, number) for number, layer in enumerate(layers))
        _require_equal(views)
        held = views[0].shape[1] * views[0].shape[2]
        if page_bytes is not None and page_bytes < held:
            refuse("page_bytes", f"is {page_bytes}, but a page holds {held} bytes", "pass the padded size of a page")
        return cls(views, held if page_bytes is None else page_bytes)

    @property
    def pages(self) -> int:
        """Pages of each layer."""
        return self.views[0].shape[0]

    @property
    def rows(self) -> int:
        """Rows of a page."""
        return self.views[0].shape[1]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.views[0].shape[2]

    @property
    def held_bytes(self) -> int:
        """Bytes of a page that are not padding."""
        return self.rows * self.row_bytes

    def object_bytes(self, slots: int) -> int:
        """Return the bytes of an object with `slots` pages of every layer."""
        return len(self.views) * slots * self.page_bytes


def _page_view(layer: Tensor, number: int) -> Tensor:
    if layer.ndim == 0 or layer.numel() == 0:
        refuse(f"layers[{number}]", f"has shape {tuple(layer.shape)}", "pass a tensor [pages, ...] that is not empty")
    runs = collapse(layer.shape[1:], layer.stride()[1:])
    view = as_bytes(layer[0], runs, outer=1)
    if view is None:
        refuse(
            f"layers[{number}]",
            f"has more than one gap within a page (shape {tuple(layer.shape)}, strides {layer.stride()})",
            "pass the parts, such as heads or keys and values, as layers of their own",
        )
    stride = layer.stride(0) * layer.element_size()
    return view.as_strided((layer.shape[0], *view.shape), (stride, *view.stride()))


def _require_equal(views: Sequence[Tensor]) -> None:
    first = views[0]
    for number, view in enumerate(views):
        if (view.shape, view.stride(), view.device) != (first.shape, first.stride(), first.device):
            refuse(
                f"layers[{number}]",
                f"has pages {tuple(view.shape)}, strides {view.stride()} on {view.device}; layers[0] has "
                f"{tuple(first.shape)}, {first.stride()} on {first.device} (pages, rows, bytes)",
                "pass layers that differ together in a call of their own",
            )


@dataclass(frozen=True)
class Piece:
    """Pages of some layers, and where in an object they lie.

    Attributes:
        layers: Where the pages are.
        page_ids: Pages of every layer, in object order.
        offsets: For each layer, the byte of the object at which its first page begins.
    """

    layers: PagedLayers
    page_ids: tuple[int, ...]
    offsets: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.layers.page_bytes // self.step >= MAX_STEPS:
            refuse("page_bytes", f"is {self.layers.page_bytes}, too much for one page", "cut it into pages below 1 GiB")

    @property
    def dense(self) -> bool:
        """Whether the rows of a page leave no gap, so that a page is one run of bytes."""
        return self.layers.rows == 1 or self.layers.views[0].stride(1) == self.layers.row_bytes

    @property
    def folds(self) -> bool:
        """Whether every page begins and ends at a whole word of the object, so that its sum can be taken alone."""
        return math.gcd(8, self.layers.page_bytes, *self.offsets) == 8

    @cached_property
    def step(self) -> int:
        """Bytes moved at once, 16, 8 or 1: the largest that divides every address, stride and size."""
        layers = self.layers
        page_stride, row_stride, _ = layers.views[0].stride()
        numbers = [layers.held_bytes, layers.page_bytes, *self.offsets]
        numbers += [view.data_ptr() for view in layers.views]
        numbers += [page_stride] if layers.pages > 1 else []
        numbers += [] if self.dense else [row_stride, layers.row_bytes]
        common = math.gcd(16, *numbers)
        return common if common >= 8 else 1

    @classmethod
    def whole(cls, layers: PagedLayers, page_ids: Sequence[int] | Tensor, *, writes: bool) -> Piece:
        """Return the piece that is a whole object: layer after layer, page after page.

        Args:
            layers: Where the pages are.
            page_ids: Numbers of the pages, in object order; a tensor is brought to the host to be checked there.
            writes: Whether the pages will be written, so that none may be named twice.

        Raises:
            KernelArgumentError: A page id is negative (a -1 marks a slot without page), too large, no
                integer, or written twice.
        """
        ids = host_ids(page_ids, layers.pages)
        if writes:
            _check_writes(ids, layers)
        layer_bytes = len(ids) * layers.page_bytes
        return cls(layers, ids, tuple(layer_bytes * number for number in range(len(layers.views))))

    def table(self) -> Tensor:
        """Return i64[2 * layers + slots] on the device: address and offset of each layer, then the page ids."""
        pairs = zip(self.layers.views, self.offsets, strict=True)
        numbers = [number for view, offset in pairs for number in (view.data_ptr(), offset)]
        return torch.tensor([*numbers, *self.page_ids], dtype=torch.int64).to(self.layers.views[0].device)


def host_ids(page_ids: Sequence[int] | Tensor, pages: int) -> tuple[int, ...]:
    """Return page ids as numbers on the host, each checked against the pages that there are.

    Raises:
        KernelArgumentError: There are none, or one is negative (a -1 marks a slot without page), too large or no whole
            number.
    """
    try:
        ids = tuple(map(index, page_ids.tolist() if isinstance(page_ids, torch.Tensor) else page_ids))
    except TypeError:
        refuse("page_ids", "is no list of whole numbers", "pass a flat sequence or tensor of page numbers")
    _check_ids(ids, pages)
    return ids


def _check_ids(ids: Sequence[int], pages: int) -> None:
    if not ids:
        refuse("page_ids", "is empty", "name at least one page")
    for slot, page in enumerate(ids):
        if page < 0:
            refuse(f"page_ids[{slot}]", f"is {page}, which stands for no page", "pass only slots that hold a page")
        if page >= pages:
            refuse(f"page_ids[{slot}]", f"is {page}, but the layers have {pages} pages", "pass ids below that")


def _check_writes(ids: Sequence[int], layers: PagedLayers) -> None:
    if len(set(ids)) != len(ids):
        twice = next(page for slot, page in enumerate(ids) if page in ids[:slot])
        refuse("page_ids", f"names page {twice} twice", "write every page from one slot only")
    view, extent = layers.views[0], 1
    for stride, size in sorted(zip(view.stride(), view.shape, strict=True)):
        if size > 1 and stride < extent:
            refuse("layers", f"overlaps itself (strides {view.stride()} in bytes)", "write into memory of its own")
        extent = max(extent, (size - 1) * stride + extent)


def check_object(name: str, data: Tensor, length: int, device: torch.device) -> None:
    """Check the tensor that holds an object's bytes.

    Raises:
        KernelArgumentError: It is not u8, not flat and contiguous, not of `length` bytes, or on another device.
    """
    if data.dtype != torch.uint8 or data.ndim != 1 or not data.is_contiguous():
        refuse(name, f"is {data.dtype}{list(data.shape)}", "pass a flat, contiguous tensor of uint8")
    if data.numel() != length:
        refuse(name, f"has {data.numel()} bytes, the object has {length}", "allocate exactly the object's bytes")
    if data.device != device:
        refuse(name, f"lies on {data.device}, the pages on {device}", "allocate it on the device of the pages")
    if data.is_cuda and data.data_ptr() % 16:
        refuse(name, "does not begin at a multiple of 16 bytes", "pass a buffer from its beginning")
