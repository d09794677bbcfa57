"""Pack: pages of many layers become one contiguous object, in one pass, with its fingerprint.

Formula (`pages` has the words)::

    object[offset[l] + s * page_bytes + r * row_bytes + b] = layer l, page page_ids[s], row r, byte b
    object[offset[l] + s * page_bytes + rows * row_bytes ..][: padding] = 0
    fp64 as in `fingerprint`, over the object

Source: the gather of paged key-value caches through a slot mapping, as engines do it to offload; taken as bytes, so
that no dtype is ever converted and NaN payloads survive. Shapes and dtypes: layers [pages, ...] of any dtype, object
u8[n]. Byte floor: 2N (N read, N written) while every page begins at a whole 8-byte word of the object; otherwise its
words belong to two pages and the fingerprint takes a second pass, 3N. Tolerance: none, bit for bit.

Traps: the padding of a page in paged memory is uninitialised, so it is never read and always written as zeros; an
address out of a table tells the compiler nothing, so `tl.multiple_of` says what the host has checked, and strides are
passed in steps, so that products stay divisible; page ids are i64 and multiply before anything narrower; a page id of
-1 would read in front of the layer, so ids are checked on the host; a launch argument equal to 1 becomes a constant
that has no ``.to``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvledger_kernels.fingerprint import finalise, partial_sum
from kvledger_kernels.paged_copy import (
    elements_of_steps,
    image_sum,
    launch_pieces,
    page_of_program,
    paged_offsets,
    steps_of_units,
)
from kvledger_kernels.pages import PagedLayers, Piece, check_object
from kvledger_kernels.runtime import jit, kernel_serves, tl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["pack", "pack_kernel", "pack_pieces", "pack_reference"]


# --- reference -------------------------------------------------------------------------------------------------------


def pack_reference(piece: Piece, out: Tensor) -> None:
    """Write the pages of a piece into the object `out`, one after the other.

    Args:
        piece: Which pages, and where in the object they go.
        out: The whole object, u8[n].
    """
    layers, held = piece.layers, piece.layers.held_bytes
    for view, offset in zip(layers.views, piece.offsets, strict=True):
        for slot, page in enumerate(piece.page_ids):
            start = offset + slot * layers.page_bytes
            image = out[start : start + layers.page_bytes]
            image[:held].view(layers.rows, layers.row_bytes).copy_(view[page])
            image[held:] = 0


# --- kernel ----------------------------------------------------------------------------------------------------------


@jit
def pack_kernel(
    p_table: tl.tensor,  # i64*[2 * layers + slots]: address and offset of each layer, then page ids
    p_object: tl.tensor,  # u8*, aligned to a step
    p_sums: tl.tensor,  # i64*[programs]
    layers: tl.tensor,
    slots: tl.tensor,
    chunks: tl.tensor,  # programs for each page
    loops: tl.tensor,  # tiles of units for each program
    page_stride: tl.tensor,  # bytes, in paged memory
    page_bytes: tl.tensor,  # bytes, in the object
    page_steps: tl.tensor,
    held_steps: tl.tensor,
    row_steps: tl.tensor,
    row_stride_steps: tl.tensor,
    step: tl.constexpr,
    dense: tl.constexpr,
    fold: tl.constexpr,
    unit_block: tl.constexpr,
) -> None:
    """Copy one chunk of one page into the object, padding with zeros, and write its partial sum if `fold`."""
    i_program = tl.program_id(0)
    i_chunk = i_program % chunks
    source, offset = page_of_program(p_table, layers, slots, page_stride, page_bytes, i_program // chunks)
    element: tl.constexpr = tl.uint8 if step == 1 else tl.uint64
    p_source = tl.multiple_of(source.to(tl.pointer_type(element)), step)
    p_target = tl.multiple_of((p_object + offset).to(tl.pointer_type(element)), step)
    b_sum = tl.zeros([unit_block], dtype=tl.uint64)
    for i_loop in range(loops):
        o_units = (i_chunk * loops + i_loop) * unit_block + tl.arange(0, unit_block)
        o_steps = steps_of_units(o_units, step)
        m_object = o_steps < page_steps
        o_paged = paged_offsets(o_steps, row_steps, row_stride_steps, step, dense)
        b_data = tl.load(p_source + o_paged, mask=o_steps < held_steps, other=0)
        tl.store(p_target + elements_of_steps(o_steps, step), b_data, mask=m_object)
        if fold:
            b_sum += image_sum(b_data, o_units, offset, m_object, step)
    if fold:
        tl.store(p_sums + i_program, tl.sum(b_sum, axis=0).to(tl.int64, bitcast=True))


# --- launch ----------------------------------------------------------------------------------------------------------


def pack_pieces(pieces: Sequence[Piece], out: Tensor) -> int:
    """Pack pieces that together make up the object `out`; return its fingerprint sum, not yet finalised."""
    if kernel_serves(out):
        return launch_pieces(pack_kernel, pieces, out)
    for piece in pieces:
        pack_reference(piece, out)
    return partial_sum(out)


def pack(layers: PagedLayers, page_ids: Sequence[int] | Tensor, out: Tensor, *, abi: int = 0) -> int:
    """Gather pages of all layers into one object and return its ``fp64``.

    Args:
        layers: Paged memory, as `PagedLayers.of` describes it.
        page_ids: Pages to take from every layer, in this order.
        out: u8[layers.object_bytes(len(page_ids))] on the device of the layers; all of it is written.
        abi: Number of the kernel ABI that the object's group declares.

    Raises:
        KernelArgumentError: A page id, or the shape, dtype, size, device or alignment of `out` is wrong; nothing has
            been written then.
    """
    piece = Piece.whole(layers, page_ids, writes=False)
    check_object("out", out, layers.object_bytes(len(piece.page_ids)), layers.views[0].device)
    return finalise(pack_pieces([piece], out), out.numel(), abi)
