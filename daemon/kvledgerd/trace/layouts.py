"""Layouts that a trace is replayed with: plain rows of one page a block, or the shape of a preset.

A preset says what follows from the architecture. Sizes it leaves open are filled in, and no byte ever exists, so they
only decide what a state costs beside a block of rows: rows of 1,024 bytes a layer.
"""

from kvledger import presets
from kvledger.errors import CallerError
from kvledger.kinds import Form, Kind
from kvledger.layout import GroupSpec, KernelABI, Layout
from kvledger.presets import PresetGroup
from kvledgerd.core.config import PAGE

__all__ = ["PLAIN", "trace_layout"]

PLAIN = "plain"
_ROW_BYTES = 1024
_ROWS = {Kind.COMPRESSED_KV, Kind.INDEXER_STATE}


def trace_layout(name: str, block_tokens: int, block_bytes: int = PAGE) -> Layout:
    """Return the layout of a preset for blocks of a trace; `plain` has one object of `block_bytes` for each block.

    Raises:
        CallerError: There is no such preset.
        LayoutError: It can not have blocks of this size.
    """
    if name == PLAIN:
        rows = GroupSpec(
            name="full",
            kind=Kind.COMPRESSED_KV,
            form=Form.ROWS,
            layers=(0,),
            tokens_per_row=block_tokens,
            row_bytes=block_bytes,
            page_bytes=block_bytes,
        )
        return _layout(name, block_tokens, (rows,))
    if name not in presets.names():
        raise CallerError(
            f"there is no preset {name!r}", field="layout", remedy=f"name one of {', '.join(presets.names())}"
        )
    preset = presets.load(name)
    return _layout(name, block_tokens, tuple(_group(one, preset.groups) for one in preset.groups))


def _layout(name: str, block_tokens: int, groups: tuple[GroupSpec, ...]) -> Layout:
    abi = {group.name: KernelABI(name="trace") for group in groups}
    return Layout(model=f"trace-{name}", weights_digest="trace", abi=abi, block_tokens=block_tokens, groups=groups)


def _group(one: PresetGroup, others: tuple[PresetGroup, ...]) -> GroupSpec:
    kind, layers = Kind[one.kind], tuple(range(max(1, one.layers)))
    if kind in _ROWS:
        size, per_row = one.row_bytes or _ROW_BYTES, max(1, one.tokens_per_row)
        coupled = one.couples_to if any(other.name == one.couples_to for other in others) else ""
        return GroupSpec(
            name=one.name,
            kind=kind,
            form=Form.ROWS,
            layers=layers,
            tokens_per_row=per_row,
            row_bytes=size,
            page_bytes=size,
            coupled_to=coupled,
        )
    size = max(1, one.window) * (one.row_bytes or _ROW_BYTES)
    return GroupSpec(name=one.name, kind=kind, form=Form.SNAPSHOT, layers=layers, window=one.window, page_bytes=size)
