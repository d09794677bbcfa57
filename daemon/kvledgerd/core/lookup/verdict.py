"""The verdict: at which boundaries a request may resume, and what cut the others.

A candidate is every block boundary along the matched path and every residue boundary that hangs on it. Each is judged
layer by layer, cheap to dear, and falls at the first that fails:

1. whole block: within what the caller leaves to us, aligned as the caller asks, no group ends in the middle of a unit;
2. identity: what is stored along the path belongs to the very layout that asks, or converts into it without loss
   (`kvledgerd.core.lookup.converted`);
3. state: every group of every kind is recoverable there (`kvledgerd.core.kinds`), or may be replayed;
4. bytes: handles are built from verified copies only (`kvledgerd.core.lookup.decide_verification`), and
   what is gone because its bytes were wrong is told from what was merely dropped.

Judging changes nothing and draws on nothing but the state and the request.
"""

from kvledger.verdict import Code, Cut, Layer
from kvledger.wire.requests import Acquire
from kvledgerd.core.device_pools.device import NO_DEVICE, Sight
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.lookup.choice import OFFERS_MAX, Judged
from kvledgerd.core.lookup.converted import alone, merged, others
from kvledgerd.core.lookup.court import Court
from kvledgerd.core.lookup.cuts import beyond, distinct, joined
from kvledgerd.core.lookup.judgement import Judgement
from kvledgerd.core.state import State

__all__ = ["judge"]


Results = list[Judged | Cut]


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
    own = _judge_own(state, known, request, sight)
    convertible = others(state, known, own.path) if request.restore else []
    if not convertible:
        return own
    return merged(state, request, own, [_judge_own(state, other, alone(request), NO_DEVICE) for other in convertible])


def _judge_own(state: State, known: KnownLayout, request: Acquire, sight: Sight) -> Judgement:
    """Judge by what is stored under one layout."""
    court = Court(state, known, request, sight)
    retired = known.epoch.why_unusable(known.layout)
    if retired:
        return _unusable(court, Code.EPOCH_RETIRED, retired)
    choice, least = court.choice, max(request.minimum, 1)
    at_blocks = court.judge_blocks()
    blocks = _passed(at_blocks, 1)
    enough = blocks if least == 1 else _passed(at_blocks, least)
    dear = choice.dear(enough, enough)
    left_out = {b.position: None for b in dear}
    kept = choice.kept([b for b in enough if b.position not in left_out] if dear else enough)
    offers, at_residues = kept, court.judge_residues(choice.floor(kept)) if court.has_residues else []
    if at_residues:
        behind = _passed(at_residues, least)
        residues = sorted([r for r in behind if choice.beats(r, kept)], key=choice.rank)
        offers = sorted(kept + residues[:OFFERS_MAX], key=choice.rank)
        dear += choice.dear(behind, enough)
    coverage = court.coverage()
    return Judgement(
        court.path,
        court.memory.cells,
        _hash_tokens(court),
        offers,
        [b.position for b in blocks],
        coverage,
        court.coverage(ready=True) if court.disk is not None else coverage,
        _cuts(court, at_blocks, at_residues, dear, offers),
    )


def _unusable(court: Court, code: Code, why: str) -> Judgement:
    """Return the verdict on a layout under which nothing can be used, whatever the tokens are."""
    cuts = [Cut(0, court.request.tokens, Layer.IDENTITY, "", None, code, why[:480])]
    coverage = [0] * len(court.geometry.groups)
    return Judgement(court.path, court.memory.cells, _hash_tokens(court), [], [], coverage, coverage, cuts)


def _passed(results: Results, least: int) -> list[Judged]:
    """Return what may be resumed at and saves so many tokens."""
    return [r for r in results if isinstance(r, Judged) and r.saved >= least]


def _cuts(
    court: Court, at_blocks: Results, at_residues: Results, dear: list[Judged], offers: list[Judged]
) -> list[Cut]:
    """Return why what lies behind the best block boundary is not usable."""
    best = next((o.position for o in offers if not o.residue), 0)
    too_dear = {(j.position, j.residue_hash): court.too_dear(j) for j in dear}
    residues = _fallen(at_residues, too_dear, best) if at_residues else []
    cuts = joined(_fallen(at_blocks, too_dear, best)) + distinct(residues + beyond(court, offers))
    if not offers:
        little = [
            j for j in (*_passed(at_residues, 1)[::-1], *_passed(at_blocks, 1)) if j.saved < court.request.minimum
        ]
        cuts += [court.too_little(judged) for judged in little[-1:]]
    return cuts


def _fallen(results: Results, too_dear: dict[tuple[int, bytes], Cut], best: int) -> list[Cut]:
    """Return the cuts behind a position, also of what passed and is too dear."""
    if too_dear:
        results = [too_dear.get((r.position, r.residue_hash), r) if isinstance(r, Judged) else r for r in results]
    return [r for r in results if isinstance(r, Cut) and r.end > best]


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
