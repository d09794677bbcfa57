"""The standard policies, worked out by hand on a few blocks, and the real core beside them."""

import random
from pathlib import Path

import pytest

from kvledgerd.trace.arc import Arc
from kvledgerd.trace.belady import min_hits
from kvledgerd.trace.comparison import compare
from kvledgerd.trace.gdsf import Gdsf
from kvledgerd.trace.layouts import trace_layout
from kvledgerd.trace.lru import Lru
from kvledgerd.trace.policy import hits_of
from kvledgerd.trace.requests import read_trace, trace_of
from kvledgerd.trace.s3_fifo import S3Fifo

SAMPLE = Path(__file__).parents[2] / "golden" / "trace.jsonl"
LOOP = [[1], [2], [3]] * 4
SCANNED = [[1], [1], [2], [3], [4], [1]]


def test_a_hit_counts_only_in_the_leading_run():
    """Blocks behind one that is missing are no hits, though the cache holds them."""
    assert hits_of(Lru(2), [[1, 2], [3], [1, 2]]) == 1
    assert hits_of(Lru(2), [[1, 2], [3, 4], [1, 2]]) == 0


def test_min_keeps_what_comes_back_where_lru_keeps_nothing():
    """Of a loop of three blocks in two places LRU hits none; who knows the future hits two in each later round."""
    assert hits_of(Lru(2), LOOP) == 0
    assert min_hits(LOOP, 2) == 6


@pytest.mark.parametrize(("policy", "hits"), [(Lru, 1), (Arc, 2), (Gdsf, 1)])
def test_a_scan_passes_what_was_used_twice_or_flushes_it(policy, hits):
    """ARC keeps a block that was used twice while others pass once; LRU lets it go, GDSF too once all have aged."""
    assert hits_of(policy(2), SCANNED) == hits


def test_s3_fifo_lets_in_at_once_what_comes_back():
    """A block whose name is still known enters the main queue, where blocks that pass once do not reach it."""
    policy = S3Fifo(10)
    for block in [*range(20), 0, *range(100, 120)]:
        policy.touch(block)
    assert 0 in policy


def test_the_real_core_replays_a_trace():
    """Every capacity gives a rate between nothing and MIN, more memory never gives less, and nothing is refused."""
    trace = read_trace(SAMPLE, 512)
    found = [compare(trace, trace_layout("plain", 512), share, trace.unique * share // 100) for share in (10, 100)]
    assert [one.hit <= one.min for one in found] == [True, True]
    assert 0 < found[0].hit < found[1].hit
    assert found[1].hit == found[1].lru == found[1].min
    assert found[0].evicted > 0
    assert found[1].evicted == found[0].refused == found[1].refused == 0


def test_a_layout_with_states_resumes_where_states_were_stored():
    """With room for all, prompts of a layout with states resume at the boundaries that look-ups asked for."""
    trace = read_trace(SAMPLE, 512)
    found = compare(trace, trace_layout("gpt-oss", 512), 200, 2 * trace.unique)
    assert 0.8 * found.min < found.hit <= found.min


def test_objects_of_many_sizes_move_aside_in_a_replay():
    """Where free memory lies in pieces that are too small, objects move within it, and the replay goes on."""
    chance = random.Random(0)
    requests: list[list[int]] = []
    for number in range(60):
        base = chance.choice(requests) if requests and chance.random() < 0.6 else []
        fresh = range(100 * number, 100 * number + chance.randint(1, 12))
        requests.append([*base[: chance.randint(0, len(base))], *fresh])
    found = compare(trace_of(requests), trace_layout("deepseek-v4-flash", 256), 10, 60)
    assert 0 < found.hit <= found.min
    assert (found.evicted > 0, found.refused) == (True, 0)
