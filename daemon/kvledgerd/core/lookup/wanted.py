"""Boundaries at which a state is worth keeping while the rest of a prompt is computed.

States are stored at few boundaries, and where they lie decides the hit rate: where prompts part, at regular distances,
where the same prompt sent again can resume, and at the end.
"""

import math

from kvledger.wire.requests import Acquire
from kvledgerd.core.known_layout import KnownLayout

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
    if _even(known, request, request.tokens) <= chosen:
        return []
    step = known.layout.checkpoint_tokens
    checkpoints = range((chosen // step + 1) * step, request.tokens, step) if step else range(0)
    ends = (request.tokens, request.tokens - max(request.leave, 1))
    junctions = (matched,) if matched < request.tokens else ()
    # The deepest checkpoints, since they serve most prompts that go on like this one
    points = (*checkpoints[-WANTED_MAX:], *junctions, *ends)
    even = dict.fromkeys(_even(known, request, point) for point in points)
    return sorted(point for point in even if point > chosen)[-WANTED_MAX:]


def _even(known: KnownLayout, request: Acquire, position: int) -> int:
    """Return the greatest boundary up to `position` that layer 1 lets pass, 0 if there is none.

    A checkpoint or a junction that no group could end at is worth as much a few tokens before: it stands there, and
    does not go missing.
    """
    return position - position % math.lcm(request.align, known.geometry.even_tokens)
