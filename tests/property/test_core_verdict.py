"""The verdict against a brute-force oracle, over random layouts, random contents and random requests."""

from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kvledger.kinds import Form, Kind
from kvledger.verdict import Code
from kvledger.wire.replies import Failed
from kvledger.wire.requests import Acquire, Describe, Evict, Offload, Reserve
from property import oracle
from support.world import World, group, layout

EXAMPLES = 400
PROMPT = list(range(64))


def divisors(number):
    """The divisors of a block."""
    return st.sampled_from([d for d in range(1, number + 1) if number % d == 0])


@st.composite
def row_groups(draw, size):
    """One or two groups of rows, each perhaps with an indexer of equal or other granularity."""
    made = []
    for name in "CD"[: draw(st.integers(0, 2))]:
        per_row, shards = draw(divisors(size)), draw(st.integers(1, 2))
        cacheable = draw(st.integers(0, 5)) > 0
        fields = {"shards": shards, "cacheable": cacheable, "rows_per_page": 1}
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
            fields |= {"rows_per_page": draw(divisors(size)), "window": draw(st.integers(2, 3 * size))}
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
    return layout(*draw(st.permutations(made)), block_tokens=size, allow_approx=draw(st.booleans()))


@st.composite
def deeds(draw):
    """What happens to the prompt: (what, end or block, choice, choice)."""
    number = st.integers(0, 63)
    what = st.sampled_from(["boundary", "boundary", "blocks", "pages", "evict", "evict", "drop", "offload", "forget"])
    return draw(st.lists(st.tuples(what, number, number, number), min_size=1, max_size=9))


def carry_out(user, number, deed, ends):
    """Do one deed; what is refused is part of the game."""
    what, one, two, three = deed
    known = user.world.state.layouts[number].layout
    size, end = known.block_tokens, one % 31 + 1
    if what in {"boundary", "blocks", "pages"}:
        end = end if what == "boundary" else -(-end // size) * size
        fields = {"boundary": what != "blocks", "all_pages": what == "pages", "first_block": two % 3 and two % 4}
        reserved = user.ask(Reserve(number, user.boundary(number, PROMPT, end), **fields))
        if not isinstance(reserved, Failed):
            user.fill(reserved, seed=three)
            user.commit(reserved)
            ends[end] = None
        return
    end = sorted(ends)[one % len(ends)] if ends else 0
    if not end:
        return
    spec = known.groups[two % len(known.groups)]
    at = user.boundary(number, PROMPT, end)
    if what in {"evict", "drop"}:
        block = three % (end // size + 1) - 1
        user.ask(Evict(spec.kind, number, at, spec.name, block, two % 3 - 1, disk=what == "drop"))
    else:
        user.ask(Offload(number, at, drop_memory=what == "offload"))


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
            in_memory = item.state in {"COMMITTED", "MIRRORED"}
            place = stored.boundaries.setdefault(end, {}) if item.block < 0 else stored.blocks[item.block]
            place[item.group, item.shard, item.page] = (in_memory, item.commit_id)
    return stored


requests = st.fixed_dictionaries(
    {
        "tokens": st.integers(1, 64),
        "leave": st.integers(0, 9),
        "align": st.sampled_from([1, 1, 1, 2, 3, 4, 8]),
        "restore": st.booleans(),
        "replay": st.booleans(),
        "approx": st.booleans(),
    }
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(layouts(), deeds(), st.lists(requests, min_size=3, max_size=3))
def test_the_verdict_is_what_the_oracle_says(what, done, asked):
    """Restorable set, offers, coverage and the layer of each cut are those of an oracle that looks at every token."""
    user = World(check=False).engine()
    number = user.register(what)
    ends: dict[int, None] = {}
    for deed in done:
        carry_out(user, number, deed, ends)
    for fields in asked:
        fields["tokens"] = min(fields["tokens"], len(PROMPT))
        whole = fields["tokens"] // what.block_tokens * what.block_tokens
        request = Acquire(number, hashes=user.boundary(number, PROMPT, whole).hashes, **fields)
        compare(what, contents(user, number, ends), request, user.ok(request))


def compare(what, stored, request, answer):
    """Hold one answer against the oracle."""
    size = what.block_tokens
    depth = min(len(stored.blocks), request.tokens // size)
    seen = oracle.Stored(stored.blocks[:depth], stored.boundaries)
    blocks = [oracle.judge(what, seen, p, request) for p in range(size, depth * size + 1, size)]
    residues = [
        oracle.judge(what, seen, p, request) for p in sorted(stored.boundaries) if p % size and p // size <= depth
    ]
    good = [v for v in blocks if v.reason is None]
    assert answer.restorable == [v.position for v in good]
    assert answer.coverage == [oracle.reach(what, seen, g) for g in range(len(what.groups))]
    truth = {v.position: v for v in blocks + residues if v.reason is None}
    for offer in answer.offers:
        known = truth[offer.position]
        assert (offer.exactness, offer.replay, offer.ready) == (known.exactness, known.replay, known.ready)
    useful = [v for v in truth.values() if v.worth[0] > 0]
    assert bool(answer.offers) == bool(useful) == bool(answer.lease)
    if useful:
        assert truth[answer.offers[0].position].worth == max(v.worth for v in useful)
    floor = max((v.worth[0] for v in good), default=0)
    assert {v.position for v in residues if v.reason is None and v.worth[0] > floor} <= {
        offer.position for offer in answer.offers
    }
    check_cuts(what.block_tokens, blocks, residues, answer)


def check_cuts(size, blocks, residues, answer):
    """Cuts name every boundary behind the best one that fell, once and for the reason of the oracle, and no other."""
    if answer.cuts_more:
        return
    told = [c for c in answer.cuts if c.code is not Code.MINIMUM]
    of_blocks = [c for c in told if not c.start % size and not c.end % size]
    for one, other in pairwise(sorted(of_blocks, key=lambda c: c.start)):
        assert one.end <= other.start, answer.cuts
    for verdict in blocks:
        if verdict.position > answer.usable_tokens:
            around = [c for c in of_blocks if c.start < verdict.position <= c.end]
            assert [reason_of(c) for c in around] == [verdict.reason] * (verdict.reason is not None), (verdict, told)
    for verdict in residues:
        if verdict.position > answer.usable_tokens:
            behind = [c for c in told if c.end == verdict.position and c.code is not Code.BELOW_BLOCK]
            assert [reason_of(c) for c in behind] == [verdict.reason] * (verdict.reason is not None), (verdict, told)


def reason_of(cut):
    """What a cut says, without where and with what detail."""
    return oracle.Reason(cut.layer, cut.group, cut.kind, cut.code)
