"""Layouts that keep the same rows in different page formats, shaped like DeepSeek-V4 in several engines."""

from __future__ import annotations

from msgspec.structs import replace

from kvledger import Form, GroupSpec, KernelABI, Kind, Layout

BLOCK = 256
_BOTH = {"layers": (0, 1), "rows_per_page": 64}
_ROWS = {"form": Form.ROWS, "tokens_per_row": 4} | _BOTH


def v4_layout(*, split: bool = True, csa_rows: int = 64, **fields) -> Layout:
    """Return compressed rows, indexer keys, a paged window of heads and a tail; split as engines keep them, or by rows.

    Args:
        split: Scales behind the values, keys before scales, heads before rows; or everything row by row.
        csa_rows: Rows in a page of compressed rows.
        fields: Fields of the layout.
    """
    form = "split" if split else "rows"
    page = -(-584 * csa_rows // 576) * 576 if split else 600 * csa_rows
    csa = _ROWS | {"rows_per_page": csa_rows, "row_bytes": 584 if split else 600, "page_bytes": page}
    keys = _ROWS | {"row_bytes": 132, "page_bytes": 8_448, "coupled_to": "csa"}
    window = _BOTH | {"row_bytes": 256, "page_bytes": 64 * 256, "window": 128, "form": Form.PAGED_WINDOW}
    tail = {"form": Form.SNAPSHOT, "layers": (0, 1), "page_bytes": 4_096, "coupled_to": "csa", "halo_rows": 4}
    heads = "kv.hnd:2" if split else "kv.nhd:2"
    groups = (
        GroupSpec(name="csa", kind=Kind.COMPRESSED_KV, layout_id=f"mla-v4.{form}", **csa),
        GroupSpec(name="indexer", kind=Kind.INDEXER_STATE, layout_id=f"indexer-fp8.{form}", **keys),
        GroupSpec(name="window", kind=Kind.SWA_WINDOW, layout_id=heads, **window),
        GroupSpec(name="tail", kind=Kind.UNCOMPRESSED_TAIL, **tail),
    )
    abi = {
        one.name: KernelABI(name=f"v4.{one.name}", layout=one.layout_id, page_bytes=one.page_bytes) for one in groups
    }
    given = {"model": "v4", "weights_digest": "w1", "tokenizer_digest": "t"} | fields
    return Layout(abi=abi, block_tokens=BLOCK, groups=groups, **given)


def with_abi(layout: Layout, group: str, **fields) -> Layout:
    """Return a layout with another kernel ABI of one group."""
    return replace(layout, abi=layout.abi | {group: replace(layout.abi[group], **fields)})


def with_group(layout: Layout, group: str, **fields) -> Layout:
    """Return a layout with another group of one name."""
    groups = tuple(replace(one, **fields) if one.name == group else one for one in layout.groups)
    return replace(layout, groups=groups)
