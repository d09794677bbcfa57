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

from bisect import insort
from collections.abc import Iterable
from typing import NamedTuple

from kvledger.kinds import Form, Kind
from kvledger.verdict import Code, Cut, Exactness, Layer
from kvledger.wire.requests import Acquire
from kvledgerd.core.holdings import KnownLayout
from kvledgerd.core.identity import foreign_layout, mismatch
from kvledgerd.core.index import Cell, Node
from kvledgerd.core.kinds import RULES
from kvledgerd.core.kinds.rules import Candidate
from kvledgerd.core.look import Look
from kvledgerd.core.residues import by_worth
from kvledgerd.core.state import State

__all__ = ["OFFERS_MAX", "Judged", "Judgement", "judge"]

OFFERS_MAX = 64


class Judged(NamedTuple):
    """A boundary at which the request may resume."""

    position: int
    node: Node
    residue: int
    residue_hash: bytes
    cell: Cell | None
    exactness: Exactness
    replay: int
    ready: bool

    def rank(self) -> tuple[int, bool, bool, int]:
        """Return the order of choice: most tokens that need no computing, ties to exact, then to what is ready."""
        return (self.replay - self.position, self.exactness is not Exactness.EXACT, not self.ready, self.residue)


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


class _Judge:
    def __init__(self, state: State, known: KnownLayout, request: Acquire) -> None:
        self.state = state
        self.known = known
        self.request = request
        self.geometry = known.geometry
        self.block_tokens = known.layout.block_tokens
        self.limit = request.tokens - request.leave
        self.path = known.tree.match(request.hashes)
        self.memory = Look(known, self.path, use_disk=False)
        self.boundaries = self._boundaries()
        self.at_blocks = {depth: cell for depth, cell in self.boundaries if not cell.residue}
        self.disk = Look(known, self.path, use_disk=True) if self._partly_on_disk() else None
        self.foreign = self._first_foreign()
        looks = (self.memory, self.disk or self.memory)
        self.turns = {depth: None for look in looks for depth in (*look.covered.values(), *look.coupled.values())}
        if self.foreign is not None:
            self.turns[self.foreign[0]] = None

    def _boundaries(self) -> list[tuple[int, Cell]]:
        """Return depth and cell of every boundary that the layout keeps along the path, the root's included."""
        number = self.known.number
        found = [(0, cell) for cell in self.known.tree.root.boundaries if cell.layout == number]
        found += [(node.depth, cell) for node in self.path for cell in node.boundaries if cell.layout == number]
        return found

    def _partly_on_disk(self) -> bool:
        if [None for cell in self.memory.cells if cell is not None and cell.disk & ~cell.memory]:
            return True
        return any(cell.disk & ~cell.memory for _, cell in self.boundaries)

    def _first_foreign(self) -> tuple[int, KnownLayout] | None:
        """Return the first block at which another layout keeps something and this one nothing.

        A layout without rows keeps nothing at most blocks; there `_identity` looks at the boundary alone.
        """
        if not self.geometry.rows or None not in self.memory.cells:
            return None
        for block, cell in enumerate(self.memory.cells):
            if cell is None:
                other = foreign_layout(self.state.layouts, self.path[block], self.known)
                if other is not None:
                    return block, other
        return None

    def block(self, depth: int) -> tuple[Candidate, Node]:
        """Return the boundary at the end of a block, counted from 1."""
        return Candidate(depth * self.block_tokens, depth, self.at_blocks.get(depth)), self.path[depth - 1]

    def judge_residues(self, floor: int) -> list[Judged | Cut]:
        """Judge residues that stand for more than `floor` tokens, until no other could be among the best."""
        request, ranks, results = self.request, list[tuple[int, bool, bool, int]](), list[Judged | Cut]()
        inside, outside = by_worth(self.boundaries, self.block_tokens, floor, self.limit, request.align)
        for at in inside:
            best = (-at.position, False, False, at.position - at.depth * self.block_tokens)
            if len(ranks) >= OFFERS_MAX and ranks[OFFERS_MAX - 1] <= best:
                break
            found = self.judge(at, self.memory.node(at.depth))
            if isinstance(found, Judged):
                insort(ranks, found.rank())
            results.append(found)
        # Neighbours are joined later, so what comes first in the prompt goes first
        return results[::-1] + [self.judge(at, self.memory.node(at.depth)) for at in reversed(outside)]

    def judge_blocks(self) -> list[Judged | Cut]:
        """Judge block boundaries in order; of a run that falls for one reason only the deepest is judged."""
        results: list[Judged | Cut] = []
        first = 0
        for last in self._ends_of_runs():
            found = self.judge(*self.block(last))
            if isinstance(found, Cut):
                start = first * self.block_tokens
                results.append(Cut(start, found.end, found.layer, found.group, found.kind, found.code, found.detail))
            else:
                results += [self.judge(*self.block(depth)) for depth in range(first + 1, last)]
                results.append(found)
            first = last
        return results

    def _ends_of_runs(self) -> Iterable[int]:
        """Return depths of block boundaries so that nothing a verdict looks at differs between one and the next.

        What may differ is a boundary's own cell, whether a group still reaches so far, and whether the caller leaves so
        many tokens to us.
        """
        deepest = len(self.path)
        alike = self.geometry.rows and self.geometry.alike_at_blocks and not self.geometry.windows
        if not alike or self.request.align != 1:
            return range(1, deepest + 1)
        ends = {deepest: None, self.limit // self.block_tokens: None} | self.turns
        for depth in self.at_blocks:
            ends |= {depth - 1: None, depth: None}
        return sorted(depth for depth in ends if 0 < depth <= deepest)

    def judge(self, at: Candidate, node: Node) -> Judged | Cut:
        """Judge one candidate through the layers."""
        early = self._whole_block(at) or self._identity(at)
        if early is not None:
            return early
        found = self._state(self.memory, at, node, ready=True)
        if isinstance(found, Judged) or self.disk is None:
            return found
        on_disk = self._state(self.disk, at, node, ready=False)
        if isinstance(on_disk, Judged) and not self.request.restore:
            detail = f"complete at {at.position} with what lies on disk"
            return self._cut(at, Layer.STATE, None, Code.ON_DISK, detail)
        return on_disk

    def _whole_block(self, at: Candidate) -> Cut | None:
        if at.position > self.limit:
            detail = f"at most {self.limit} of {self.request.tokens} tokens may be reused"
            return self._cut(at, Layer.BLOCK, None, Code.LEAVE, detail)
        if at.position % self.request.align:
            detail = f"the caller's alignment is {self.request.align}"
            return self._cut(at, Layer.BLOCK, None, Code.ALIGNMENT, detail)
        uneven = self.geometry.uneven_group(at.position)
        if uneven is not None:
            unit = self.geometry.unit_tokens(uneven)
            return self._cut(at, Layer.BLOCK, uneven, Code.UNEVEN, f"no multiple of {unit} tokens")
        return None

    def _identity(self, at: Candidate) -> Cut | None:
        node = self.memory.node(at.depth)
        if at.cell is not None:
            # This layout stored a boundary here: what it lacks by now was dropped, whatever others keep in its place
            return None
        other = self.foreign[1] if self.foreign is not None and self.foreign[0] < at.depth else None
        if not self.geometry.rows and node.cell(self.known.number) is None:
            other = foreign_layout(self.state.layouts, node, self.known)
        if other is None:
            return None
        code, detail = mismatch(other.layout, self.known.layout)
        return self._cut(at, Layer.IDENTITY, None, code, detail)

    def _state(self, look: Look, at: Candidate, node: Node, *, ready: bool) -> Judged | Cut:
        replay, exactness = 0, Exactness.EXACT
        for group in (*self.geometry.rows, *self.geometry.windows, *self.geometry.snapshots):
            spec = self.geometry.groups[group]
            short = RULES[spec.kind].shortfall(look, group, at)
            if short is None:
                continue
            tokens, how = self._replay(group)
            if not 0 < tokens < at.position:
                if self._damaged(look, group, at):
                    detail = f"{short.detail}, since its bytes were not the committed ones"
                    return self._cut(at, Layer.BYTES, group, Code.BYTES_DAMAGED, detail)
                return self._cut(at, Layer.STATE, group, short.code, short.detail)
            replay = max(replay, tokens)
            exactness = Exactness.APPROX if Exactness.APPROX in {how, exactness} else how
        residue = at.cell.residue if at.cell is not None else 0
        chain = at.cell.residue_hash if at.cell is not None else b""
        return Judged(at.position, node, residue, chain, at.cell, exactness, replay, ready)

    def _damaged(self, look: Look, group: int, at: Candidate) -> bool:
        """Tell whether what a group lacks at a candidate is gone because its last copy was damaged."""
        geometry = self.geometry
        if at.cell is not None and at.cell.damaged & geometry.boundary_need(group, at.position):
            return True
        if group in look.covered:
            return look.damaged(group, look.covered[group], min(look.covered[group] + 1, at.depth))
        pages = geometry.window_pages(group, at.position)
        return bool(pages) and look.damaged(group, pages.start // geometry.pages(group), at.depth)

    def _replay(self, group: int) -> tuple[int, Exactness]:
        spec, request = self.geometry.groups[group], self.request
        if group not in self.geometry.rows and request.replay:
            if spec.approx_replay_tokens and request.approx and self.known.layout.allow_approx:
                return spec.approx_replay_tokens, Exactness.APPROX
            return spec.exact_replay_tokens, Exactness.REPLAY
        return 0, Exactness.EXACT

    def _cut(self, at: Candidate, layer: Layer, group: int | None, code: Code, detail: str) -> Cut:
        """Return a cut of the candidate's last block or residue; runs are joined later."""
        size = self.known.layout.block_tokens
        start = at.depth * size if at.position > at.depth * size else at.position - size
        name, kind = ("", None) if group is None else self._named(group)
        return Cut(start, at.position, layer, name, kind, code, detail)

    def _named(self, group: int) -> tuple[str, Kind | None]:
        return self.geometry.groups[group].name, self.geometry.groups[group].kind

    def coverage(self) -> list[int]:
        """Return how far each group alone would carry."""
        look = self.disk or self.memory
        return [self._reach(look, group) for group in range(len(self.geometry.groups))]

    def _reach(self, look: Look, group: int) -> int:
        spec, size = self.geometry.groups[group], self.block_tokens
        if group in look.covered:
            return min(look.covered[group], look.coupled[group]) * size
        alone = spec.form is Form.SNAPSHOT and self.geometry.is_alike(group)
        if not spec.cacheable or (alone and not self.geometry.boundary_need(group, size)):
            return len(self.path) * size
        depths = sorted(self.at_blocks, reverse=True) if alone else range(len(self.path), 0, -1)
        rules = RULES[spec.kind]
        blocks = (self.block(depth)[0] for depth in depths if depth)
        return next((at.position for at in blocks if rules.shortfall(look, group, at) is None), 0)


def judge(state: State, known: KnownLayout, request: Acquire) -> Judgement:
    """Judge a look-up.

    Args:
        state: The cache.
        known: The asking layout.
        request: The look-up.

    Returns:
        The verdict; its offers are sorted, its cuts are not yet shortened.
    """
    court = _Judge(state, known, request)
    at_blocks = court.judge_blocks()
    blocks = [r for r in at_blocks if isinstance(r, Judged)]
    least = max(request.minimum, 1)
    kept = _best_blocks([b for b in blocks if b.position - b.replay >= least])
    floor = kept[-1].position - kept[-1].replay if kept else 0
    at_residues = court.judge_residues(floor)
    residues = [r for r in at_residues if isinstance(r, Judged) and r.position - r.replay > max(floor, least - 1)]
    offers = sorted(kept + sorted(residues, key=Judged.rank)[:OFFERS_MAX], key=Judged.rank)
    best = next((o.position for o in offers if not o.residue), 0)
    cuts = [r for r in (*at_blocks, *at_residues) if isinstance(r, Cut) and r.end > best]
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
        _joined(cuts) + _beyond(court, known.layout.block_tokens, offers),
    )


def _best_blocks(blocks: list[Judged]) -> list[Judged]:
    """Keep the best block boundary, and the best ready one if that is another."""
    ranked = sorted(blocks, key=Judged.rank)
    return ranked[:1] + [b for b in ranked[1:] if b.ready][: 1 if ranked and not ranked[0].ready else 0]


def _hash_tokens(court: _Judge) -> int:
    """Return what a plain hash cache would claim: blocks with entries, or where there are only states the deepest."""
    path, size = court.path, court.block_tokens
    if not court.geometry.rows:
        return (
            max((n.depth for n in path if any(c.memory or c.disk for c in (*n.cells, *n.boundaries))), default=0) * size
        )
    if court.memory.whole:
        return len(path) * size
    for depth, node in enumerate(path):
        if not any(c.memory or c.disk for c in node.cells):
            return depth * size
    return len(path) * size


def _joined(cuts: list[Cut]) -> list[Cut]:
    """Join neighbours that fell for one reason; the detail is that of the deepest."""
    joined: list[Cut] = []
    for cut in cuts:
        last = joined[-1] if joined else None
        same = last is not None and (last.layer, last.group, last.code) == (cut.layer, cut.group, cut.code)
        if last is not None and same and last.end == cut.start:
            joined[-1] = Cut(last.start, cut.end, cut.layer, cut.group, cut.kind, cut.code, cut.detail)
        else:
            joined.append(cut)
    return joined


def _beyond(court: _Judge, block_tokens: int, offers: list[Judged]) -> list[Cut]:
    """Return what lies behind the matched path: unknown blocks, and tokens after the last whole block without offer."""
    request = court.request
    matched, whole = len(court.path) * block_tokens, request.tokens // block_tokens * block_tokens
    cuts = []
    if whole > matched:
        other = None if court.path else foreign_layout(court.state.layouts, court.known.tree.root, court.known)
        detail = f"of {whole // block_tokens} blocks {len(court.path)} are known"
        code, layer = Code.NO_MATCH, Layer.BLOCK
        if other is not None:
            code, detail = mismatch(other.layout, court.known.layout)
            layer = Layer.IDENTITY
        cuts.append(Cut(matched, whole, layer, "", None, code, detail))
    if request.tokens > whole and not any(o.position > whole for o in offers):
        cuts.append(_short_of_a_block(court, whole, block_tokens))
    return cuts


def _short_of_a_block(court: _Judge, whole: int, block_tokens: int) -> Cut:
    detail = f"a block is {block_tokens} tokens"
    coarse = court.geometry.coarsest
    if coarse is not None and court.geometry.groups[coarse].page_tokens == block_tokens:
        detail += f", as {court.geometry.groups[coarse].name} stores them"
    other = None if court.path else foreign_layout(court.state.layouts, court.known.tree.root, court.known)
    if other is not None:
        code, detail = mismatch(other.layout, court.known.layout)
        return Cut(whole, court.request.tokens, Layer.IDENTITY, "", None, code, detail)
    return Cut(whole, court.request.tokens, Layer.BLOCK, "", None, Code.BELOW_BLOCK, detail)
