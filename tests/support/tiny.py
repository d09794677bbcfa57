"""A tiny layout with rows and a snapshot, and bytes that anybody can work out, for tests that run a real daemon."""

from __future__ import annotations

from kvledger import Cache, Form, GroupSpec, KernelABI, Kind, Layout

BLOCK = 16


def tiny_layout(name: str = "tiny", weights: str = "w1") -> Layout:
    """Return a layout of two groups: plain rows of 8 KiB a block, and a snapshot of 8 KiB."""
    groups = (
        GroupSpec(
            name="full",
            kind=Kind.COMPRESSED_KV,
            form=Form.ROWS,
            layers=(0, 1),
            tokens_per_row=1,
            rows_per_page=BLOCK,
            row_bytes=256,
            page_bytes=4096,
        ),
        GroupSpec(name="tail", kind=Kind.UNCOMPRESSED_TAIL, form=Form.SNAPSHOT, layers=(0,), page_bytes=8192),
    )  # fmt: skip  a table
    abi = {group.name: KernelABI(name="torch.contiguous", page_bytes=group.page_bytes) for group in groups}
    return Layout(model=name, weights_digest=weights, tokenizer_digest="t", abi=abi, block_tokens=BLOCK, groups=groups)


def prompt(seed: int, tokens: int = 50) -> list[int]:
    """Return a prompt that no other seed begins like."""
    return [1_000_000 + seed, *range(tokens - 1)]


def content(seed: int, group: str, first_token: int, length: int) -> bytes:
    """Return the bytes of an object; they differ for every seed, group and place."""
    label = f"prompt {seed} {group} at {first_token}; ".encode()
    return (label * (length // len(label) + 1))[:length]


def store(cache: Cache, layout, seed: int, tokens: int = 50) -> None:
    """Commit the state of a prompt at its end; an exception means that nothing was acknowledged."""
    words = prompt(seed, tokens)
    with cache.reserve(layout, words, boundary=tokens) as unit:
        for slot in unit.objects:
            if not slot.present:
                unit.put(slot, content(seed, slot.group, slot.first_token, slot.length))


def check(cache: Cache, layout, seed: int, tokens: int = 50) -> int:
    """Return how many tokens of a stored prompt can be reused; every byte handed out is compared."""
    with cache.acquire(layout, [*prompt(seed, tokens), 7]) as hit:
        for handle in hit:
            expected = content(seed, handle.group, handle.first_token, handle.length)
            assert bytes(handle.buffer) == expected, f"{handle.group} at {handle.first_token} of prompt {seed}"
        return hit.tokens
