"""Field cases about names: keys that are joined from parts, and ids that are cut short."""

import itertools
import random

import pytest
from msgspec.structs import replace

from kvledger.hashing import ChainHasher, token_bytes
from kvledger.wire.requests import Acquire, Boundary, Commit, Reserve
from support.layouts import pick
from support.world import ROOT_KEY, World

PROMPT = list(range(600))
KEY = bytes(range(32))
PIECES = ["lora", "salt", "a", "b", "=", ":", "/", "|", "\0", ",", "{}", "__"]


def first(extra, tokens=range(8)):
    """The hash of the first block of a short prompt under extra keys."""
    return ChainHasher(KEY, 8, extra).blocks(token_bytes(tokens))


def test_p03_no_split_of_a_text_into_names_and_values_is_like_another():
    """However one text is cut into sources and values, each way of cutting it has a hash of its own."""
    chance = random.Random(3)
    seen = {}
    for _ in range(300):
        text = "".join(chance.choices(PIECES, k=chance.randrange(2, 7)))
        at = sorted(chance.sample(range(len(text) + 1), min(3, len(text) + 1)))
        for cuts in (at[:1], at[1:2], at):
            parts = [text[i:j] for i, j in itertools.pairwise([0, *cuts, len(text)])]
            extra = dict(zip(parts[::2], parts[1::2], strict=False))
            for one in (extra, {name: value.encode() for name, value in extra.items()}):
                assert seen.setdefault(first(one), one) == one
    assert len(seen) > 500


@pytest.mark.parametrize("source", ["lora", "salt", "multimodal"])
def test_p03_missing_is_not_empty(source):
    """No key, an empty text and empty bytes are three different things, whatever the source."""
    assert len({first({}), first({source: ""}), first({source: b""}), first({"": ""})}) == 4


def test_p03_extra_keys_and_tokens_never_stand_for_each_other():
    """One run of bytes, split anywhere into the value of an extra key and the tokens of a block: each has its hash."""
    raw = token_bytes(range(1, 17))
    hashers = [(ChainHasher(KEY, 16 - size, {"salt": raw[: 4 * size]}), raw[4 * size :]) for size in range(16)]
    assert len({hasher.blocks(rest) for hasher, rest in hashers}) == 16


TEXTS = ("model", "weights_digest", "revision", "rope_digest", "config_digest", "tokenizer_digest", "adapter_digest")


@pytest.mark.parametrize(("one", "other"), list(itertools.combinations(TEXTS, 2)))
def test_p03_characters_moved_between_fields_make_another_layout(one, other):
    """Two layouts whose fields read the same when joined are two layouts, and the look-up of one misses the other's."""
    what = replace(pick("C"), **{one: "ab", other: "c"})
    moved = replace(what, **{one: "a", other: "bc"})
    assert what.digest != moved.digest
    user = World().engine()
    user.store(user.register(what), PROMPT, 512)
    assert user.acquire(user.register(moved), PROMPT).usable_tokens == 0


def test_p03_characters_moved_between_tenant_and_tokenizer_share_nothing():
    """The index key is a tuple, never a joined text: a tenant can not name itself into another's tree."""
    world = World()
    one, two = world.engine("one", "ab"), world.engine("two", "a")
    number = one.register(pick("C", tokenizer_digest="c"))
    one.store(number, PROMPT, 512)
    found = two.acquire(two.register(pick("C", tokenizer_digest="bc")), PROMPT)
    assert (found.usable_tokens, found.hash_tokens, found.lease) == (0, 0, 0)


def flips(width):
    """Every id that differs in one bit from a random one of so many bits, and the id itself."""
    chance = random.Random(width)
    whole = chance.getrandbits(width)
    return [(whole ^ bit).to_bytes(width // 8, "little") for bit in (0, *(1 << n for n in range(width)))]


@pytest.mark.parametrize("width", [16, 64, 128, 256])
@pytest.mark.parametrize("source", ["multimodal", "lora", "salt"])
def test_l16_every_bit_of_an_id_counts(source, width):
    """Ids that agree in all bits but one have hashes of their own: nothing is cut to 16 or 64 bits."""
    ids = flips(width)
    assert len({first({source: one}) for one in ids}) == width + 1


@pytest.mark.parametrize("same", [slice(0, 2), slice(-2, None), slice(0, 16), slice(16, None)])
def test_l16_another_image_is_a_miss(same):
    """Two content ids equal in their first or last bytes: what is stored for one is never offered for the other."""
    mine, theirs = bytearray(b"\1" * 32), bytearray(b"\2" * 32)
    theirs[same] = mine[same]
    user = World().engine()
    number = user.register(pick("CX"))
    stored, asked = (ChainHasher(ROOT_KEY, 256, {"multimodal": bytes(one)}) for one in (mine, theirs))
    reserved = user.ok(Reserve(number, Boundary(stored.blocks(token_bytes(PROMPT)))))
    user.fill(reserved)
    user.ok(Commit(reserved.unit))
    assert user.ok(Acquire(number, 600, stored.blocks(token_bytes(PROMPT)))).usable_tokens == 512
    assert user.ok(Acquire(number, 600, asked.blocks(token_bytes(PROMPT)))).hash_tokens == 0


@pytest.mark.parametrize("where", ["first block", "second block", "residue"])
def test_l16_every_token_and_bit_of_it_counts(where):
    """One bit of one token changes the hash of its block and of all behind it, and of no block before."""
    hasher = ChainHasher(KEY, 4)
    tokens = list(range(100, 110))
    at = {"first block": 1, "second block": 6, "residue": 9}[where]
    plain, root = token_bytes(tokens), hasher.root()
    blocks = hasher.blocks(plain)
    for bit in range(32):
        other = token_bytes([token ^ (1 << bit) if i == at else token for i, token in enumerate(tokens)])
        changed = [blocks[i : i + 32] != hasher.blocks(other)[i : i + 32] for i in (0, 32)]
        assert changed == [at < 4, at < 8]
        assert (hasher.residue(root, plain[32:]) != hasher.residue(root, other[32:])) == (at == 9)
