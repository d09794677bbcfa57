"""The verdict against a brute-force oracle, over random layouts, random contents and random requests."""

from fractions import Fraction
from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvledger.kinds import Form, Kind
from kvledger.verdict import Code
from kvledger.wire.replies import Failed
from kvledger.wire.requests import Acquire, Describe, Evict, Offload, Reserve, Restore
from kvledger_storage.events import UnitCommitted
from kvledgerd.core.config import CoreConfig
from kvledgerd.core.copies.precisions import Precision
from kvledgerd.core.placement.sureness import MEMORY_KINDS
from kvledgerd.core.units.apply_units import cells_of
from property import oracle
from support.world import World, group, layout

EXAMPLES = 400
PROMPT = list(range(64))
LOSSY = CoreConfig(
    memory_bytes=64 << 20,
    arena_bytes=1 << 20,
    disk_bytes=64 << 20,
    disk_precision=dict.fromkeys(MEMORY_KINDS, Precision.INT8),
)
NUMBERS = {"dtype": "bfloat16", "row_bytes": 128}
"""Of a group whose objects are quantised on their way to disk, where the layout allows it."""


def divisors(number):
    """The divisors of a block."""
    return st.sampled_from([d for d in range(1, number + 1) if number % d == 0])


numbers = st.sampled_from([NUMBERS, NUMBERS, {}])


@st.composite
def row_groups(draw, size):
    """One or two groups of rows, each perhaps with an indexer of equal or other granularity."""
    made = []
    for name in "CD"[: draw(st.integers(0, 2))]:
        per_row, shards = draw(divisors(size)), draw(st.integers(1, 2))
        cacheable = draw(st.integers(0, 5)) > 0
        fields = {"shards": shards, "cacheable": cacheable, "rows_per_page": 1} | draw(numbers)
        made.append(group(name, Kind.COMPRESSED_KV, tokens_per_row=per_row, **fields))
        if draw(st.booleans()):
            keys = draw(st.one_of(st.just(per_row), divisors(size)))
            made.append(group(f"{name}x", Kind.INDEXER_STATE, tokens_per_row=keys, coupled_to=name, **fields))
    return made


@st.composite
def state_groups(draw, size, partners):
    """Windows, tails and snapshots of any kind that may have them."""
    made, paged = [], draw(st.booleans())
    for number in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from([Kind.SWA_WINDOW, Kind.UNCOMPRESSED_TAIL]))
        fields = {"shards": draw(st.integers(1, 2)), "cacheable": draw(st.integers(0, 5)) > 0}
        if draw(st.booleans()):
            replay = draw(st.integers(0, 2 * size))
            fields |= {"exact_replay_tokens": replay, "approx_replay_tokens": draw(st.integers(0, replay))}
        if paged and draw(st.booleans()):
            form = Form.PAGED_WINDOW
            fields |= {"rows_per_page": draw(divisors(size)), "window": draw(st.integers(2, 3 * size))} | draw(numbers)
            fields["speculative_units"] = draw(st.integers(0, 2))
        else:
            form = Form.SNAPSHOT
            if kind is Kind.UNCOMPRESSED_TAIL and partners:
                fields["coupled_to"] = draw(st.sampled_from(["", *partners]))
                fields["halo_rows"] = draw(st.integers(0, 1))
        made.append(group(f"S{number}", kind, form, **fields))
    return made


@st.composite
def unlike_blocks(draw):
    """A tail of rows that are not cached: they need not divide a block, so it is empty at some ends of blocks only."""
    rows = group("E", Kind.COMPRESSED_KV, tokens_per_row=draw(st.integers(2, 16)), cacheable=False)
    return [rows, group("U", Kind.UNCOMPRESSED_TAIL, Form.SNAPSHOT, coupled_to="E")]


@st.composite
def layouts(draw):
    """A layout of up to nine groups in any order, at least one of them cacheable."""
    size = draw(st.sampled_from([4, 6, 8]))
    rows = draw(row_groups(size))
    made = rows + draw(state_groups(size, [g.name for g in rows if g.kind is Kind.COMPRESSED_KV]))
    made += draw(st.one_of(st.just([]), unlike_blocks()))
    if not any(g.cacheable for g in made):
        made.append(group("Z", Kind.COMPRESSED_KV, tokens_per_row=draw(divisors(size))))
    return layout(
        *draw(st.permutations(made)), block_tokens=size, allow_approx=draw(st.sampled_from([True, True, False]))
    )


@st.composite
def deeds(draw):
    """What happens to the prompt: (what, end or block, choice, choice)."""
    number = st.integers(0, 63)
    often = ["boundary", "evict", "offload"]
    what = st.sampled_from([*often, *often, "blocks", "pages", "drop", "mirror", "restore", "halves", "pace"])
    return draw(st.lists(st.tuples(what, number, number, number), min_size=1, max_size=9))


