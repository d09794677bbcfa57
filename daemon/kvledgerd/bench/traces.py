"""Hit rates on a request trace: the real core beside LRU and the best standard policy, at five capacities.

Nothing here depends on the machine, so one replay is a measurement.
"""

from collections.abc import Iterator
from typing import Final

from kvledgerd.bench.figures import Goal, Measured, Pair, Sense
from kvledgerd.bench.scale import Scale
from kvledgerd.trace.comparison import compare
from kvledgerd.trace.layouts import PLAIN, trace_layout
from kvledgerd.trace.requests import read_trace

__all__ = ["traces"]

_BLOCK_TOKENS: Final = 512
_OF_LRU: Final = {1: 1.7, 2: 1.5, 5: 1.03, 10: 1.01, 25: 0.99}
_OF_BEST: Final = Goal(Sense.AT_LEAST, 0.97)


def traces(scale: Scale) -> Iterator[Measured]:
    """Replay the trace that was named, if one was: capacities in percent of its unique blocks."""
    if scale.trace is None:
        return
    trace = read_trace(scale.trace, _BLOCK_TOKENS)
    for share, bound in _OF_LRU.items():
        blocks = max(1, trace.unique * share // 100)
        found = compare(trace, trace_layout(PLAIN, _BLOCK_TOKENS), share, blocks)
        name = f"hit rate at {share} % of the blocks"
        yield Measured(name, "", "LRU", Goal(Sense.AT_LEAST, bound), [Pair(found.hit, found.lru)])
        yield Measured(f"{name}, best", "", found.best, _OF_BEST, [Pair(found.hit, found.best_standard)])
