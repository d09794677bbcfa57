"""Layouts that rows are measured with."""

from collections.abc import Iterable
from typing import Final

from kvledger import Form, GroupSpec, KernelABI, Kind, Layout

__all__ = ["MIB", "five_groups", "megabyte_blocks", "one_snapshot"]

MIB: Final = 1 << 20


def _layout(model: str, block_tokens: int, groups: Iterable[GroupSpec]) -> Layout:
    """Return a layout of groups whose kernels do not matter here."""
    specs = tuple(groups)
    abi = {spec.name: KernelABI(name="bench") for spec in specs}
    return Layout(model=model, weights_digest="bench", abi=abi, block_tokens=block_tokens, groups=specs)


def _rows(name: str, kind: Kind, tokens_per_row: int, page_bytes: int, **more: str) -> GroupSpec:
    """Return a group of rows with one layer and one page a row."""
    size = min(page_bytes, 64)
    return GroupSpec(
        name=name,
        kind=kind,
        form=Form.ROWS,
        layers=(0,),
        tokens_per_row=tokens_per_row,
        row_bytes=size,
        page_bytes=page_bytes,
        coupled_to=more.get("coupled_to", ""),
    )


def _snapshot(name: str, kind: Kind, page_bytes: int, window: int = 0) -> GroupSpec:
    """Return a group that keeps one object at each boundary."""
    return GroupSpec(name=name, kind=kind, form=Form.SNAPSHOT, layers=(0,), page_bytes=page_bytes, window=window)


def five_groups(block_tokens: int) -> Layout:
    """Return a layout of DeepSeek-V4's shape with small objects: three groups of rows, a window and a tail."""
    return _layout(
        "bench-five-groups",
        block_tokens,
        (
            _rows("csa", Kind.COMPRESSED_KV, 4, 64),
            _rows("indexer", Kind.INDEXER_STATE, 4, 64, coupled_to="csa"),
            _rows("hca", Kind.COMPRESSED_KV, 128, 64),
            _snapshot("window", Kind.SWA_WINDOW, 4096, window=128),
            _snapshot("tail", Kind.UNCOMPRESSED_TAIL, 4096),
        ),
    )


def megabyte_blocks() -> Layout:
    """Return a layout whose block of 256 tokens holds 1 MiB: rows of 768 KiB, and 256 KiB of routing keys for them."""
    return _layout(
        "bench-megabyte-blocks",
        256,
        (
            _rows("kv", Kind.COMPRESSED_KV, 256, 3 * MIB // 4),
            _rows("indexer", Kind.INDEXER_STATE, 256, MIB // 4, coupled_to="kv"),
        ),
    )


def one_snapshot(size: int) -> Layout:
    """Return a layout that keeps one object of `size` bytes at each boundary."""
    return _layout(f"bench-snapshot-{size}", 16, (_snapshot("tail", Kind.UNCOMPRESSED_TAIL, size),))
