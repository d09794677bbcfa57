"""Objects out of plain tensors: what an engine keeps for one group becomes the bytes of one object, and back.

For caches that are tensors rather than pages (Transformers, recurrent states). The object is the byte image of each
tensor in the order given, C order within a tensor, nothing between or behind them::

    object = bytes(tensors[0]) + bytes(tensors[1]) + ...

A tensor may be a slice of a larger one, such as rows [a, b) of keys [1, heads, rows, dim]: it is copied from where it
lies. Tensors of equal shape and strides share one launch. All dtypes are moved as bytes, so bf16, fp8 and NaN
payloads survive.

Byte floor: 2N on a GPU while every run of consecutive bytes is a multiple of 8 long, else 3N as for `pack`; a host
object of GPU tensors adds the transfer. Tolerance: none, bit for bit.

Traps: a tensor with more than two gaps is copied first, as a kernel takes pages and rows only; a shared-memory source
may be given to somebody else while it is read, so it is copied once and both tensors and fingerprint come from that
copy; torch tensors made from a read-only buffer would be writable, one more reason for the copy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from kvledger_kernels.errors import refuse
from kvledger_kernels.fingerprint import Buffer, finalise
from kvledger_kernels.pack import pack_pieces
from kvledger_kernels.pages import PagedLayers, Piece, as_bytes, check_object, collapse
from kvledger_kernels.unpack import unpack_pieces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["TensorSpec", "object_bytes", "pack_tensors", "unpack_tensors"]


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Shape and dtype of one tensor within an object."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: Tensor) -> TensorSpec:
        """Return the spec of a tensor."""
        return cls(tuple(tensor.shape), tensor.dtype)

    @property
    def nbytes(self) -> int:
        """Bytes of the tensor's image."""
        return math.prod(self.shape) * self.dtype.itemsize


def object_bytes(tensors: Sequence[Tensor] | Sequence[TensorSpec]) -> int:
    """Return the bytes of the object that holds these tensors."""
    return sum(tensor.nbytes for tensor in tensors)


def _device_of(tensors: Sequence[Tensor]) -> torch.device:
    if not tensors:
        return torch.device("cpu")
    for number, tensor in enumerate(tensors):
        if tensor.device != tensors[0].device:
            refuse(
                f"tensors[{number}]",
                f"lies on {tensor.device}, tensors[0] on {tensors[0].device}",
                "pack each device's tensors into an object of its own",
            )
        if tensor.layout != torch.strided or tensor.is_meta or tensor.is_conj() or tensor.is_neg():
            refuse(f"tensors[{number}]", f"has no bytes of its own ({tensor.layout})", "pass a plain dense tensor")
    return tensors[0].device


def _byte_view(tensor: Tensor) -> Tensor:
    view = as_bytes(tensor, collapse(tensor.shape, tensor.stride()), outer=2)
    if view is not None:
        return view
    dense = tensor.contiguous()
    return dense.view(1, 1, -1).view(torch.uint8)


def _pieces(tensors: Sequence[Tensor]) -> list[Piece]:
    """Cut an object into pieces, one for each shape and strides among its tensors."""
    alike: dict[tuple[object, ...], tuple[list[Tensor], list[int]]] = {}
    offset = 0
    for tensor in tensors:
        if tensor.numel():
            view = _byte_view(tensor)
            views, offsets = alike.setdefault((view.shape, view.stride()), ([], []))
            views.append(view)
            offsets.append(offset)
        offset += tensor.nbytes
    return [_piece(views, offsets) for views, offsets in alike.values()]


def _piece(views: Sequence[Tensor], offsets: Sequence[int]) -> Piece:
    pages, rows, row_bytes = views[0].shape
    return Piece(PagedLayers(tuple(views), rows * row_bytes), tuple(range(pages)), tuple(offsets))


def _host_tensor(out: bytearray | memoryview) -> Tensor:
    view = memoryview(out)
    if view.readonly or not view.c_contiguous:
        refuse("out", "is read-only or not contiguous", "pass a writable, contiguous buffer")
    return torch.frombuffer(view, dtype=torch.uint8) if view.nbytes else torch.empty(0, dtype=torch.uint8)


def pack_tensors(tensors: Sequence[Tensor], out: bytearray | memoryview | Tensor, *, abi: int = 0) -> int:
    """Write the byte images of tensors, in order, into an object; return its ``fp64``.

    Args:
        tensors: Any shapes, strides and dtypes, all on one device. Read only.
        out: Where the object goes: a writable buffer or u8 tensor of exactly `object_bytes(tensors)` bytes. Host memory
            may take the object of GPU tensors; it is complete when the call returns.
        abi: Number of the kernel ABI that the object's group declares.

    Raises:
        KernelArgumentError: Tensors on several devices or without bytes, or `out` of the wrong size, dtype or device or
            read-only. Nothing has been written then.
    """
    device, length = _device_of(tensors), object_bytes(tensors)
    target = out if isinstance(out, torch.Tensor) else _host_tensor(out)
    staged = target.device.type == "cpu" and device.type != "cpu"
    check_object("out", target, length, target.device if staged else device)
    image = torch.empty(length, dtype=torch.uint8, device=device) if staged else target
    total = pack_pieces(_pieces([tensor.detach() for tensor in tensors]), image)
    if staged:
        target.copy_(image)
    return finalise(total, length, abi)


def unpack_tensors(
    source: Buffer | Tensor, specs: Sequence[TensorSpec], *, device: torch.device | str = "cpu", abi: int = 0
) -> tuple[list[Tensor], int]:
    """Make tensors from an object's bytes; return them and the ``fp64`` of exactly the bytes they were made from.

    Args:
        source: The object, `object_bytes(specs)` bytes; not aliased by the tensors, may change or go afterwards.
        specs: Shape and dtype of each tensor, in object order.
        device: Where the tensors are made.
        abi: Number of the kernel ABI that the object's group declares.

    Returns:
        New contiguous tensors, and the fingerprint, which the caller compares with the committed one.

    Raises:
        KernelArgumentError: `source` is of the wrong size or dtype.
    """
    device, length = torch.device(device), object_bytes(specs)
    own = source if isinstance(source, torch.Tensor) else _private_copy(source, length)
    image = own.to(device, copy=own is source and own.device.type == "cpu")
    check_object("source", image, length, image.device)
    tensors = [torch.empty(spec.shape, dtype=spec.dtype, device=image.device) for spec in specs]
    return tensors, finalise(unpack_pieces(_pieces(tensors), image), length, abi)


def _private_copy(source: Buffer, length: int) -> Tensor:
    view = memoryview(source)
    if view.nbytes != length or not view.c_contiguous:
        refuse("source", f"has {view.nbytes} bytes, the specs {length}", "pass the object's bytes, contiguous")
    copy = torch.empty(length, dtype=torch.uint8)
    if length:
        np.copyto(copy.numpy(), np.frombuffer(view.cast("B"), dtype=np.uint8))
    return copy
