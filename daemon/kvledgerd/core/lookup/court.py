"""Judging the candidates of one look-up: each falls at the first of the four layers that it does not pass.

The path is looked at once (`kvledgerd.core.lookup.look`), and of a run of block boundaries that differ in nothing a
verdict looks at only the deepest is judged, so that a long prompt costs little more than its hashes.
"""

import math
from bisect import insort
from collections.abc import Iterable
from itertools import pairwise

from msgspec.structs import replace

from kvledger.kinds import Form, Kind
from kvledger.verdict import Code, Cut, Exactness, Layer
from kvledger.wire.requests import Acquire
from kvledgerd.core.device_pools.device import NO_DEVICE, Sight
from kvledgerd.core.index import Cell, Node
from kvledgerd.core.kinds import RULES
from kvledgerd.core.kinds.rules import Candidate
from kvledgerd.core.known_layout import KnownLayout
from kvledgerd.core.lookup.choice import OFFERS_MAX, Choice, Judged
from kvledgerd.core.lookup.identity import foreign_layout, mismatch
from kvledgerd.core.lookup.look import Look
from kvledgerd.core.lookup.reading import Reading
from kvledgerd.core.lookup.residues import by_worth
from kvledgerd.core.state import State
from kvledgerd.core.units.provenance import Lineage

__all__ = ["Court"]


