"""Print the table of commands into docs/protocol.md, between its two marks, from kvledger/wire/commands.py.

Usage: python scripts/protocol_table.py [--check]
"""

import argparse
import re
from pathlib import Path
from typing import get_args

import msgspec

from kvledger.wire.commands import COMMANDS, Command
from kvledger.wire.replies import Reply

PAGE = Path(__file__).resolve().parent.parent / "docs/protocol.md"
START, END = "<!-- commands: written by scripts/protocol_table.py -->", "<!-- end of commands -->"


def fields(message: type[msgspec.Struct]) -> str:
    """Return the fields of a message in their order."""
    return ", ".join(f"`{name}`" for name in message.__struct_fields__) or "none"


def row(command: Command) -> str:
    """Return the line of one command."""
    answers = ", ".join(f"`{answer.__struct_config__.tag}`" for answer in command.replies)
    return (
        f"| `{command.name}` | {command.since} | {command.right} | {command.acknowledgement} | {answers} "
        f"| {fields(command.request)} | {command.sentence} |"
    )


def table() -> str:
    """Return both tables."""
    lines = [
        "| request | since | right | acknowledged | replies | fields, in order | what it does |",
        "|---|---|---|---|---|---|---|",
        *map(row, COMMANDS),
        "",
        "| reply | fields, in order |",
        "|---|---|",
        *(f"| `{reply.__struct_config__.tag}` | {fields(reply)} |" for reply in get_args(Reply)),
    ]
    return "\n".join(lines)


def page(old: str) -> str:
    """Return the page with fresh tables."""
    fresh = f"{START}\n{table()}\n{END}"
    return re.sub(re.escape(START) + ".*" + re.escape(END), lambda _: fresh, old, count=1, flags=re.DOTALL)


def main() -> int:
    """Write or check; return the exit status."""
    parser = argparse.ArgumentParser(description="print the table of commands into docs/protocol.md")
    parser.add_argument("--check", action="store_true", help="write nothing, fail if something would change")
    old = PAGE.read_text()
    if parser.parse_args().check:
        return old != page(old)
    PAGE.write_text(page(old))
    print(f"wrote {PAGE.name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
