"""Write docs/events.md anew from the classes of the events, which are its only source.

Usage: .venv/bin/python scripts/events_page.py
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import msgspec
from audit_tables import described

from kvledger_storage.events import Event

PAGE = Path(__file__).resolve().parent.parent / "docs" / "events.md"
HEADING = "## Every event\n"


def page(old: str) -> str:
    """Return the page with fresh sections behind its heading."""
    return old.partition(HEADING)[0] + HEADING + "".join(f"\n{section(event)}" for event in get_args(Event))


def section(event: type[msgspec.Struct]) -> str:
    """Return heading, description and fields of one event."""
    names = [field.name for field in msgspec.structs.fields(event)]
    told, fields = described(event.__doc__ or "", names)
    rows = [f"| `{name}` | {shown(says)} |\n" for name, says in fields]
    head = "| field | holds |\n|---|---|\n" if rows else ""
    left = [name for name in names if name not in dict(fields)]
    if left:
        told += " Fields: " + ", ".join(f"`{name}`" for name in left) + "."
    tag: Any = event.__struct_config__.tag
    return f"### {event.__name__}\n\n`{tag}`: {shown(told)}\n" + ("\n" + head + "".join(rows) if rows else "")


def shown(text: str) -> str:
    """Return a text as a cell of a table can hold it."""
    return text.replace("|", "\\|")


def main() -> None:
    """Replace what stands behind the heading."""
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
