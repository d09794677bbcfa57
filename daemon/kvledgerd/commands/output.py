"""Output of commands: tables for a terminal, JSON for programs; the last line of a machine form is one JSON object."""

import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

__all__ = ["moment", "progress", "say", "say_json", "table"]

# A pipe has no width of its own: a table takes what it needs there, so that no word is cut for whoever searches it.
_WIDE = 1000


def say(text: str = "") -> None:
    """Print a line for people."""
    sys.stdout.write(text + "\n")


def say_json(value: Any) -> None:
    """Print one JSON object on one line."""
    sys.stdout.write(msgspec.json.encode(value).decode() + "\n")


def progress(text: str) -> None:
    """Show on a terminal how far it is, in the place of what was shown before; an empty text clears that line."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r{text}\x1b[K")
        sys.stderr.flush()


def moment(time_ms: int) -> str:
    """Return a time for people, UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table, drawn for a terminal and plain for a pipe; without rows say so, since an empty frame says less."""
    found = list(rows)
    if not found:
        say(f"{title}: none" if title else "none")
        return
    from rich.console import Console  # noqa: PLC0415  costs 50 ms that other commands need not pay
    from rich.table import Table  # noqa: PLC0415  as above

    is_terminal = sys.stdout.isatty()
    console = Console(highlight=False, soft_wrap=not is_terminal, width=None if is_terminal else _WIDE)
    drawn = Table(title=title or None, title_justify="left")
    for name in columns:
        drawn.add_column(name, overflow="fold")
    for row in found:
        drawn.add_row(*(str(cell) for cell in row))
    console.print(drawn)
