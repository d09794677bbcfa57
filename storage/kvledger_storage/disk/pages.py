"""4 KiB pages: the unit of direct I/O, so of everything in a segment.

Direct reads need address, offset and length aligned at once. Headers and last partial pages therefore pass through a
page of our own, and only whole pages of a payload move straight between file and arena.
"""

import mmap
from collections.abc import Callable, Sequence

import numpy as np

__all__ = [
    "PAGE",
    "ZERO_PAGE",
    "aligned_copy",
    "as_bytes",
    "is_aligned",
    "new_bytes",
    "new_pages",
    "padded",
    "tail_of",
    "transfer",
]

PAGE = 4096
ZERO_PAGE = bytes(PAGE)


def padded(length: int) -> int:
    """Return `length` bytes rounded up to whole pages."""
    return -(-length // PAGE) * PAGE


def tail_of(length: int) -> int:
    """Return how many of `length` bytes stand in the last, partial page (0 if there is none)."""
    return length % PAGE


def new_pages(count: int) -> memoryview:
    """Return `count` zeroed pages of page-aligned, writable memory that no forked child shares."""
    return memoryview(mmap.mmap(-1, count * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def new_bytes(length: int) -> memoryview:
    """Return `length` bytes at the beginning of such pages, so that direct I/O reads and writes them."""
    return new_pages(max(1, padded(length) // PAGE))[:length]


def is_aligned(view: memoryview) -> bool:
    """Return whether `view`, a contiguous view of bytes, starts at a page boundary; an empty one does."""
    if not len(view):
        return True
    address: int = np.frombuffer(view, dtype=np.uint8).__array_interface__["data"][0]
    return address % PAGE == 0


def as_bytes(view: memoryview) -> memoryview:
    """Return contiguous `view`, of whatever format and shape, as single bytes."""
    return view if view.format == "B" and view.ndim == 1 else view.cast("B")


def aligned_copy(view: memoryview) -> memoryview:
    """Return the bytes of `view` in page-aligned memory of the same length."""
    copy = new_bytes(len(view))
    copy[:] = view
    return copy


def transfer(step: Callable[[list[memoryview], int], int], buffers: Sequence[memoryview], offset: int) -> int:
    """Move all bytes of `buffers` to or from `offset` with `step`, which may do less than asked.

    Ends when everything is moved or when a step moves nothing (end of file), so it can not loop without progress.

    Returns:
        Bytes moved in all.
    """
    left = [view for view in buffers if len(view)]
    done = 0
    while left:
        moved = step(left, offset + done)
        if moved <= 0:
            break
        done += moved
        left = _advance(left, moved)
    return done


def _advance(buffers: list[memoryview], moved: int) -> list[memoryview]:
    for index, view in enumerate(buffers):
        if moved < len(view):
            return [view[moved:], *buffers[index + 1 :]]
        moved -= len(view)
    return []
