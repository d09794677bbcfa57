"""Unpack: one contiguous object goes back into pages of many layers, in one pass, with its fingerprint.

Formula: that of `pack`, read from right to left; padding is read (it belongs to the fingerprint) and not written,
since what lies behind the rows of a page in paged memory is the engine's. The fingerprint is that of the bytes which
were read; whoever calls compares it with the committed one before the pages are used. Source: as for `pack`.

Shapes and dtypes: object u8[n], layers [pages, ...] of any dtype. Byte floor: 2N, and 3N where pages do not begin at
whole words, as for `pack`. Tolerance: none, bit for bit.

Traps: those of `pack`; and a page id that occurs twice would be written by two programs at once, so it is refused.
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

__all__ = ["unpack", "unpack_kernel", "unpack_pieces", "unpack_reference"]


# --- reference -------------------------------------------------------------------------------------------------------


def unpack_reference(piece: Piece, source: Tensor) -> None:
    """Write the pages of a piece from the object `source`, one after the other.

    Args:
        piece: Which pages, and where in the object they lie.
        source: The whole object, u8[n].
    """
    layers, held = piece.layers, piece.layers.held_bytes
    for view, offset in zip(layers.views, piece.offsets, strict=True):
        for slot, page in enumerate(piece.page_ids):
            start = offset + slot * layers.page_bytes
            view[page].copy_(source[start : start + held].view(layers.rows, layers.row_bytes))


# --- kernel ----------------------------------------------------------------------------------------------------------


@jit
def unpack_kernel(
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
    """Copy one chunk of one page out of the object, and write the partial sum of what was read if `fold`."""
    i_program = tl.program_id(0)
    i_chunk = i_program % chunks
    target, offset = page_of_program(p_table, layers, slots, page_stride, page_bytes, i_program // chunks)
    element: tl.constexpr = tl.uint8 if step == 1 else tl.uint64
    p_source = tl.multiple_of((p_object + offset).to(tl.pointer_type(element)), step)
    p_target = tl.multiple_of(target.to(tl.pointer_type(element)), step)
    b_sum = tl.zeros([unit_block], dtype=tl.uint64)
    for i_loop in range(loops):
        o_units = (i_chunk * loops + i_loop) * unit_block + tl.arange(0, unit_block)
        o_steps = steps_of_units(o_units, step)
        m_object = o_steps < page_steps
        b_data = tl.load(p_source + elements_of_steps(o_steps, step), mask=m_object, other=0)
        o_paged = paged_offsets(o_steps, row_steps, row_stride_steps, step, dense)
        tl.store(p_target + o_paged, b_data, mask=o_steps < held_steps)
        if fold:
            b_sum += image_sum(b_data, o_units, offset, m_object, step)
    if fold:
        tl.store(p_sums + i_program, tl.sum(b_sum, axis=0).to(tl.int64, bitcast=True))


# --- launch ----------------------------------------------------------------------------------------------------------


def unpack_pieces(pieces: Sequence[Piece], source: Tensor) -> int:
    """Unpack the pieces that make up the object `source`; return its fingerprint sum, not yet finalised."""
    if kernel_serves(source):
        return launch_pieces(unpack_kernel, pieces, source)
    for piece in pieces:
        unpack_reference(piece, source)
    return partial_sum(source)


def unpack(source: Tensor, layers: PagedLayers, page_ids: Sequence[int] | Tensor, *, abi: int = 0) -> int:
    """Scatter an object into pages of all layers and return the ``fp64`` of what was read.

    Args:
        source: u8[layers.object_bytes(len(page_ids))] on the device of the layers.
        layers: Paged memory, as `PagedLayers.of` describes it.
        page_ids: Pages of every layer to write, in object order, each at most once.
        abi: Number of the kernel ABI that the object's group declares.

    Raises:
        KernelArgumentError: A page id, or the shape, dtype, size, device or alignment of `source` is wrong. Nothing has
            been written then.
    """
    piece = Piece.whole(layers, page_ids, writes=True)
    check_object("source", source, layers.object_bytes(len(piece.page_ids)), layers.views[0].device)
    return finalise(unpack_pieces([piece], source), source.numel(), abi)
