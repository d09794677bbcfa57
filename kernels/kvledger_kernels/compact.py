"""Compact: move what is live to its new place in the same memory, and fill with zeros what changes its kind.

Formula: for each move, ``memory[target ..][: length] = memory[source ..][: length]``, or zeros if the move has no
source. The moves of one call happen at once, so no byte that one of them writes may be read or written by another; what
must happen in turn is cut into rounds by `rounds`, which is where a run that slides over its own old place becomes
pieces, each as long as the distance it moves. Source: compaction by sliding; nothing here knows what the bytes mean.

Shapes and dtypes: memory u8[n], moves of any length. Byte floor: 2N for a copy, N for zeros. Tolerance: none.

Traps: two programs of one launch run in any order, so an overlap within a round would corrupt bytes now and then;
moves that differ in their lowest address bits need narrow accesses, so aligned ones go in a launch of their own; a
piece shorter than a few KiB costs a launch, so an allocator that slides by less than that had better not.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import torch

from kvledger_kernels.errors import refuse
from kvledger_kernels.moves import MAX_STEPS, as_elements, check_bytes, elements, step_of
from kvledger_kernels.runtime import jit, kernel_serves, on_device_of, tl

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["ZEROS", "Move", "compact", "compact_kernel", "compact_reference", "rounds"]

UNITS = 256  # steps that a program moves at a time
LOOPS = 4  # at most so many times
ZEROS = -1
"""Source of a move that fills with zeros."""


class Move(NamedTuple):
    """One run of bytes that moves.

    Attributes:
        source: First byte, or `ZEROS`.
        target: First byte of its new place.
        length: Bytes.
    """

    source: int
    target: int
    length: int


def rounds(moves: Sequence[Move]) -> list[list[Move]]:
    """Cut moves that happen in turn into rounds in each of which they may happen at once.

    Args:
        moves: Each may read what earlier ones wrote, and may overlap itself.

    Returns:
        The same effect, as lists for one `compact` each.
    """
    found: list[list[Move]] = []
    for piece in (piece for move in moves for piece in _pieces(move)):
        last = found[-1] if found else None
        if last is None or any(_conflict(piece, other) for other in last):
            found.append([piece])
        else:
            last.append(piece)
    return found


def _pieces(move: Move) -> list[Move]:
    """Cut a move that overlaps itself into pieces as long as its distance, nearest to the target first."""
    distance = move.source - move.target
    if move.source == ZEROS or not 0 < abs(distance) < move.length:
        return [move] if distance or move.source == ZEROS else []
    starts = range(0, move.length, abs(distance))
    order = starts if distance > 0 else reversed(starts)
    return [Move(move.source + at, move.target + at, min(abs(distance), move.length - at)) for at in order]


def _meet(one: int, length: int, other: int, size: int) -> bool:
    return one < other + size and other < one + length


def _conflict(one: Move, other: Move) -> bool:
    """Tell whether one of two moves writes what the other reads or writes."""
    if _meet(one.target, one.length, other.target, other.length):
        return True
    reads = other.source != ZEROS and _meet(one.target, one.length, other.source, other.length)
    return reads or (one.source != ZEROS and _meet(other.target, other.length, one.source, one.length))


# --- reference -------------------------------------------------------------------------------------------------------


def compact_reference(memory: Tensor, moves: Sequence[Move]) -> None:
    """Do the moves one after the other; for moves that may happen at once the order does not matter."""
    for source, target, length in moves:
        if source == ZEROS:
            memory[target : target + length] = 0
        else:
            memory[target : target + length].copy_(memory[source : source + length])


# --- kernel ----------------------------------------------------------------------------------------------------------


@jit
def compact_kernel(
    p_moves: tl.tensor,  # i64*[moves, 3]: first step of source and target, steps
    p_memory: tl.tensor,  # u8*
    chunks: tl.tensor,  # programs for each move
    loops: tl.tensor,  # tiles for each program
    step: tl.constexpr,
    unit_block: tl.constexpr,
) -> None:
    """Copy or zero one chunk of one move."""
    i_program = tl.program_id(0)
    i_move = i_program // chunks
    source = tl.load(p_moves + i_move * 3)
    target = tl.load(p_moves + i_move * 3 + 1)
    length = tl.load(p_moves + i_move * 3 + 2)
    p_words = as_elements(p_memory, step)
    for i_loop in range(loops):
        o_steps = (i_program % chunks * loops + i_loop).to(tl.int64) * unit_block
        o_steps = (o_steps + tl.arange(0, unit_block))[:, None]
        m_target = o_steps < length
        b_data = tl.load(p_words + elements(o_steps + source, step), mask=m_target & (source >= 0), other=0)
        tl.store(p_words + elements(o_steps + target, step), b_data, mask=m_target)


# --- launch ----------------------------------------------------------------------------------------------------------


def _launch(memory: Tensor, moves: Sequence[Move], step: int) -> None:
    longest = max(move.length for move in moves) // step
    if longest >= MAX_STEPS:
        refuse("moves", f"have one of {longest * step} bytes", "cut it into moves below 1 GiB")
    tiles = -(-longest // UNITS)
    loops = min(tiles, LOOPS)
    chunks = -(-tiles // loops)
    table = [(source if source == ZEROS else source // step, at // step, size // step) for source, at, size in moves]
    compact_kernel[(len(moves) * chunks,)](
        p_moves=torch.tensor(table, dtype=torch.int64).to(memory.device),
        p_memory=memory,
        chunks=chunks,
        loops=loops,
        step=step,
        unit_block=UNITS,
    )


def _check(memory: Tensor, moves: Sequence[Move]) -> None:
    check_bytes("memory", memory, memory.numel(), memory.device)
    for number, (source, target, length) in enumerate(moves):
        if length < 1 or min(target, source) < ZEROS or target < 0 or max(source, target) + length > memory.numel():
            wrong = f"moves {length} bytes from {source} to {target} in memory of {memory.numel()}"
            refuse(f"moves[{number}]", wrong, "name runs that lie in the memory")
    _check_writes(moves)
    _check_reads(moves)


def _check_writes(moves: Sequence[Move]) -> None:
    ordered = sorted(moves, key=lambda move: move.target)
    for one, other in pairwise(ordered):
        if one.target + one.length > other.target:
            refuse("moves", f"write byte {other.target} twice", "cut them with rounds()")


def _check_reads(moves: Sequence[Move]) -> None:
    """Refuse a move that reads what a move writes; both are sorted, so that one pass finds it."""
    writes = sorted((move.target, move.target + move.length) for move in moves)
    reads = sorted((move.source, move.source + move.length) for move in moves if move.source != ZEROS)
    at = 0
    for start, end in reads:
        while at < len(writes) and writes[at][1] <= start:
            at += 1
        if at < len(writes) and writes[at][0] < end:
            refuse("moves", f"read byte {max(start, writes[at][0])} and write it", "cut them with rounds()")


def compact(memory: Tensor, moves: Sequence[Move]) -> None:
    """Move runs of bytes within one memory, all at once.

    Args:
        memory: u8[n], for example an arena or a device pool.
        moves: What goes where; none may write what another one reads or writes.

    Raises:
        KernelArgumentError: A move lies outside the memory, or two of them meet; nothing has been written then.
    """
    _check(memory, moves)
    if not kernel_serves(memory):
        compact_reference(memory, moves)
        return
    steps: dict[int, list[Move]] = {}
    for move in moves:
        numbers = [number for number in move if number != ZEROS]
        steps.setdefault(step_of(*numbers, memory.data_ptr()), []).append(move)
    with on_device_of(memory):
        for step, alike in steps.items():
            _launch(memory, alike, step)
