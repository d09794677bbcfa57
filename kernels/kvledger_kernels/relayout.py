"""Relayout: pages of one format become pages of another that holds the same rows, without loss.

Formula. Row ``n`` of a layer lies in page ``n // rows`` at place ``n % rows``; a format says for each field of a row
where it begins in a page and how far it is from row to row (`kvledger.page_formats`). For every layer, row and field::

    target[layer][n // R'][base' + (n % R') * stride' ..] = source[layer][n // R][base + (n % R) * stride ..]

with primes for the target. Bytes of the target that belong to no field are zero: padding behind a page, what lies
between rows at a pitch, rows of the last page that there are none of. Source: the formats are those of the engines
named in their files; the copy follows from them.

It turns block-split pages into interleaved rows and back, NHD into HND, one pitch or number of rows in a page into
another. Fields that are neighbours on both sides move as one.

Shapes and dtypes: source u8[layers * pages * page_bytes], target alike; any dtype, taken as bytes. Byte floor: 2N.
Tolerance: none, bit for bit; there and back is the same image, padding zeroed.

Traps: a page that keeps keys before scales can not be cut by rows, so a piece of a page is no object of the other
format; pages of the target are fewer or more than those of the source, so an object's length changes; a field of 4 or
8 bytes, such as scales, moves narrow however wide the others are, so each width has a launch of its own; the two
buffers must not overlap.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvledger.page_formats import PageFormat
from kvledger_kernels.errors import refuse
from kvledger_kernels.moves import MAX_STEPS, as_elements, check_bytes, elements, overlap, step_of
from kvledger_kernels.runtime import jit, kernel_serves, on_device_of, tl

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["Conversion", "relayout", "relayout_kernel", "relayout_reference"]

UNITS = 256  # steps that a program moves at a time
LOOPS = 4  # at most so many times
NOTHING = -1  # where a run has no source and is zeroed


class Run(NamedTuple):
    """Neighbouring bytes of each row that keep their order, or bytes of the target that are zeroed.

    Attributes:
        rows: How often they stand in a page of the target.
        bytes: How many.
        source: Byte of a source page at which they begin, `NOTHING` for zeros.
        source_stride: Bytes from row to row there.
        target: Byte of a target page at which they begin.
        target_stride: Bytes from row to row there.
    """

    rows: int
    bytes: int
    source: int
    source_stride: int
    target: int
    target_stride: int


@dataclass(frozen=True)
class Conversion:
    """From one format to another, for some layers.

    Attributes:
        source: The format that is read.
        target: The format that is written.
        layers: Layers in the object.
        rows: Rows of each layer; they fill pages from the first on.
    """

    source: PageFormat
    target: PageFormat
    layers: int
    rows: int

    def __post_init__(self) -> None:
        if (self.source.row, self.source.fields) != (self.target.row, self.target.fields):
            wrong = f"holds other rows than {self.source.name}"
            refuse("target", f"{self.target.name} {wrong}", "name formats of the same row and sizes")
        if self.layers < 1 or self.rows < 1:
            refuse("rows", f"are {self.rows} in {self.layers} layers", "convert at least one row of one layer")
        for form in (self.source, self.target):
            if form.page_bytes < form.held_bytes:
                refuse("page_bytes", f"are {form.page_bytes} for {form.held_bytes}", "pass the padded size of a page")

    def pages(self, form: PageFormat) -> int:
        """Return the pages of a layer in one of the two formats."""
        return -(-self.rows // form.rows)

    def object_bytes(self, form: PageFormat) -> int:
        """Return the bytes of the object in one of the two formats."""
        return self.layers * self.pages(form) * form.page_bytes

    def runs(self) -> list[Run]:
        """Return what moves and what is zeroed in each page of the target."""
        source, target = self.source.places(), self.target.places()
        found: list[Run] = []
        for number in (field for section in self.target.sections for field in section):
            one, other = source[number], target[number]
            last = found[-1] if found else None
            if (
                last
                and (last.source + last.bytes, last.source_stride) == one[:2]
                and (last.target + last.bytes, last.target_stride) == other[:2]
            ):
                found[-1] = last._replace(bytes=last.bytes + one.bytes)
            else:
                found.append(Run(self.target.rows, one.bytes, *one[:2], *other[:2]))
        return [*found, *self._gaps()]

    def _gaps(self) -> Iterator[Run]:
        form = self.target
        if form.pitch > sum(form.fields):
            yield Run(form.rows, form.pitch - sum(form.fields), NOTHING, 0, sum(form.fields), form.pitch)
        if form.page_bytes > form.held_bytes:
            yield Run(1, form.page_bytes - form.held_bytes, NOTHING, 0, form.held_bytes, 0)


# --- reference -------------------------------------------------------------------------------------------------------


def relayout_reference(conversion: Conversion, source: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
    """Convert an object, field by field; it serves where there is no GPU.

    Args:
        conversion: The formats.
        source: u8[conversion.object_bytes(conversion.source)].
        target: u8[conversion.object_bytes(conversion.target)], all of it written.
    """
    target[:] = 0
    layered = source.reshape(conversion.layers, -1), target.reshape(conversion.layers, -1)
    for run in conversion.runs():
        if run.source == NOTHING:
            continue
        for read, written in zip(*layered, strict=True):
            _copy_run(conversion, run, read, written)


def _copy_run(conversion: Conversion, run: Run, source: NDArray[np.uint8], target: NDArray[np.uint8]) -> None:
    rows = conversion.rows
    read = _strided(source, conversion.source, (run.source, run.source_stride, run.bytes))
    written = _strided(target, conversion.target, (run.target, run.target_stride, run.bytes))
    if read.shape == written.shape and rows == read.shape[0] * read.shape[1]:
        written[...] = read
        return
    moved = read.reshape(-1, run.bytes)[:rows]
    whole, rest = divmod(rows, written.shape[1])
    written[:whole] = moved[: rows - rest].reshape(whole, written.shape[1], run.bytes)
    if rest:
        written[whole, :rest] = moved[rows - rest :]


def _strided(layer: NDArray[np.uint8], form: PageFormat, place: tuple[int, int, int]) -> NDArray[np.uint8]:
    """View one run of a layer as [pages, rows, bytes]."""
    base, stride, length = place
    shape = (len(layer) // form.page_bytes, form.rows, length)
    return np.lib.stride_tricks.as_strided(layer[base:], shape, (form.page_bytes, stride, 1))


# --- kernel ----------------------------------------------------------------------------------------------------------


@jit
def relayout_kernel(
    p_runs: tl.tensor,  # i64*[runs, 4]: first step and stride in the source, the same in the target
    p_source: tl.tensor,  # u8*
    p_target: tl.tensor,  # u8*
    runs: tl.tensor,
    chunks: tl.tensor,  # programs for each run of a page
    loops: tl.tensor,  # tiles for each program
    source_pages: tl.tensor,  # pages of a layer
    target_pages: tl.tensor,
    source_rows: tl.tensor,  # rows of a page
    target_rows: tl.tensor,
    source_steps: tl.tensor,  # steps of a page
    target_steps: tl.tensor,
    rows: tl.tensor,  # rows of a layer
    run_rows: tl.tensor,
    run_steps: tl.tensor,
    step: tl.constexpr,
    unit_block: tl.constexpr,
) -> None:
    """Copy or zero one chunk of one run of one page of the target."""
    i_program = tl.program_id(0)
    i_run = (i_program // chunks) % runs
    i_page = i_program // chunks // runs
    i_layer = i_page // target_pages
    i_first = (i_page % target_pages).to(tl.int64) * target_rows
    source_first = tl.load(p_runs + i_run * 4)
    source_stride = tl.load(p_runs + i_run * 4 + 1)
    target_first = tl.load(p_runs + i_run * 4 + 2)
    target_stride = tl.load(p_runs + i_run * 4 + 3)
    p_read = as_elements(p_source, step)
    p_written = as_elements(p_target, step)
    i_source_page = i_layer.to(tl.int64) * source_pages
    i_target = i_page.to(tl.int64) * target_steps + target_first
    for i_loop in range(loops):
        o_steps = (i_program % chunks * loops + i_loop) * unit_block + tl.arange(0, unit_block)[:, None]
        o_rows = o_steps // run_steps
        o_columns = (o_steps - o_rows * run_steps).to(tl.int64)
        o_all = i_first + o_rows
        o_pages = o_all // source_rows
        o_source = (i_source_page + o_pages) * source_steps + source_first + o_columns
        o_source += (o_all - o_pages * source_rows) * source_stride
        o_target = i_target + o_rows.to(tl.int64) * target_stride + o_columns
        m_target = o_rows < run_rows
        m_source = m_target & (o_all < rows) & (source_first >= 0)
        b_data = tl.load(p_read + elements(o_source, step), mask=m_source, other=0)
        tl.store(p_written + elements(o_target, step), b_data, mask=m_target)


# --- launch ----------------------------------------------------------------------------------------------------------


def _launch(conversion: Conversion, runs: list[Run], source: Tensor, target: Tensor) -> None:
    """Move runs of one shape."""
    import torch  # noqa: PLC0415 - the daemon converts host buffers without ever loading torch

    first, one, other = runs[0], conversion.source, conversion.target
    places = [[*run[2:]] if run.source != NOTHING else [0, 0, *run[4:]] for run in runs]
    numbers = [number for place in places for number in place]
    addresses = (source.data_ptr(), target.data_ptr())
    step = step_of(first.bytes, one.page_bytes, other.page_bytes, *numbers, *addresses)
    steps = [
        [number // step for number in place] if run.source != NOTHING else [NOTHING, 0, *(n // step for n in place[2:])]
        for run, place in zip(runs, places, strict=True)
    ]
    if max(first.rows * first.bytes, one.page_bytes, other.page_bytes) // step >= MAX_STEPS:
        refuse("page_bytes", "are too much for one page", "cut it into pages below 1 GiB")
    tiles = -(-first.rows * first.bytes // (step * UNITS))
    loops = min(tiles, LOOPS)
    chunks = -(-tiles // loops)
    pages = conversion.layers * conversion.pages(other)
    relayout_kernel[(pages * len(runs) * chunks,)](
        p_runs=torch.tensor(steps, dtype=torch.int64).to(source.device),
        p_source=source,
        p_target=target,
        runs=len(runs),
        chunks=chunks,
        loops=loops,
        source_pages=conversion.pages(one),
        target_pages=conversion.pages(other),
        source_rows=one.rows,
        target_rows=other.rows,
        source_steps=one.page_bytes // step,
        target_steps=other.page_bytes // step,
        rows=conversion.rows,
        run_rows=first.rows,
        run_steps=first.bytes // step,
        step=step,
        unit_block=UNITS,
    )


def relayout(conversion: Conversion, source: Tensor, target: Tensor) -> None:
    """Convert an object into another format.

    Args:
        conversion: The formats, and how many rows and layers the object holds.
        source: u8[conversion.object_bytes(conversion.source)], layer after layer.
        target: u8[conversion.object_bytes(conversion.target)] on the same device; all of it is written.

    Raises:
        KernelArgumentError: A buffer has the wrong dtype, shape, size or device, or they overlap; nothing has been
            written then.
    """
    check_bytes("source", source, conversion.object_bytes(conversion.source), source.device)
    check_bytes("target", target, conversion.object_bytes(conversion.target), source.device)
    if overlap(source, target):
        refuse("target", "shares memory with the source", "convert into memory of its own")
    if not kernel_serves(source):
        relayout_reference(conversion, source.numpy(), target.numpy())
        return
    shapes: dict[tuple[int, int], list[Run]] = {}
    for run in conversion.runs():
        shapes.setdefault((run.rows, run.bytes), []).append(run)
    with on_device_of(source):
        for runs in shapes.values():
            _launch(conversion, runs, source, target)
