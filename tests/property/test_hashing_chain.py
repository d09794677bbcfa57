"""Chain hashes: equal everywhere, different wherever they have to be (field cases L45, V32)."""

import os
import subprocess
import sys
from array import array

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kvledger.errors import CallerError
from kvledger.hashing import ChainHasher, token_bytes
from kvledger.prompt import Prompt

KEY = bytes(range(32))
GOLDEN_BLOCKS = (
    "5df1b3590754100ef2cf956c411319f8fe797facde8539a1ae9e589dc25b2e72"
    "adc59ede07c6dfcedaf80e696add953bfe9f5e8ed7dbc2472f215b7bd39462a1"
)
GOLDEN_RESIDUE = "64ac2d8d40be591b7a8a5f6fa2ad6a789f10e5730449aefc53da5b906acbbca8"
SOURCES = st.sampled_from(["lora", "salt", "multimodal"]) | st.text(max_size=8)
VALUES = st.text(max_size=8) | st.binary(max_size=8)

PROGRAM = """
from kvledger.hashing import ChainHasher, token_bytes
hasher = ChainHasher(bytes(range(32)), 4, {"salt": "a", "lora": b"b"})
blocks = hasher.blocks(token_bytes(range(10)))
print(blocks.hex(), hasher.residue(blocks[-32:], token_bytes([8, 9])).hex())
"""


def root(extra):
    """Return the root under some extra keys."""
    return ChainHasher(KEY, 4, extra).root()


@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_l45_equal_in_all_processes(seed):
    """L45: processes with different hash seeds compute the golden keys, whatever the order of the extra keys."""
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    found = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.split() == [GOLDEN_BLOCKS, GOLDEN_RESIDUE]


@pytest.mark.hostile("ID04")
@given(st.dictionaries(SOURCES, VALUES, max_size=3), st.dictionaries(SOURCES, VALUES, max_size=3))
@settings(max_examples=500, deadline=None)
def test_v32_extra_keys_are_injective(one, other):
    """V32: two different sets of extra keys never share a hash."""
    assume(one != other)
    assert root(one) != root(other)


@pytest.mark.hostile("ID04")
@given(VALUES)
def test_v32_source_is_part_of_the_key(value):
    """V32: a LoRA name that equals a salt gives another key than that salt."""
    assert root({"lora": value}) != root({"salt": value})


def test_missing_differs_from_empty():
    """No key, an empty text and empty bytes are three different things."""
    assert len({root({}), root(None), root({"salt": ""}), root({"salt": b""})}) == 3


@given(st.lists(st.integers(0, 2**32 - 1), max_size=40), st.integers(0, 40))
@settings(max_examples=300, deadline=None)
def test_prefix_has_a_prefix_of_hashes(tokens, cut):
    """Hashes of a prefix are a prefix of the hashes, since each depends on what stands before it only."""
    hasher = ChainHasher(KEY, 4)
    short = hasher.blocks(token_bytes(tokens[:cut]))
    assert hasher.blocks(token_bytes(tokens)).startswith(short)
    assert len(short) == min(cut, len(tokens)) // 4 * 32


@given(st.lists(st.integers(0, 2**32 - 1), min_size=4, max_size=24), st.data())
@settings(max_examples=300, deadline=None)
def test_each_token_counts(tokens, data):
    """Another token anywhere changes its block and all later ones, and none before."""
    at = data.draw(st.integers(0, len(tokens) // 4 * 4 - 1))
    other = [*tokens[:at], tokens[at] ^ 1, *tokens[at + 1 :]]
    hasher = ChainHasher(KEY, 4)
    one, two = hasher.blocks(token_bytes(tokens)), hasher.blocks(token_bytes(other))
    same = at // 4 * 32
    assert one[:same] == two[:same]
    assert all(one[i : i + 32] != two[i : i + 32] for i in range(same, len(one), 32))


def test_tenants_share_nothing():
    """Another root key gives other hashes of the same tokens."""
    assert ChainHasher(KEY, 4).root() != ChainHasher(bytes(32), 4).root()


def test_residue_is_no_block():
    """The same tokens as a residue and as a block have different hashes."""
    hasher = ChainHasher(KEY, 4)
    packed = token_bytes(range(4))
    assert hasher.residue(hasher.root(), packed) != hasher.blocks(packed)


@pytest.mark.parametrize("tokens", [[-1], [2**32], ["1"], [1.5], [None]])
def test_no_token_ids(tokens):
    """What is no token id is refused by the name of the argument."""
    with pytest.raises(CallerError, match="tokens: not token ids"):
        token_bytes(tokens)


def test_arrays_are_tokens_too():
    """A list, a range and an array of the same tokens hash alike."""
    assert token_bytes([1, 2, 3]) == token_bytes(range(1, 4)) == token_bytes(array("q", [1, 2, 3]))


@given(st.lists(st.integers(0, 99), max_size=30), st.integers(0, 30))
@settings(max_examples=200, deadline=None)
def test_boundary_matches_its_own_prompt(tokens, position):
    """The boundary at a position matches this prompt and its continuations, and no prompt that differs before it."""
    assume(position <= len(tokens))
    at = Prompt(tokens, 4, KEY, None).boundary(position)
    assert Prompt([*tokens, 7], 4, KEY, None).matches(position, at.residue, at.residue_hash)
    if at.residue:
        other = [*tokens[: position - 1], tokens[position - 1] + 100, *tokens[position:]]
        assert not Prompt(other, 4, KEY, None).matches(position, at.residue, at.residue_hash)
    assert not Prompt(tokens[:position], 4, KEY, None).matches(position + 1, at.residue, at.residue_hash)
