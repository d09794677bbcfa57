"""The verdict once more, in the most obvious way: token by token, from a plain dict of what is stored.

It shares no code with the verdict nor with `Geometry`, knows nothing of masks, runs or trees, and is slow. Where the
two differ, one of them misreads the rules (sections 3 and 5 of the design).
"""

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

from kvledger.kinds import Form, Kind
from kvledger.layout import GroupSpec, Layout
from kvledger.verdict import Code, Exactness, Layer

__all__ = ["Place", "Rates", "Reason", "Stored", "Truth", "Verdict", "behind", "judge", "reach"]

Place = dict[tuple[int, int, int], tuple[bool, int, int, bool]]
"""(group, shard, page) of each object at one block or boundary.

To whether it lies in memory, its commit, the bytes of what has to be read, and whether it is an approximation.
"""


class Stored(NamedTuple):
    """What one layout keeps of one prompt: its blocks in order, and its boundaries by position."""

    blocks: list[Place]
    boundaries: dict[int, Place]


class Reason(NamedTuple):
    """Why there is no resume at a position: the layer, the group that cut if one did, and the code."""

    layer: Layer
    group: str
    kind: Kind | None
    code: Code


class Verdict(NamedTuple):
    """What a resume at one position would be; `reason` says why there is none."""

    position: int
    reason: Reason | None
    exactness: Exactness = Exactness.EXACT
    replay: int = 0
    ready: bool = True
    to_read: int = 0

    @property
    def saved(self) -> int:
        """Tokens that need no computing."""
        return self.position - self.replay


class Rates(NamedTuple):
    """Tokens a second of the caller and bytes a second of the disk; None if one of them is not known."""

    tokens: Fraction | None
    bytes: Fraction | None

    def gain(self, verdict: Verdict) -> Fraction:
        """Return the seconds that a resume saves, or its tokens as long as seconds are not known."""
        if self.tokens is None or self.bytes is None:
            return Fraction(verdict.saved)
        return verdict.saved / self.tokens - verdict.to_read / self.bytes

    def worth(self, verdict: Verdict) -> tuple[Fraction, bool, bool]:
        """Return what is saved, then exactness, then readiness."""
        return (self.gain(verdict), verdict.exactness is Exactness.EXACT, verdict.ready)


