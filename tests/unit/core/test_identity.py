"""What keeps two layouts apart is told field by field."""

from __future__ import annotations

from msgspec.structs import replace

from kvledgerd.core.lookup.identity import differences
from support.tiny import tiny_layout


def test_each_field_that_differs_stands_alone():
    """Two fields of one group, and two of one kernel ABI, are four differences, each with both values."""
    stored = tiny_layout()
    group, *rest = stored.groups
    abi = stored.abi[group.name]
    changed = replace(group, page_bytes=2 * group.page_bytes, alignment=2 * group.alignment)
    asked = replace(
        stored,
        groups=(changed, *rest),
        abi=stored.abi | {group.name: replace(abi, name="other", number=abi.number + 1)},
    )

    found = differences(stored, asked)
    assert sorted(line.split(":")[0] for line in found) == [
        f"abi.{group.name}.name",
        f"abi.{group.name}.number",
        f"groups.{group.name}.alignment",
        f"groups.{group.name}.page_bytes",
    ]
    assert all(line.count(": stored '") == 1 for line in found)
