"""What a layout must satisfy before a byte is stored under it.

Each rule raises `LayoutError` with the field that is wrong and what would be right, since a wrong layout found here
costs a message and found later costs a wrong answer.
"""

import math

from kvledger.errors import LayoutError
from kvledger.kinds import Form, Kind
from kvledger.layout import GroupSpec, Layout
from kvledger.page_formats import format_of

__all__ = ["check_layout", "row_unit_tokens"]

_FORMS = {
    Kind.COMPRESSED_KV: {Form.ROWS},
    Kind.INDEXER_STATE: {Form.ROWS},
    Kind.SWA_WINDOW: {Form.PAGED_WINDOW, Form.SNAPSHOT},
    Kind.UNCOMPRESSED_TAIL: {Form.PAGED_WINDOW, Form.SNAPSHOT},
}
_ODD_ALIGNMENTS = {576}  # DeepSeek-V4 pages are padded to a multiple of 576 bytes
_MAX_OBJECT_BYTES = 1 << 31
_MAX_SLOTS = 4096
_MAX_RANKS = 1024


def row_unit_tokens(layout: Layout) -> int:
    """Return the least common multiple, in tokens, of what the cacheable groups of form `rows` store as a unit."""
    return math.lcm(*(g.page_tokens for g in layout.groups if g.cacheable and g.form is Form.ROWS))


def check_layout(layout: Layout) -> None:
    """Check every rule that needs nothing but the layout itself.

    Raises:
        LayoutError: names the field and the remedy.
    """
    _check_names(layout)
    for index, group in enumerate(layout.groups):
        at = f"groups[{index}]"
        _check_form(group, at)
        _check_sizes(group, at)
        _check_page_format(group, at)
        _check_coupling(layout, group, at)
        _check_block(layout, group, at)
    _check_size_of_block(layout)


def _refuse(field: str, message: str, remedy: str) -> LayoutError:
    return LayoutError(message, field=field, remedy=remedy)


def _check_names(layout: Layout) -> None:
    names = [g.name for g in layout.groups]
    if len(set(names)) != len(names):
        raise _refuse("groups", "two groups have one name", "give each group a name of its own")
    if set(layout.abi) != set(names):
        odd = sorted(set(layout.abi) ^ set(names))
        raise _refuse("abi", f"kernel ABIs and groups differ in {odd}", "declare exactly one ABI for each group")
    if not any(g.cacheable for g in layout.groups):
        raise _refuse("groups", "no group is cacheable", "declare at least one cacheable group")


def _check_form(group: GroupSpec, at: str) -> None:
    allowed = _FORMS.get(group.kind)
    if allowed is None:
        raise _refuse(f"{at}.kind", f"{group.kind.name} is made by the daemon only", "declare the kind of the state")
    if group.form not in allowed:
        names = " or ".join(sorted(f.value for f in allowed))
        raise _refuse(f"{at}.form", f"{group.kind.name} can not be kept as {group.form.value}", f"use {names}")
    if group.form is Form.PAGED_WINDOW and group.window < 1:
        raise _refuse(f"{at}.window", "a paged window needs its length", "set window to the tokens it spans")
    if group.form is Form.PAGED_WINDOW and group.window <= group.halo_rows:
        message = f"a window of {group.window} tokens can not hold a halo of {group.halo_rows}"
        raise _refuse(f"{at}.window", message, "a window of W tokens keeps the W - 1 before a boundary")


def _check_sizes(group: GroupSpec, at: str) -> None:
    if group.form is not Form.SNAPSHOT and group.row_bytes < 1:
        raise _refuse(f"{at}.row_bytes", "rows have no size", "set row_bytes to the bytes of one row of one layer")
    if group.page_bytes < group.row_bytes * group.rows_per_page and group.form is not Form.SNAPSHOT:
        need = group.row_bytes * group.rows_per_page
        raise _refuse(f"{at}.page_bytes", f"{group.page_bytes} bytes can not hold {need}", "set the padded page size")
    alignment = group.alignment
    if alignment & (alignment - 1) and alignment not in _ODD_ALIGNMENTS:
        raise _refuse(f"{at}.alignment", f"{alignment} is no power of two", "use a power of two up to 4096, or 576")
    if alignment in _ODD_ALIGNMENTS and group.page_bytes % alignment:
        raise _refuse(f"{at}.page_bytes", f"{group.page_bytes} is no multiple of {alignment}", "pad the page")
    if alignment > 4096:
        raise _refuse(f"{at}.alignment", f"{alignment} is more than a page", "use at most 4096")
    if not group.layers or len(set(group.layers)) != len(group.layers):
        raise _refuse(f"{at}.layers", "layers are missing or named twice", "name each layer that reads the state once")
    if group.end_rank > _MAX_RANKS:
        raise _refuse(f"{at}.shards", f"{group.end_rank} ranks are too many", f"use at most {_MAX_RANKS} ranks in all")
    if not set(group.owner_layers) <= set(group.layers):
        raise _refuse(f"{at}.owner_layers", "an owner is no layer of the group", "name owners among the layers")


def _check_page_format(group: GroupSpec, at: str) -> None:
    try:
        format_of(group)
    except LayoutError as error:
        raise _refuse(f"{at}.{error.field}", error.message, error.remedy) from error


def _check_coupling(layout: Layout, group: GroupSpec, at: str) -> None:
    if group.kind is Kind.INDEXER_STATE and not group.coupled_to:
        raise _refuse(f"{at}.coupled_to", "an indexer needs the rows it indexes", "name the compressed group")
    if not group.coupled_to:
        return
    partner = next((g for g in layout.groups if g.name == group.coupled_to), None)
    if partner is None or partner.kind is not Kind.COMPRESSED_KV:
        raise _refuse(f"{at}.coupled_to", f"{group.coupled_to!r} is no compressed group", "name a compressed group")
    if group.kind is Kind.INDEXER_STATE and _ranks(group) != _ranks(partner):
        raise _refuse(f"{at}.coupled_to", "the coupled groups differ in cacheable, shards or ranks", "make them equal")


def _ranks(group: GroupSpec) -> tuple[bool, int, int, int]:
    return group.cacheable, group.shards, group.first_rank, group.replicas


def _check_block(layout: Layout, group: GroupSpec, at: str) -> None:
    if group.cacheable and group.form is not Form.SNAPSHOT and layout.block_tokens % group.page_tokens:
        raise _refuse(
            "block_tokens",
            f"{layout.block_tokens} is no multiple of the {group.page_tokens} tokens of a page of {at}",
            f"use a multiple of {math.lcm(row_unit_tokens(layout), group.page_tokens)}",
        )


def _check_size_of_block(layout: Layout) -> None:
    slots = 0
    for group in layout.groups:
        pages = layout.block_tokens // group.page_tokens if group.form is not Form.SNAPSHOT else 1
        slots += group.shards * (pages if group.form is Form.PAGED_WINDOW else 1)
        if pages * group.page_bytes * group.owners > _MAX_OBJECT_BYTES:
            raise _refuse("block_tokens", f"a block of {group.name} passes 2 GiB", "use smaller blocks")
    if slots > _MAX_SLOTS:
        raise _refuse(
            "block_tokens", f"a block would have {slots} objects, more than {_MAX_SLOTS}", "use smaller blocks"
        )