class Truth:
    """The rules of one layout over what is stored, with or without what lies on disk, or is an approximation."""

    def __init__(self, layout: Layout, stored: Stored, *, disk: bool, approx: bool = True) -> None:
        self.layout = layout
        self.stored = stored
        self.disk = disk
        self.approx = approx
        self.by_name = {spec.name: spec for spec in layout.groups}

    def has(self, place: Place, group: int, shard: int, page: int = 0) -> bool:
        """Tell whether one object is there."""
        entry = place.get((group, shard, page))
        return entry is not None and (entry[0] or self.disk) and (self.approx or not entry[3])

    def recoverable(self, group: int, position: int) -> bool:
        """Tell whether one group can be recovered at a position, all shards."""
        spec = self.layout.groups[group]
        how = {Form.ROWS: self._rows, Form.PAGED_WINDOW: self._pages, Form.SNAPSHOT: self._snapshot}[spec.form]
        return all(how(group, spec, shard, position) for shard in range(spec.shards))

    def _rows(self, group: int, spec: GroupSpec, shard: int, position: int) -> bool:
        size = self.layout.block_tokens
        places = [(self._block(i), size) for i in range(position // size)]
        if position % size >= spec.tokens_per_row:
            places.append((self.stored.boundaries.get(position, {}), position % size))
        return all(
            self.has(place, group, shard) and self._same_commit(group, spec, shard, place, tokens)
            for place, tokens in places
        )

    def _same_commit(self, group: int, spec: GroupSpec, shard: int, place: Place, tokens: int) -> bool:
        """Keys are worth something only with the rows that were committed with them."""
        if spec.kind is not Kind.INDEXER_STATE or tokens < self.by_name[spec.coupled_to].tokens_per_row:
            return True
        partner = self.layout.groups.index(self.by_name[spec.coupled_to])
        other = place.get((partner, shard, 0))
        return other is None or other[1] == place[group, shard, 0][1]

    def _block(self, number: int) -> Place:
        return self.stored.blocks[number] if number < len(self.stored.blocks) else {}

    def _pages(self, group: int, spec: GroupSpec, shard: int, position: int) -> bool:
        size, page = self.layout.block_tokens, spec.tokens_per_row * spec.rows_per_page
        first = position - (spec.window - 1) - spec.speculative_units * page
        end_of_blocks = position // size * size
        for token in range(max(first, 0), position):
            if token < end_of_blocks:
                place, number = self._block(token // size), token % size // page
            else:
                place, number = self.stored.boundaries.get(position, {}), (token - end_of_blocks) // page
            if not self.has(place, group, shard, number):
                return False
        return True

    def _snapshot(self, group: int, spec: GroupSpec, shard: int, position: int) -> bool:
        empty = (
            spec.kind is Kind.UNCOMPRESSED_TAIL
            and spec.coupled_to
            and not spec.halo_rows
            and position % self.by_name[spec.coupled_to].tokens_per_row == 0
        )
        return bool(empty) or self.has(self.stored.boundaries.get(position, {}), group, shard)

    def to_read(self, position: int) -> int:
        """Return the bytes of all objects that a resume at a position needs and that lie on disk alone."""
        needed = dict.fromkeys(key for i in range(len(self.layout.groups)) for key in self._needed(i, position))
        places = {-1: self.stored.boundaries.get(position, {})} | dict(enumerate(self.stored.blocks))
        entries = (places.get(block, {}).get((group, shard, page)) for block, group, shard, page in needed)
        return sum(entry[2] for entry in entries if entry is not None and not entry[0])

    def _needed(self, group: int, position: int) -> Iterator[tuple[int, int, int, int]]:
        """Yield (block or -1, group, shard, page) of what a group needs at a position, some of it more than once."""
        spec, size = self.layout.groups[group], self.layout.block_tokens
        end = position // size * size
        if not spec.cacheable:
            return
        for shard in range(spec.shards):
            if spec.form is Form.SNAPSHOT:
                yield (-1, group, shard, 0)
            elif spec.form is Form.ROWS:
                yield from ((token // size, group, shard, 0) for token in range(end))
                yield (-1, group, shard, 0)
            else:
                page = spec.tokens_per_row * spec.rows_per_page
                first = position - (spec.window - 1) - spec.speculative_units * page
                for token in range(max(first, 0), position):
                    block, start = (token // size, token // size * size) if token < end else (-1, end)
                    yield (block, group, shard, (token - start) // page)

    def unit_cut(self, position: int) -> GroupSpec | None:
        """Return the first group that a position cuts: inside a row that has no tail, or inside a page."""
        tails = {g.coupled_to for g in self.layout.groups if g.cacheable and g.kind is Kind.UNCOMPRESSED_TAIL}
        tails.discard("")
        for spec in in_order(self.layout):
            tailed = spec.form is Form.ROWS and (spec.name in tails or spec.coupled_to in tails)
            unit = {
                Form.ROWS: spec.tokens_per_row,
                Form.PAGED_WINDOW: spec.tokens_per_row * spec.rows_per_page,
                Form.SNAPSHOT: 1,
            }
            if position % unit[spec.form] and not tailed:
                return spec
        return None

    def lacks(self, spec: GroupSpec, position: int) -> Code:
        """Return the code for a group that is not recoverable at a position."""
        if spec.kind is Kind.INDEXER_STATE:
            group = self.layout.groups.index(spec)
            return Code.INDEXER_UNCOUPLED if self._keys_there(group, spec, position) else Code.INDEXER_MISSING
        halo = Code.HALO_MISSING if spec.halo_rows else Code.TAIL_MISSING
        return {
            Kind.COMPRESSED_KV: Code.ROWS_MISSING,
            Kind.SWA_WINDOW: Code.WINDOW_MISSING,
            Kind.UNCOMPRESSED_TAIL: halo,
        }[spec.kind]

    def _keys_there(self, group: int, spec: GroupSpec, position: int) -> bool:
        """Tell whether all keys are there, so that what is wrong with them is their commit."""
        size = self.layout.block_tokens
        places = [self._block(i) for i in range(position // size)]
        if position % size >= spec.tokens_per_row:
            places.append(self.stored.boundaries.get(position, {}))
        return all(self.has(place, group, shard) for place in places for shard in range(spec.shards))


def in_order(layout: Layout) -> list[GroupSpec]:
    """Return the groups that take part as a verdict names them: rows, paged windows, snapshots, each as declared."""
    forms = (Form.ROWS, Form.PAGED_WINDOW, Form.SNAPSHOT)
    return [spec for form in forms for spec in layout.groups if spec.cacheable and spec.form is form]


def _before_state(truth: Truth, position: int, request) -> Reason | None:
    """Return what layer 1 says; all that is stored belongs to the layout that asks, so layer 2 says nothing."""
    if position > request.tokens - request.leave:
        return Reason(Layer.BLOCK, "", None, Code.LEAVE)
    if position % request.align:
        return Reason(Layer.BLOCK, "", None, Code.ALIGNMENT)
    spec = truth.unit_cut(position)
    return None if spec is None else Reason(Layer.BLOCK, spec.name, spec.kind, Code.UNEVEN)


def judge(layout: Layout, stored: Stored, position: int, request) -> Verdict:
    """Judge one position.

    Args:
        layout: The asking layout.
        stored: What is stored of the prompt.
        position: Where to resume, tokens.
        request: An `Acquire`, or anything with its fields.
    """
    memory, disk = Truth(layout, stored, disk=False), Truth(layout, stored, disk=True)
    early = _before_state(memory, position, request)
    if early is not None:
        return Verdict(position, early)
    for truth, ready in ((memory, True), (disk, False)):
        found = _judge_state(truth, position, request, ready=ready)
        if found.reason is None:
            is_refused = not ready and not request.restore
            return Verdict(position, Reason(Layer.STATE, "", None, Code.ON_DISK)) if is_refused else found
    return found


def _judge_state(truth: Truth, position: int, request, *, ready: bool) -> Verdict:
    """Judge layer 3 by all that is there, and then by what is exact alone."""
    exact = Truth(truth.layout, truth.stored, disk=truth.disk, approx=False)
    found, without = (_state(one, position, request, ready=ready) for one in (truth, exact))
    if found.reason is not None or found == without:
        return found
    if request.approx and truth.layout.allow_approx:
        return found._replace(exactness=Exactness.APPROX)
    if without.reason is None:
        return without
    return Verdict(position, without.reason._replace(layer=Layer.BYTES, code=Code.LOSSY))


def _state(truth: Truth, position: int, request, *, ready: bool) -> Verdict:
    replay, exactness = 0, Exactness.EXACT
    for spec in in_order(truth.layout):
        if truth.recoverable(truth.layout.groups.index(spec), position):
            continue
        tokens, short = spec.exact_replay_tokens, False
        if spec.approx_replay_tokens and request.approx and truth.layout.allow_approx:
            tokens, short = spec.approx_replay_tokens, True
        if spec.form is Form.ROWS or not request.replay or not 0 < tokens < position:
            return Verdict(position, Reason(Layer.STATE, spec.name, spec.kind, truth.lacks(spec, position)))
        replay = max(replay, tokens)
        if exactness is not Exactness.APPROX:
            exactness = Exactness.APPROX if short else Exactness.REPLAY
    return Verdict(position, None, exactness, replay, ready, 0 if ready else truth.to_read(position))


def behind(layout: Layout, start: int, request) -> Reason:
    """Return why nothing behind the last whole block, which ends at `start`, is usable where nothing is offered."""
    truth = Truth(layout, Stored([], {}), disk=False)
    last = request.tokens - request.leave
    allowed = range(start + 1, last + 1)
    if not allowed:
        return Reason(Layer.BLOCK, "", None, Code.LEAVE)
    if all(truth.unit_cut(p) for p in allowed):
        spec = truth.unit_cut(last)
        assert spec is not None
        return Reason(Layer.BLOCK, spec.name, spec.kind, Code.UNEVEN)
    if all(p % request.align or truth.unit_cut(p) for p in allowed):
        return Reason(Layer.BLOCK, "", None, Code.ALIGNMENT)
    return Reason(Layer.BLOCK, "", None, Code.BELOW_BLOCK)


def reach(layout: Layout, stored: Stored, group: int, *, approx: bool = False) -> int:
    """Return the deepest block boundary at which one group alone is recoverable, disk included."""
    truth, size = Truth(layout, stored, disk=True, approx=approx), layout.block_tokens
    if not layout.groups[group].cacheable:
        return len(stored.blocks) * size
    ends = range(len(stored.blocks) * size, 0, -size)
    return next((p for p in ends if truth.recoverable(group, p)), 0)
