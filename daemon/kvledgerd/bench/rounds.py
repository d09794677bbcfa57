"""Measuring two things in turns, so that both see the same machine."""

import gc
import time
from collections.abc import Callable
from statistics import median

from kvledgerd.bench.figures import Pair

__all__ = ["in_turns", "median_seconds", "speeds", "timed"]


def timed(work: Callable[[], object]) -> float:
    """Return how long one call took, seconds."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def median_seconds(work: Callable[[], object], calls: int) -> float:
    """Return the median of the seconds that each of several calls took."""
    return median(timed(work) for _ in range(calls))


def in_turns(ours: Callable[[], float], beside: Callable[[], float], rounds: int) -> list[Pair]:
    """Return measurements of both, each pair made one right after the other; one pair before them warms up.

    The collector rests meanwhile: what it finds here is the benchmark's own garbage.
    """
    ours(), beside()
    gc.collect()
    gc.disable()
    try:
        return [Pair(ours(), beside()) for _ in range(rounds)]
    finally:
        gc.enable()


def speeds(pairs: list[Pair], amount: float) -> list[Pair]:
    """Return how much of `amount` a second each measurement in seconds stands for."""
    return [Pair(amount / pair.ours, amount / pair.beside) for pair in pairs]
