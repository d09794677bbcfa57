"""The copy that pack and unpack share: how a program finds its page, walks through it and sums what it moves.

A page's image in the object is walked in units: of 16 bytes where everything is divisible by 16, of one 8-byte word
otherwise. A unit is moved in steps (`Piece.step`): one step of 16 or 8 bytes, or eight of a byte where sizes are odd.
Each program moves one chunk of one page, so that a few large pages fill a GPU as well as many small ones do.

Traps: strides come in steps and are multiplied by the constant width of a step, so that the compiler can prove
128-bit accesses; a row is found by a 32-bit division (steps of a page are at most 2^30, checked on the host), and
everything is widened to i64 before it is multiplied by a stride.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from kvledger_kernels.fingerprint import partial_sum, words_sum
from kvledger_kernels.runtime import jit, on_device_of, tl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from kvledger_kernels.pages import Piece

__all__ = [
    "LOOPS",
    "UNITS",
    "elements_of_steps",
    "image_sum",
    "launch_pieces",
    "page_of_program",
    "paged_offsets",
    "steps_of_units",
]

UNITS = 256  # units that a program holds at a time: 4 KiB where a unit has 16 bytes
LOOPS = 4  # at most so many times: 16 KiB for each program


@jit
def page_of_program(
    p_table: tl.tensor,
    layers: tl.tensor,
    slots: tl.tensor,
    page_stride: tl.tensor,
    page_bytes: tl.tensor,
    i_page: tl.tensor,
) -> tuple[tl.tensor, tl.tensor]:
    """Address of page `i_page` (layer-major) in paged memory, and its byte in the object; both i64."""
    i_layer = i_page // slots
    i_slot = i_page % slots
    address = tl.load(p_table + i_layer * 2)
    offset = tl.load(p_table + i_layer * 2 + 1)
    page_id = tl.load(p_table + layers * 2 + i_slot)
    return address + page_id * page_stride, offset + i_slot.to(tl.int64) * page_bytes


@jit
def steps_of_units(o_units: tl.tensor, step: tl.constexpr) -> tl.tensor:
    """Steps that a tile of units covers: one for each unit ([B, 1]), or its 8 bytes if a step is a byte ([B, 8])."""
    return o_units[:, None] * 8 + tl.arange(0, 8)[None, :] if step == 1 else o_units[:, None]


@jit
def elements_of_steps(o_steps: tl.tensor, step: tl.constexpr) -> tl.tensor:
    """Offsets in elements, i64: for a step of 16 two neighbouring words ([B, 2], one 128-bit access), else as given."""
    return o_steps.to(tl.int64) * 2 + tl.arange(0, 2)[None, :] if step == 16 else o_steps.to(tl.int64)


@jit
def paged_offsets(
    o_steps: tl.tensor, row_steps: tl.tensor, row_stride_steps: tl.tensor, step: tl.constexpr, dense: tl.constexpr
) -> tl.tensor:
    """Offsets in elements, from the beginning of the page in paged memory; rows may leave gaps."""
    if dense:
        o_paged = elements_of_steps(o_steps, step)
    else:
        o_rows = o_steps // row_steps
        o_columns = o_steps - o_rows * row_steps
        o_paged = elements_of_steps(o_rows.to(tl.int64) * row_stride_steps + o_columns, step)
    return o_paged


@jit
def image_sum(
    b_data: tl.tensor, o_units: tl.tensor, offset: tl.tensor, m_object: tl.tensor, step: tl.constexpr
) -> tl.tensor:
    """Fingerprint sum of a tile of a page's image that begins at byte `offset` of the object: u64[B]."""
    if step == 1:
        b_shifts = (tl.arange(0, 8) * 8).to(tl.uint64)[None, :]
        b_words = tl.sum(b_data.to(tl.uint64) << b_shifts, axis=1)[:, None]
        o_words = o_units[:, None] + offset // 8
        m_words = tl.max(m_object.to(tl.int32), axis=1)[:, None] > 0
    else:
        b_words = b_data
        o_words = elements_of_steps(o_units[:, None], step) + offset // 8
        m_words = m_object
    return words_sum(b_words, o_words, m_words)


def launch_pieces(kernel: Any, pieces: Sequence[Piece], image: Tensor) -> int:
    """Run pack's or unpack's kernel over the pieces of an object; return the object's fingerprint sum.

    Args:
        kernel: `pack_kernel` or `unpack_kernel`; they take the same arguments.
        pieces: All pieces of the object.
        image: The object, u8[n], which the kernel writes or reads; on a GPU it begins at a multiple of 16 bytes.
    """
    fold = bool(pieces) and all(piece.folds for piece in pieces)
    with on_device_of(image):
        sums = [_launch(kernel, piece, image, fold=fold) for piece in pieces]
    return int(torch.cat(sums).sum()) if fold else partial_sum(image)


def _launch(kernel: Any, piece: Piece, image: Tensor, *, fold: bool) -> Tensor:
    layers, step = piece.layers, piece.step
    page_stride, row_stride, _ = layers.views[0].stride()
    tiles = -(-layers.page_bytes // ((16 if step == 16 else 8) * UNITS))
    loops = min(tiles, LOOPS)
    chunks = -(-tiles // loops)
    programs = len(layers.views) * len(piece.page_ids) * chunks
    sums = torch.empty(programs if fold else 0, dtype=torch.int64, device=image.device)
    kernel[(programs,)](
        p_table=piece.table(),
        p_object=image,
        p_sums=sums,
        layers=len(layers.views),
        slots=len(piece.page_ids),
        chunks=chunks,
        loops=loops,
        page_stride=page_stride,
        page_bytes=layers.page_bytes,
        page_steps=layers.page_bytes // step,
        held_steps=layers.held_bytes // step,
        row_steps=layers.row_bytes // step,
        row_stride_steps=row_stride // step,
        step=step,
        dense=piece.dense,
        fold=fold,
        unit_block=UNITS,
    )
    return sums
