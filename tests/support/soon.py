"""Processor seconds of a piece of work, which a machine that others share can not tell by a single try."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
TRIES = 3


def soon(work: Callable[..., T], limit: float, prepare: Callable[[], Sequence[Any]] = tuple) -> T:
    """Do what may take so many processor seconds at most, and return what comes of it.

    Who takes longer may try again from the beginning: the collector may come in between, and a processor whose other
    half is busy is slower by as much. What is slow by itself fails each time.

    Args:
        work: What is timed.
        limit: Processor seconds.
        prepare: Makes what `work` is given, anew for each try.
    """
    took = []
    for _ in range(TRIES):
        given = prepare()
        began = time.process_time()
        found = work(*given)
        took.append(time.process_time() - began)
        if took[-1] < limit:
            return found
    raise AssertionError(f"{min(took):.3f} processor seconds, {limit} were allowed")
