"""Belady's MIN (1966): what is used again last goes, or is not let in at all. It needs to know the future."""

from collections.abc import Sequence
from heapq import heappop, heappush

__all__ = ["min_hits"]

_NEVER = 1 << 62


def min_hits(requests: Sequence[Sequence[int]], capacity: int) -> int:
    """Return how many blocks hit, in leading runs, if every choice knew all requests to come."""
    coming = _next_uses(requests)
    held: dict[int, int] = {}  # block to the number of the request that uses it next
    heap: list[tuple[int, int]] = []
    hits = 0
    for request, later in zip(requests, coming, strict=True):
        for block in request:
            if block not in held:
                break
            hits += 1
        # The first block last: of equal next uses the end of a path goes first
        for at in range(len(request) - 1, -1, -1):
            held[request[at]] = later[at]
            heappush(heap, (-later[at], -at * _NEVER - request[at]))
        while len(held) > capacity:
            next_use, packed = heappop(heap)
            block = -packed % _NEVER
            if held.get(block) == -next_use:
                del held[block]
    return hits


def _next_uses(requests: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return, for each block of each request, the number of the next request with this block."""
    known: dict[int, int] = {}
    found: list[list[int]] = []
    for number in range(len(requests) - 1, -1, -1):
        found.append([known.get(block, _NEVER) for block in requests[number]])
        known.update(dict.fromkeys(requests[number], number))
    found.reverse()
    return found