class Court:
    """One look-up before the judge.

    Args:
        state: The cache.
        known: The asking layout.
        request: The look-up.
        sight: What the asking engine has on its own devices.

    Attributes:
        limit: Tokens that the caller leaves to us.
        path: Matched nodes.
        memory: The path with what lies in memory or on the engine's devices.
        disk: The path with what lies on disk as well, None if nothing lies there alone.
        other: Both once more, with approximations if these do not count for the caller, without them if they do; empty
            if there are none along the path.
        boundaries: Depth in blocks and cell of every boundary that the layout keeps along the path.
        at_blocks: Of those at the end of a block the cell by depth.
        has_residues: Whether there are others.
        turns: Depths behind which something that a verdict looks at differs.
        choice: Which of what passes is better.
    """

    def __init__(self, state: State, known: KnownLayout, request: Acquire, sight: Sight = NO_DEVICE) -> None:
        self.state = state
        self.known = known
        self.request = request
        self.geometry = known.geometry
        self.block_tokens = known.layout.block_tokens
        self.limit = request.tokens - request.leave
        self.path = known.tree.match(request.hashes)
        self.sight = sight
        self.approx = request.approx and known.layout.allow_approx
        self.memory = self._look(use_disk=False)
        self.boundaries = self._boundaries()
        self.at_blocks = {depth: cell for depth, cell in self.boundaries if not cell.residue}
        self.has_residues = len(self.at_blocks) < len(self.boundaries)
        self.disk = self._look(use_disk=True) if self._partly_on_disk() else None
        self.other = self._other() if known.layout.allow_approx else ()
        self.choice = Choice(request.recompute, state.restored_bytes, state.restored_micros)
        self.reading = Reading(self.disk) if self.disk is not None else None
        self.foreign = self._first_foreign() if self.geometry.rows and not self.memory.whole else None
        self.turns = self._ends_of_reach()
        if request.replay:
            self.turns |= self._first_replays()
        self.lineage = Lineage(known, self.memory.cells) if known.layout.strict_provenance else None
        if self.lineage is not None:
            self.turns[self.lineage.depth] = None
        if self.foreign is not None:
            self.turns[self.foreign[0]] = None

    def _look(self, *, use_disk: bool, other: bool = False) -> Look:
        approx = self.approx is not other
        return Look(self.known, self.path, use_disk=use_disk, sight=self.sight, approx=approx)

    def _other(self) -> tuple[Look, ...]:
        cells = (*self.memory.cells, *(cell for _, cell in self.boundaries))
        if not any(cell.approx for cell in cells if cell is not None):
            return ()
        looks = (self.memory,) if self.disk is None else (self.memory, self.disk)
        return tuple(self._look(use_disk=look.use_disk, other=True) for look in looks)

    def keeps(self, cell: Cell) -> bool:
        """Tell whether a cell has anything that the asking engine could find."""
        return bool(cell.memory or cell.disk or self.sight.mask(cell))

    def _boundaries(self) -> list[tuple[int, Cell]]:
        """Return depth and cell of every boundary that the layout keeps along the path, the root's included."""
        number = self.known.number
        found = [(0, cell) for cell in self.known.tree.root.boundaries if cell.layout == number]
        found += [(node.depth, cell) for node in self.path for cell in node.boundaries if cell.layout == number]
        return found

    def _partly_on_disk(self) -> bool:
        # Where memory has all rows, and no pages of windows lie in blocks, the walk over them would find nothing
        in_blocks = not self.memory.whole or self.geometry.windows or self.sight
        if in_blocks and [None for cell in self.memory.cells if cell is not None and cell.disk & ~cell.memory]:
            return True
        return any(cell.disk & ~cell.memory for _, cell in self.boundaries)

    def _first_foreign(self) -> tuple[int, KnownLayout] | None:
        """Return the first block at which another layout keeps something and this one nothing.

        A layout without rows keeps nothing at most blocks; there `_identity` looks at the boundary alone.
        """
        for block, cell in enumerate(self.memory.cells):
            if cell is None:
                other = foreign_layout(self.state.layouts, self.path[block], self.known)
                if other is not None:
                    return block, other
        return None

    def _ends_of_reach(self) -> dict[int, None]:
        """Return the depths at which a group of rows ends, or is coupled no more, before the path does."""
        looks = (self.memory, self.disk or self.memory, *self.other)
        short = [look for look in looks if not look.whole]
        return {depth: None for look in short for depth in (*look.covered.values(), *look.coupled.values())}

    def _first_replays(self) -> dict[int, None]:
        """Return the last depths at which a replay is as long as the prompt before it, and so can not be offered."""
        replays = (self._replay(group)[0] for group in self.geometry.snapshots)
        return {tokens // self.block_tokens: None for tokens in replays if tokens}

    def block(self, depth: int) -> tuple[Candidate, Node]:
        """Return the boundary at the end of a block, counted from 1."""
        return Candidate(depth * self.block_tokens, depth, self.at_blocks.get(depth)), self.path[depth - 1]

    def judge_residues(self, floor: int) -> list[Judged | Cut]:
        """Judge residues that stand for more than `floor` tokens, until no other could be among the best."""
        request, ranks, results = self.request, list[tuple[int, bool, bool, int]](), list[Judged | Cut]()
        inside, outside = by_worth(self.boundaries, self.block_tokens, floor, self.limit, request.tokens, request.align)
        for at in inside:
            best = self.choice.best_rank(at.position, at.position - at.depth * self.block_tokens)
            if len(ranks) >= OFFERS_MAX and ranks[OFFERS_MAX - 1] <= best:
                break
            found = self.judge(at, self.memory.node(at.depth))
            if isinstance(found, Judged):
                insort(ranks, self.choice.rank(found))
            results.append(found)
        return results + [self.judge(at, self.memory.node(at.depth)) for at in outside]

    def judge_blocks(self) -> list[Judged | Cut]:
        """Judge block boundaries in order; of a run that stands or falls together only the deepest is judged.

        Returns:
            What may be resumed at, and cuts: runs that follow each other, from the last boundary on that matters.
        """
        results: list[Judged | Cut] = []
        is_best_known = False
        for first, last in reversed(list(pairwise((0, *self._ends_of_runs())))):
            if is_best_known and not self._may_pass(last):
                continue
            found = self.judge(*self.block(last))
            if isinstance(found, Judged):
                results.append(found)
                results += [self._as(found, *self.block(depth)) for depth in range(last - 1, first, -1)]
                is_best_known |= found.is_best and found.saved >= self.request.minimum
            else:
                results.append(found if first + 1 == last else replace(found, start=first * self.block_tokens))
        results.reverse()
        return results

    def _may_pass(self, depth: int) -> bool:
        """Tell whether a block boundary may be usable; why others are not is told of those alone that nothing beats."""
        return depth in self.at_blocks or self.request.replay or not self.geometry.need_at_blocks

    def _ends_of_runs(self) -> Iterable[int]:
        """Return depths of block boundaries so that nothing a verdict looks at differs between one and the next.

        What may differ is a boundary's own cell, whether a group still reaches so far, whether there is something to
        replay from, and whether the caller leaves so many tokens to us.
        """
        deepest = len(self.path)
        alike = self.geometry.rows and self.geometry.alike_at_blocks and not self.geometry.windows
        if not alike or self.request.align != 1:
            return range(1, deepest + 1)
        ends = {deepest, self.limit // self.block_tokens, *self.turns}
        for depth in self.at_blocks:
            ends |= {depth - 1, depth}
        return sorted([depth for depth in ends if 0 < depth <= deepest])

    def judge(self, at: Candidate, node: Node) -> Judged | Cut:
        """Judge one candidate through the layers."""
        early = self._whole_block(at) or self._identity(at)
        if early is not None:
            return early
        found = self._state(self.memory, at, node, ready=True)
        if isinstance(found, Judged) or self.disk is None:
            return self._exactly(found, at, node)
        on_disk = self._exactly(self._state(self.disk, at, node, ready=False), at, node)
        if isinstance(on_disk, Judged) and not self.request.restore:
            detail = f"complete at {at.position} with what lies on disk"
            return self._cut(at, Layer.STATE, None, Code.ON_DISK, detail)
        if isinstance(on_disk, Judged) and self.state.degraded:
            detail = f"complete at {at.position} with what lies on disk; {self.state.degraded}"[:480]
            return self._cut(at, Layer.STATE, None, Code.DEGRADED, detail)
        return on_disk

    def _exactly(self, found: Judged | Cut, at: Candidate, node: Node) -> Judged | Cut:
        """Tell exact from approximate: of what passed, and of what fell since approximations do not count.

        What passes just so without approximations needs none of them. Whatever fell is judged with them as well, since
        whether all is there comes before whether it is exact.
        """
        if not self.other:
            return found
        if isinstance(found, Judged):
            exact = (self._state(look, at, node, ready=found.ready) for look in self.other if self.approx)
            return found if not self.approx or found in exact else found._replace(exactness=Exactness.APPROX)
        widest = found if self.approx else self._state(self.other[-1], at, node, ready=False)
        if isinstance(widest, Cut):
            return widest
        detail = f"complete at {at.position} with an approximation, which the caller does not allow"
        return Cut(found.start, found.end, Layer.BYTES, found.group, found.kind, Code.LOSSY, detail)

    def _whole_block(self, at: Candidate) -> Cut | None:
        if at.position > self.limit:
            return self._cut(at, Layer.BLOCK, None, Code.LEAVE, self._left())
        if at.position % self.request.align:
            return self._cut(at, Layer.BLOCK, None, Code.ALIGNMENT, self._steps())
        uneven = self.geometry.uneven_group(at.position)
        if uneven is not None:
            return self._cut(at, Layer.BLOCK, uneven, Code.UNEVEN, self._steps())
        return None

    def no_boundary(self, start: int) -> Cut | None:
        """Return why no boundary at all can lie behind `start`, whatever anybody stores; None if one can."""
        even, align, limit = self.geometry.even_tokens, self.request.align, self.limit
        end = self.request.tokens
        if limit <= start:
            return Cut(start, end, Layer.BLOCK, "", None, Code.LEAVE, self._left())
        uneven = self.geometry.uneven_group(limit)
        if uneven is not None and limit - limit % even <= start:
            return Cut(start, end, Layer.BLOCK, *self._named(uneven), Code.UNEVEN, self._steps())
        if limit - limit % math.lcm(align, even) <= start:
            return Cut(start, end, Layer.BLOCK, "", None, Code.ALIGNMENT, self._steps())
        return None

    def _left(self) -> str:
        return f"at most {self.limit} of {self.request.tokens} tokens may be reused"

    def _steps(self) -> str:
        """Return which boundaries the layout and the caller allow, so that it is seen whose step cut."""
        own, caller = self.geometry.even_tokens, self.request.align
        first = "any boundary" if own == 1 else f"a boundary every {own} tokens"
        second = "any" if caller == 1 else f"every {caller}"
        both = "" if caller % own == 0 or own % caller == 0 else f", both every {math.lcm(caller, own)}"
        return f"the layout allows {first}, the caller {second}{both}"

    def _identity(self, at: Candidate) -> Cut | None:
        if at.cell is not None:
            # This layout stored a boundary here: what it lacks by now was dropped, whatever others keep in its place
            return None
        other = self.foreign[1] if self.foreign is not None and self.foreign[0] < at.depth else None
        if not self.geometry.rows:
            node = self.memory.node(at.depth)
            if node.cell(self.known.number) is None:
                other = foreign_layout(self.state.layouts, node, self.known)
        if other is None:
            return None
        code, detail = mismatch(other.layout, self.known.layout)
        return self._cut(at, Layer.IDENTITY, None, code, detail)

    def _state(self, look: Look, at: Candidate, node: Node, *, ready: bool) -> Judged | Cut:
        replay, exactness = 0, Exactness.EXACT
        for group in look.doubtful(*at):
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
        mixed = self.lineage.why_mixed(at) if self.lineage is not None else ""
        if mixed:
            return self._cut(at, Layer.STATE, None, Code.OTHER_RUN, mixed)
        residue = at.cell.residue if at.cell is not None else 0
        chain = at.cell.residue_hash if at.cell is not None else b""
        return Judged(
            at.position, node, residue, chain, at.cell, exactness, replay, ready, self._to_read(at, ready=ready)
        )

    def _as(self, found: Judged, at: Candidate, node: Node) -> Judged:
        """Return what a block boundary is that differs from another one in nothing but where it is."""
        to_read = self._to_read(at, ready=found.ready)
        return Judged(at.position, node, 0, b"", at.cell, found.exactness, found.replay, found.ready, to_read)

    def _to_read(self, at: Candidate, *, ready: bool) -> int:
        return self.reading.bytes_before(at) if self.reading is not None and not ready else 0

    def too_little(self, judged: Judged) -> Cut:
        """Return why a boundary that saves less than the caller's minimum is not offered."""
        detail = f"the caller wants at least {self.request.minimum}"
        return Cut(0, judged.position, Layer.BLOCK, "", None, Code.MINIMUM, detail)

    def too_dear(self, judged: Judged) -> Cut:
        """Return why a boundary that could be restored is not offered."""
        at = Candidate(judged.position, judged.node.depth, judged.cell)
        return self._cut(at, Layer.STATE, None, Code.RESTORE_COST, self.choice.why_dear(judged))

    def _damaged(self, look: Look, group: int, at: Candidate) -> bool:
        """Tell whether what a group lacks at a candidate is gone because its last copy was damaged."""
        geometry = self.geometry
        if at.cell is not None and at.cell.damaged & geometry.boundary_need(group, at.position):
            return True
        if group in look.covered:
            return look.damaged(group, look.covered[group], min(look.covered[group] + 1, at.depth))
        if group in geometry.snapshots:
            return False
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

    def coverage(self, *, ready: bool = False) -> list[int]:
        """Return how far each group alone would carry; with `ready`, with what needs no reading."""
        look, depth = self.memory if ready else self.disk or self.memory, len(self.path)
        if depth and not look.doubtful(*self.block(depth)[0]):
            return [depth * self.block_tokens] * len(self.geometry.groups)
        return [self._reach(look, group) for group in range(len(self.geometry.groups))]

    def _reach(self, look: Look, group: int) -> int:
        spec, size = self.geometry.groups[group], self.block_tokens
        if group in look.covered:
            return min(look.covered[group], look.coupled[group]) * size
        if not spec.cacheable:
            return len(self.path) * size
        if spec.form is Form.SNAPSHOT and self.geometry.is_alike(group):
            need = self.geometry.boundary_need(group, size)
            return self._deepest(look, need) * size if need else len(self.path) * size
        rules = RULES[spec.kind]
        blocks = (self.block(depth)[0] for depth in range(len(self.path), 0, -1))
        return next((at.position for at in blocks if rules.shortfall(look, group, at) is None), 0)

    def _deepest(self, look: Look, need: int) -> int:
        """Return the depth of the deepest boundary of a block that keeps all of a mask, 0 if none does."""
        for depth, cell in reversed(self.at_blocks.items()):
            if depth and look.has(cell) & need == need:
                return depth
        return 0