def carry_out(user, number, deed, ends):
    """Do one deed; what is refused is part of the game."""
    what, one, two, three = deed
    known = user.world.state.layouts[number].layout
    size, end = known.block_tokens, one % 31 + 1
    if what in {"boundary", "blocks", "pages", "halves"}:
        end = end if what == "boundary" else -(-end // size) * size
        fields = {"boundary": what != "blocks", "all_pages": what == "pages", "first_block": two % 3 and two % 4}
        at = user.boundary(number, PROMPT, end)
        for spec in known.groups if what == "halves" else ():
            if spec.kind is Kind.INDEXER_STATE:
                user.ask(Evict(spec.kind, number, at, spec.name, three % 4 - 1, disk=True))
        reserved = user.ask(Reserve(number, at, **fields))
        if not isinstance(reserved, Failed):
            user.fill(reserved, seed=three)
            if what == "halves":
                keep_halves(user, reserved.unit)
            else:
                user.commit(reserved)
            ends[end] = None
        return
    if what == "pace":
        user.world.state.restored_bytes, user.world.state.restored_micros = 4096, 10 ** (three % 8)
    end = sorted(ends)[one % len(ends)] if ends else 0
    if not end or what == "pace":
        return
    spec = known.groups[two % len(known.groups)]
    at = user.boundary(number, PROMPT, end)
    if what in {"evict", "drop"}:
        block = three % (end // size + 1) - 1
        user.ask(Evict(spec.kind, number, at, spec.name, block, two % 3 - 1, disk=what == "drop"))
    elif what == "restore":
        user.world.restore_micros = 10 ** (three % 7)
        user.ask(Restore(number, at))
    else:
        user.ask(Offload(number, at, drop_memory=what == "offload"))


def keep_halves(user, number):
    """Commit a unit as no daemon would, and as a log could hold it: what was there stays, its other half is new."""
    state = user.world.state
    unit = state.units[number]
    missing = {i: unit.objects[i] for i in unit.missing()}
    cells = cells_of(state.layouts[unit.layout], unit, list(missing.values()))
    there = tuple(i for i, item in missing.items() if item.block in cells and cells[item.block].states[item.slot])
    user.world.record([UnitCommitted(number, state.serial, there, ())])


def contents(user, number, ends):
    """What is stored, as the daemon describes it to people."""
    size = user.world.state.layouts[number].layout.block_tokens
    depth = len(user.world.state.layouts[number].tree.match(user.boundary(number, PROMPT, 64 // size * size).hashes))
    stored = oracle.Stored([{} for _ in range(depth)], {})
    for end in sorted({*ends, *range(size, depth * size + 1, size)}):
        described = user.ask(Describe(number, user.boundary(number, PROMPT, end)))
        if isinstance(described, Failed):
            continue
        for item in described.objects:
            in_memory, size_there = item.state in {"COMMITTED", "MIRRORED"}, item.stored or item.length
            place = stored.boundaries.setdefault(end, {}) if item.block < 0 else stored.blocks[item.block]
            place[item.group, item.shard, item.page] = (in_memory, item.commit_id, size_there, item.approx)
    return stored


requests = st.fixed_dictionaries(
    {
        "tokens": st.integers(1, 64),
        "leave": st.integers(0, 9),
        "align": st.sampled_from([1, 1, 1, 2, 3, 4, 8]),
        "restore": st.booleans(),
        "replay": st.booleans(),
        "approx": st.sampled_from([True, True, False]),
        "minimum": st.sampled_from([0, 0, 0, 1, 12]),
        "recompute": st.sampled_from([0, 1, 1000, 10**6]),
    }
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(layouts(), deeds(), st.lists(requests, min_size=3, max_size=3))
def test_the_verdict_is_what_the_oracle_says(what, done, asked):
    """Restorable set, offers, coverage and the layer of each cut are those of an oracle that looks at every token."""
    user = World(LOSSY, check=False).engine()
    number = user.register(what)
    ends: dict[int, None] = {}
    for deed in done:
        carry_out(user, number, deed, ends)
    for fields in asked:
        fields["tokens"] = min(fields["tokens"], len(PROMPT))
        whole = fields["tokens"] // what.block_tokens * what.block_tokens
        request = Acquire(number, hashes=user.boundary(number, PROMPT, whole).hashes, **fields)
        compare(what, contents(user, number, ends), request, rates(user, request), user.ok(request))


def rates(user, request):
    """What is known of the times that reading and computing take."""
    state = user.world.state
    measured = Fraction(state.restored_bytes * 10**6, state.restored_micros) if state.restored_micros else None
    return oracle.Rates(Fraction(request.recompute) or None, measured)


def compare(what, stored, request, known, answer):
    """Hold one answer against the oracle."""
    size = what.block_tokens
    depth = min(len(stored.blocks), request.tokens // size)
    seen = oracle.Stored(stored.blocks[:depth], stored.boundaries)
    blocks = [oracle.judge(what, seen, p, request) for p in range(size, depth * size + 1, size)]
    inside = [p for p in sorted(stored.boundaries) if p % size and p // size <= depth and p <= request.tokens]
    residues = [oracle.judge(what, seen, p, request) for p in inside]
    assert answer.restorable == [v.position for v in blocks if v.reason is None]
    approx = request.approx and what.allow_approx
    assert answer.coverage == [oracle.reach(what, seen, g, approx=approx) for g in range(len(what.groups))]
    blocks, residues = without_the_dear(known, request, blocks, residues)
    check_offers(known, request, blocks, residues, answer)
    if not answer.cuts_more:
        check_cuts(what, request, blocks, residues, answer)


def enough(request, verdict):
    """Whether a boundary is usable and saves what the caller wants."""
    return verdict.reason is None and verdict.saved >= max(request.minimum, 1)


def without_the_dear(known, request, blocks, residues):
    """Cut what takes longer to read back than to compute, from the best block in memory on."""
    base = max((known.gain(v) for v in blocks if enough(request, v) and v.ready), default=0)
    reason = oracle.Reason(oracle.Layer.STATE, "", None, Code.RESTORE_COST)

    def judged(verdict):
        gain = known.gain(verdict)
        dear = enough(request, verdict) and not verdict.ready and (gain <= 0 or gain < base)
        return verdict._replace(reason=reason) if dear and None not in known else verdict

    return [judged(v) for v in blocks], [judged(v) for v in residues]


def check_offers(known, request, blocks, residues, answer):
    """The best boundary is offered first, and every residue worth more than the best block that is as ready."""
    good = {v.position: v for v in (*blocks, *residues) if enough(request, v)}
    for offer in answer.offers:
        one = good[offer.position]
        assert (offer.exactness, offer.replay, offer.ready) == (one.exactness, one.replay, one.ready)
    assert bool(answer.offers) == bool(good) == bool(answer.lease)
    if good:
        assert known.worth(good[answer.offers[0].position]) == max(map(known.worth, good.values())), (good, answer)
    whole = [v for v in blocks if enough(request, v)]
    ready = max((known.worth(v) for v in whole if v.ready), default=None)
    nothing = (0, True, True)
    stored = ready or max(map(known.worth, whole), default=nothing)
    least = {True: ready or nothing, False: stored}
    worth = {v.position for v in residues if enough(request, v) and known.worth(v) > least[v.ready]}
    assert worth == {offer.position for offer in answer.offers if offer.residue}


def check_cuts(what, request, blocks, residues, answer):
    """Cuts name every boundary behind the best one that fell, once and for the reason of the oracle, and no other."""
    size = what.block_tokens
    whole = request.tokens // size * size
    told = [c for c in answer.cuts if c.code is not Code.MINIMUM]
    of_blocks = sorted((c for c in told if not c.start % size and not c.end % size), key=lambda c: c.start)
    for one, other in pairwise(of_blocks):
        assert one.end <= other.start, answer.cuts
    for verdict in blocks:
        around = [c for c in of_blocks if c.start < verdict.position <= c.end]
        assert_named(verdict, around, answer)
    tail = oracle.behind(what, whole, request)
    is_cut = request.tokens > whole and not any(offer.position > whole for offer in answer.offers)
    assert not is_cut or tail in [reason_of(c) for c in told if (c.start, c.end) == (whole, request.tokens)]
    for verdict in residues:
        here = [c for c in told if c.end == verdict.position]
        at_end = is_cut and verdict.position == request.tokens and verdict.reason != tail
        assert_named(verdict, [c for c in here if not at_end or reason_of(c) != tail], answer)
    little = [v.position for v in (*blocks, *residues) if v.reason is None]
    assert [c.code for c in answer.cuts if c not in told] == [Code.MINIMUM] * (bool(little) and not answer.offers), (
        blocks,
        residues,
        answer,
    )


def assert_named(verdict, cuts, answer):
    """One boundary behind the best block is cut for its reason alone, or is not cut."""
    if verdict.position > answer.usable_tokens:
        assert [reason_of(c) for c in cuts] == [verdict.reason] * (verdict.reason is not None), (verdict, answer.cuts)


def reason_of(cut):
    """What a cut says, without where and with what detail."""
    return oracle.Reason(cut.layer, cut.group, cut.kind, cut.code)
