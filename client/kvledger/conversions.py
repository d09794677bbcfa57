"""Which layouts keep the same rows in other places, so that what is stored under one can serve the other without loss.

Two layouts convert into each other if they are equal in every field but those that say where bytes lie in a page: the
page format of a group with its numbers, and what a kernel ABI says of order, strides, page and alignment. Name and
number of the ABI stay: a number is raised when the *meaning* of the bytes changes, and no copy mends that. Groups that
differ must both name a format that is known here (`kvledger.page_formats`) and hold the same fields.

An object converts into one object. Rows are cut by blocks of tokens, so their pages may hold other numbers of rows; of
a paged window each page is an object, so there they may not.
"""

from collections.abc import Iterator

from kvledger.kinds import Form
from kvledger.layout import GroupSpec, KernelABI, Layout
from kvledger.page_formats import PageFormat, format_of

__all__ = ["Formats", "conversion"]

Formats = tuple[PageFormat, PageFormat] | None
"""Stored and asked format of a group, or None where nothing differs."""

_PLACES_IN_ABI = frozenset({"layout", "strides", "page_bytes", "alignment"})
_PLACES_IN_GROUP = frozenset({"layout_id", "rows_per_page", "row_bytes", "page_bytes", "alignment"})
_PARTS = frozenset({"abi", "groups"})


def conversion(stored: Layout, asked: Layout) -> tuple[Formats, ...] | None:
    """Return how each group of a stored layout becomes that of the asked one, None if there is no way without loss."""
    if set(_differing(stored, asked)) - _PARTS or stored.abi.keys() != asked.abi.keys():
        return None
    if len(stored.groups) != len(asked.groups):
        return None
    if any(set(_differing(stored.abi[name], abi)) - _PLACES_IN_ABI for name, abi in asked.abi.items()):
        return None
    found: list[Formats] = []
    for one, other in zip(stored.groups, asked.groups, strict=True):
        pair = _formats(one, other)
        if pair is None and one != other:
            return None
        found.append(pair)
    return tuple(found)


def _formats(stored: GroupSpec, asked: GroupSpec) -> Formats:
    differing = set(_differing(stored, asked))
    if not differing or differing - _PLACES_IN_GROUP:
        return None
    if stored.form is Form.PAGED_WINDOW and "rows_per_page" in differing:
        return None
    one, other = format_of(stored), format_of(asked)
    if one is None or other is None or (one.row, one.fields) != (other.row, other.fields):
        return None
    return one, other


def _differing(one: Layout | GroupSpec | KernelABI, other: Layout | GroupSpec | KernelABI) -> Iterator[str]:
    return (name for name in one.__struct_fields__ if getattr(one, name) != getattr(other, name))
