"""What a plain cache of blocks is, and how hits are counted: the leading run of a request's blocks alone.

A request's blocks are looked at first and touched afterwards, last block first, so that a policy which goes by recency
gives up the end of a path before its beginning. The standard policies know nothing else of paths.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

__all__ = ["Policy", "hits_of"]


class Policy(Protocol):
    """A cache of so many blocks."""

    def __contains__(self, block: object) -> bool:
        """Tell whether it holds a block."""

    def touch(self, block: int) -> None:
        """Use a block, or let it in and another go."""


def hits_of(policy: Policy, requests: Iterable[Sequence[int]], tick: Callable[[], None] | None = None) -> int:
    """Return how many blocks of all requests hit."""
    hits = 0
    for request in requests:
        for block in request:
            if block not in policy:
                break
            hits += 1
        for block in reversed(request):
            policy.touch(block)
        if tick is not None:
            tick()
    return hits
