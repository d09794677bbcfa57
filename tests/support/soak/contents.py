"""What is stored: three layouts of unlike forms, prompts that share beginnings, and the bytes that belong to them."""

from __future__ import annotations

import random
from array import array
from typing import NamedTuple

import xxhash

from kvledger import Form, GroupSpec, KernelABI, Kind, Layout

__all__ = ["BLOCK", "LAYOUTS", "PROMPTS", "Wish", "content", "wish"]

BLOCK = 64
KIB = 1024
PROMPTS = 600
_FAMILIES = 50
_SHARED_BLOCKS = 6
_TURNS = 4
_STEP = 16  # the longest page of a window: every turn ends where a boundary may be
_NOISE_BYTES = 1 << 20
_NOISE = random.Random(20).randbytes(2 * _NOISE_BYTES)
_KEY_BYTES = 8


def _rows(name: str, kind: Kind, page: int, **more) -> GroupSpec:
    return GroupSpec(
        name=name,
        kind=kind,
        form=Form.ROWS,
        layers=(0,),
        tokens_per_row=4,
        rows_per_page=BLOCK // 4,
        row_bytes=page * 4 // BLOCK,
        page_bytes=page,
        **more,
    )


def _pages(name: str, kind: Kind, tokens: int, window: int, page: int) -> GroupSpec:
    return GroupSpec(
        name=name,
        kind=kind,
        form=Form.PAGED_WINDOW,
        layers=(0,),
        rows_per_page=tokens,
        row_bytes=page // tokens,
        page_bytes=page,
        window=window,
    )


def _state(name: str, kind: Kind, size: int, window: int = 0) -> GroupSpec:
    return GroupSpec(name=name, kind=kind, form=Form.SNAPSHOT, layers=(0,), page_bytes=size, window=window)


def _layout(model: str, *groups: GroupSpec) -> Layout:
    abi = {group.name: KernelABI(name="soak") for group in groups}
    return Layout(model=model, weights_digest="soak", abi=abi, block_tokens=BLOCK, groups=groups)


LAYOUTS = (
    _layout(
        "soak-hybrid",
        _rows("c4", Kind.COMPRESSED_KV, 48 * KIB),
        _rows("index", Kind.INDEXER_STATE, 12 * KIB, coupled_to="c4"),
        _state("window", Kind.SWA_WINDOW, 100 * KIB, window=128),
        _state("tail", Kind.UNCOMPRESSED_TAIL, 9 * KIB + 100),
    ),
    _layout(
        "soak-paged",
        _rows("c4", Kind.COMPRESSED_KV, 20 * KIB),
        _pages("swa", Kind.SWA_WINDOW, 16, 64, 24 * KIB),
        _pages("tail", Kind.UNCOMPRESSED_TAIL, 4, 8, 1 * KIB),
    ),
    _layout("soak-plain", _rows("kv", Kind.COMPRESSED_KV, 96 * KIB), _state("rnn", Kind.UNCOMPRESSED_TAIL, 60 * KIB)),
)


class Wish(NamedTuple):
    """A prompt that somebody sends: its tokens, and where the ends of its turns are."""

    tokens: array
    turns: tuple[int, ...]


def wish(number: int) -> Wish:
    """Return prompt `number`: a beginning that its family shares, then turns of its own."""
    chance = random.Random(number)
    family, shared = number % _FAMILIES, BLOCK * chance.randrange(_SHARED_BLOCKS)
    ends = [shared + _STEP * chance.randrange(1, 2 * BLOCK // _STEP)]
    for _ in range(chance.randrange(_TURNS)):
        ends.append(ends[-1] + _STEP * chance.randrange(1, 2 * BLOCK // _STEP))
    words = (1 + family * 4096 + place if place < shared else 1_000_000 + number for place in range(ends[-1]))
    return Wish(array("I", words), tuple(ends))


def content(model: str, thing, tokens: array) -> bytes:
    """Return what an object (of a unit or of a hit) holds: the tokens up to its end, its group and model decide it."""
    label = f"{model}/{thing.group}/{thing.shard}/{thing.first_token}+{thing.tokens}".encode()
    whole = xxhash.xxh3_64(tokens[: thing.first_token + thing.tokens].tobytes())
    whole.update(label)
    key = whole.intdigest()
    start = key % _NOISE_BYTES
    return key.to_bytes(_KEY_BYTES, "little") + _noise(start, thing.length - _KEY_BYTES)


def _noise(start: int, length: int) -> bytes:
    return _NOISE[start : start + length]
