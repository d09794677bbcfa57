"""Page formats as data: where each field of a row lies in a page, and which formats hold the same rows.

Engines keep equal values in different places: the scales of a page behind all its values or within each row, heads
before rows or rows before heads, rows at a pitch, pages padded. A format is a list of *sections*; a section holds some
fields of every row, row after row, and sections follow each other without a gap. Everything else is a number of the
group: rows in a page, bytes of a page, and the pitch of the rows where there is one section.

Two formats of the same row hold the same bytes in another order, so a conversion loses nothing, in either direction.
`GroupSpec.layout_id` names a format; a name that is not known here is never converted. Formats of packed rows stand in
the files beside this one, each with where it was read. Those of plain keys and values depend on the number of heads and
are made from a name such as ``kv.hnd:8`` (`_KV`).
"""

import re
from collections.abc import Callable
from importlib.resources import files
from typing import Final, NamedTuple

import msgspec

from kvledger.errors import LayoutError
from kvledger.kinds import Form
from kvledger.layout import GroupSpec

__all__ = ["PageFormat", "Place", "format_of"]

Sections = tuple[tuple[int, ...], ...]


class Place(NamedTuple):
    """Where one field lies in a page.

    Attributes:
        base: Byte at which it begins in the first row.
        stride: Bytes from row to row.
        bytes: Bytes in each row.
    """

    base: int
    stride: int
    bytes: int


class PageFormat(NamedTuple):
    """A format with the numbers of one group.

    Attributes:
        name: Name of the format.
        row: What a row holds; formats with equal `row` and `fields` convert into each other.
        fields: Bytes of each field, in the order of the row.
        sections: Numbers of the fields of each section.
        rows: Rows of a page.
        pitch: Bytes from row to row of a single section, 0 for its fields' own.
        page_bytes: Bytes of a page, padding included.
    """

    name: str
    row: str
    fields: tuple[int, ...]
    sections: Sections
    rows: int
    pitch: int
    page_bytes: int

    @property
    def held_bytes(self) -> int:
        """Bytes of a page up to its padding."""
        return self.rows * (self.pitch or sum(self.fields))

    def places(self) -> tuple[Place, ...]:
        """Return where each field lies, in the order of the row."""
        found: dict[int, Place] = {}
        start = 0
        for section in self.sections:
            stride = self.pitch or sum(self.fields[number] for number in section)
            base = start
            for number in section:
                found[number] = Place(base, stride, self.fields[number])
                base += self.fields[number]
            start += self.rows * stride
        return tuple(found[number] for number in range(len(self.fields)))


class _Format(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    sections: tuple[tuple[str, ...], ...]
    multiple: int
    used_by: str


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    row: str
    fields: dict[str, int]
    holds: str
    source: str
    formats: tuple[_Format, ...]


def _read() -> dict[str, tuple[_Row, _Format]]:
    decoder = msgspec.json.Decoder(_Row)
    found = (file for file in (files("kvledger") / "page_formats").iterdir() if file.name.endswith(".json"))
    rows = [decoder.decode(file.read_bytes()) for file in found]
    return {entry.name: (row, entry) for row in rows for entry in row.formats}


# Read with the module and not at first use, which would be on somebody's event loop.
_PACKED: Final = _read()

_KV_NAME: Final = re.compile(r"(kv\.[a-z-]+):([1-9][0-9]{0,3})")
# Sections for H heads; the fields are the H keys of a row, then its H values.
_KV: Final[dict[str, Callable[[int], Sections]]] = {
    "kv.nhd": lambda h: (tuple(range(h)), tuple(range(h, 2 * h))),  # [k and v, row, head]
    "kv.hnd": lambda h: tuple((field,) for field in range(2 * h)),  # [k and v, head, row]
    "kv.rows": lambda h: (tuple(range(2 * h)),),  # [row, k and v, head]
    "kv.packed-nhd": lambda h: (tuple(field for head in range(h) for field in (head, h + head)),),  # [row, head, k v]
    "kv.packed-hnd": lambda h: tuple((head, h + head) for head in range(h)),  # [head, row, k v]
}


def format_of(group: GroupSpec) -> PageFormat | None:
    """Return the page format of a group, None if its `layout_id` names none or its pages have no rows.

    Raises:
        LayoutError: The numbers of the group contradict the format that it names.
    """
    if group.form is Form.SNAPSHOT:
        return None
    known = _PACKED.get(group.layout_id)
    if known is not None:
        return _packed(group, *known)
    match = _KV_NAME.fullmatch(group.layout_id)
    return _kv(group, match[1], int(match[2])) if match and match[1] in _KV else None


def _packed(group: GroupSpec, row: _Row, entry: _Format) -> PageFormat:
    held, numbers = sum(row.fields.values()), {name: number for number, name in enumerate(row.fields)}
    if group.row_bytes < held or (group.row_bytes > held and len(entry.sections) > 1):
        raise _contradiction(group, "row_bytes", f"a row has {held} bytes")
    if group.page_bytes % entry.multiple:
        raise _contradiction(group, "page_bytes", f"pages are padded to a multiple of {entry.multiple}")
    sections = tuple(tuple(numbers[name] for name in section) for section in entry.sections)
    pitch = group.row_bytes if group.row_bytes > held else 0
    fields = tuple(row.fields.values())
    return PageFormat(entry.name, row.row, fields, sections, group.rows_per_page, pitch, group.page_bytes)


def _kv(group: GroupSpec, name: str, heads: int) -> PageFormat:
    if group.row_bytes % (2 * heads):
        raise _contradiction(group, "row_bytes", f"a row has {heads} keys and {heads} values of equal size")
    fields = (group.row_bytes // (2 * heads),) * (2 * heads)
    return PageFormat(group.layout_id, "kv", fields, _KV[name](heads), group.rows_per_page, 0, group.page_bytes)


def _contradiction(group: GroupSpec, field: str, why: str) -> LayoutError:
    wrong = f"{getattr(group, field)} does not fit page format {group.layout_id!r}: {why}"
    return LayoutError(wrong, field=field, remedy="correct the number, or leave layout_id empty")
