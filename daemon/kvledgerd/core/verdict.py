"""The verdict: at which boundaries a request may resume, and what cut the others.

A candidate is every block boundary along the matched path and every residue boundary that hangs on it. Each is judged
layer by layer, cheap to dear, and falls at the first that fails:

1. whole block: within what the caller leaves to us, aligned as the caller asks, no group ends in the middle of a unit;
2. identity: what is stored along the path belongs to the very layout that asks;
3. state: every group of every kind is recoverable there (`kvledgerd.core.kinds`), or may be replayed;
4. bytes: handles are built from verified copies only (`kvledgerd.core.decide_lookup` verifies what was adopted), and
   what is gone because its bytes were wrong is told from what was merely dropped.

Judging changes nothing and draws on nothing but the state and the request.
"""

from typing import NamedTuple

from kvledger.verdict import Code, Cut, Layer
from kvledger.wire.requests import Acquire
from kvledgerd.core.choice import OFFERS_MAX, Judged, best_blocks
from kvledgerd.core.court import Court
from kvledgerd.core.cuts import beyond, distinct, joined
from kvledgerd.core.device import NO_DEVICE, Sight
from kvledgerd.core.holdings import KnownLayout
from kvledgerd.core.index import Cell, Node
from kvledgerd.core.state import State

__all__ = ["Judgement", "judge"]


class Judgement(NamedTuple):
    """A verdict before it becomes events and a reply.

    Attributes:
        path: Matched nodes.
        cells: What the layout keeps of each of them.
        hash_tokens: What a plain hash cache would have claimed.
        offers: What may be handed out, best first.
        restorable: Positions of all block boundaries at which the request may resume, ascending.
        coverage: For each group, the deepest block boundary at which it alone is recoverable.
        cuts: Why the rest is not usable, longest first.
    """

    path: list[Node]
    cells: list[Cell | None]
    hash_tokens: int
    offers: list[Judged]
    restorable: list[int]
    coverage: list[int]
    cuts: list[Cut]


def judge(state: State, known: KnownLayout, request: Acquire, sight: Sight = NO_DEVICE) -> Judgement:
    """Judge a look-up.

    Args:
        state: The cache.
        known: The asking layout.
        request: The look-up.
        sight: What the asking engine has on its own devices.

    Returns:
        The verdict; its offers are sorted, its cuts are not yet shortened.
    """
    court = Court(state, known, request, sight)
    at_blocks = court.judge_blocks()
    blocks = [r for r in at_blocks if isinstance(r, Judged)]
    least = max(request.minimum, 1)
    kept = best_blocks([b for b in blocks if b.position - b.replay >= least])
    floor = kept[-1].position - kept[-1].replay if kept else 0
    at_residues = court.judge_residues(floor)
    residues = [r for r in at_residues if isinstance(r, Judged) and r.position - r.replay > max(floor, least - 1)]
    offers = sorted(kept + sorted(residues, key=Judged.rank)[:OFFERS_MAX], key=Judged.rank)
    best = next((o.position for o in offers if not o.residue), 0)
    cuts = joined([r for r in at_blocks if isinstance(r, Cut) and r.end > best])
    cuts += distinct([r for r in at_residues if isinstance(r, Cut) and r.end > best])
    cuts += [
        Cut(0, b.position, Layer.BLOCK, "", None, Code.MINIMUM, f"the caller wants at least {request.minimum}")
        for b in blocks[-1:]
        if not offers
    ]
    return Judgement(
        court.path,
        court.memory.cells,
        _hash_tokens(court),
        offers,
        [b.position for b in blocks],
        court.coverage(),
        cuts + beyond(court, known.layout.block_tokens, offers),
    )


def _hash_tokens(court: Court) -> int:
    """Return what a plain hash cache would claim: blocks with entries, or where there are only states the deepest."""
    path, size = court.path, court.block_tokens
    if not court.geometry.rows:
        return max((n.depth for n in path if any(map(court.keeps, (*n.cells, *n.boundaries)))), default=0) * size
    if court.memory.whole:
        return len(path) * size
    for depth, node in enumerate(path):
        if not any(map(court.keeps, node.cells)):
            return depth * size
    return len(path) * size
