"""Moves within one memory, and zeros. Runs again under the Triton interpreter, see test_interpreter.py."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kvledger_kernels.compact import ZEROS, Move, compact, rounds
from kvledger_kernels.errors import KernelArgumentError


def memory_of(length: int) -> torch.Tensor:
    """Return bytes without pattern."""
    return torch.frombuffer(bytearray(np.random.default_rng(length).bytes(length)), dtype=torch.uint8)


def in_turn(memory: torch.Tensor, moves: list[Move]) -> torch.Tensor:
    """Return what the moves make of a memory, each as if it took a copy first."""
    found = memory.clone()
    for source, target, length in moves:
        found[target : target + length] = 0 if source == ZEROS else found[source : source + length].clone()
    return found


def test_moves_of_every_alignment_arrive_and_touch_nothing_else():
    """Runs that are aligned to 16, 8, 4 bytes and to none move in one call, zeros are written, the rest stays."""
    moves = [
        Move(0, 20_000, 4_096),
        Move(4_104, 30_008, 520),
        Move(5_004, 31_004, 36),
        Move(6_001, 32_003, 1_001),
        Move(ZEROS, 34_000, 4_096),
        Move(ZEROS, 39_001, 3),
    ]
    memory = memory_of(40_000)
    want = in_turn(memory, moves)
    compact(memory, moves)

    assert torch.equal(memory, want)


@pytest.mark.parametrize("distance", [16, 4_096, 4_100])
def test_sliding_over_its_own_place_goes_in_rounds(distance):
    """A run that moves by less than its length is cut into pieces as long as the distance, in either direction."""
    memory, length = memory_of(20_000), 2 * distance + 777
    down, up = Move(distance, 0, length), Move(0, distance, length)
    for move in (down, up):
        got, cut = memory.clone(), rounds([move])
        for one in cut:
            compact(got, one)

        assert torch.equal(got, in_turn(memory, [move]))
        assert sum(len(one) for one in cut) == -(-length // distance)


def test_what_does_not_meet_stays_in_one_round():
    """Moves that touch none of each other's bytes cost one launch, whatever their number; staying costs none."""
    apart = [Move(1_000 + 10 * number, 10 * number, 10) for number in range(50)]

    assert rounds(apart) == [apart]
    assert rounds([Move(5, 5, 10)]) == []


@given(
    moves=st.lists(
        st.builds(Move, st.one_of(st.just(ZEROS), st.integers(0, 60)), st.integers(0, 60), st.integers(1, 36)),
        max_size=5,
    )
)
@settings(max_examples=30, deadline=None)
def test_rounds_have_the_effect_of_the_moves_in_turn(moves):
    """However moves overlap, their rounds make the same memory, and each round is one that may happen at once."""
    memory = torch.arange(96, dtype=torch.uint8)
    want = in_turn(memory, moves)
    for one in rounds(moves):
        compact(memory, one)

    assert torch.equal(memory, want)


@pytest.mark.parametrize(
    ("moves", "field"),
    [
        ([Move(0, 90, 11)], "moves[0]"),
        ([Move(95, 0, 6)], "moves[0]"),
        ([Move(0, 50, 0)], "moves[0]"),
        ([Move(-2, 50, 5)], "moves[0]"),
        ([Move(0, 50, 10), Move(20, 59, 10)], "moves"),
        ([Move(0, 50, 10), Move(59, 80, 10)], "moves"),
        ([Move(0, 5, 10)], "moves"),
    ],
    ids=["target outside", "source outside", "empty", "before", "two writers", "reader behind", "itself"],
)
def test_moves_that_meet_or_leave_the_memory_are_refused(moves, field):
    """What depends on the order of programs, or reaches outside, is refused and no byte changes."""
    memory = memory_of(100)
    before = memory.clone()
    with pytest.raises(KernelArgumentError) as caught:
        compact(memory, moves)

    assert caught.value.field == field
    assert caught.value.remedy
    assert torch.equal(memory, before)
