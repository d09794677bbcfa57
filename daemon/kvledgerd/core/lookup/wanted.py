"""Boundaries at which a state is worth keeping while the rest of a prompt is computed.

States are stored at few boundaries, and where they lie decides the hit rate: where prompts part, at regular distances,
where the same prompt sent again can resume, and at the end.
"""

import math

from kvledger.wire.requests import Acquire
from kvledgerd.core.holdings import KnownLayout

__all__ = ["WANTED_MAX", "wanted"]

WANTED_MAX = 256


def wanted(known: KnownLayout, request: Acquire, chosen: int, matched: int) -> list[int]:
    """Return the boundaries in (chosen, tokens] at which an engine should keep a state, ascending.

    Args:
        known: The asking layout.
        request: The look-up.
        chosen: Best boundary without residue, tokens.
        matched: Tokens of the matched path; a junction if the prompt goes on behind it.
    """
    points = {_usable(known, request, request.tokens), _usable(known, request, request.tokens - max(request.leave, 1))}
    if 0 < matched < request.tokens:
        points.add(matched)
    step = known.layout.checkpoint_tokens
    if step:
        first = (chosen // step + 1) * step
        points.update(range(first, min(request.tokens, first + step * WANTED_MAX), step))
    return [p for p in sorted(points) if p > chosen and _fits(known, request, p)][-WANTED_MAX:]


def _fits(known: KnownLayout, request: Acquire, position: int) -> bool:
    return position % request.align == 0 and known.geometry.uneven_group(position) is None


def _usable(known: KnownLayout, request: Acquire, position: int) -> int:
    """Return the greatest boundary up to `position` that layer 1 lets pass, 0 if there is none."""
    return position - position % math.lcm(request.align, known.geometry.even_tokens)
