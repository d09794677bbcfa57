"""Output: tables for people, JSON for programs; the last line of a machine form is one JSON object."""

import sys
from collections.abc import Container, Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

__all__ = ["aligned", "moment", "progress", "say", "say_json", "table"]


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


def table(
    title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], right: Container[str] = frozenset()
) -> None:
    """Print a table, drawn for a terminal and plain for a pipe; without rows say so, since an empty frame says less.

    Args:
        title: What it shows; empty if that is clear.
        columns: Heads of the columns.
        rows: Cells of each row.
        right: Columns of numbers that stand under each other.
    """
    found = [[str(cell) for cell in row] for row in rows]
    if not found:
        say(f"{title}: none" if title else "none")
    elif sys.stdout.isatty():
        _draw(title, columns, found, right)
    else:
        # `grep` and `awk` read lines: a cell of several would begin rows that are none.
        one_line = [["; ".join(cell.splitlines()) for cell in row] for row in found]
        say("\n".join([title] * bool(title) + aligned(columns, one_line, right)))


def aligned(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Container[str] = frozenset()) -> list[str]:
    """Return a table as lines without a frame, each as long as it needs to be, so that no word is cut in two."""
    lines = (columns, *rows)
    fits = [f"{'>' if name in right else '<'}{max(len(row[i]) for row in lines)}" for i, name in enumerate(columns)]
    return ["  ".join(map(format, row, fits)).rstrip() for row in lines]


def _draw(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], right: Container[str]) -> None:
    from rich.console import Console  # noqa: PLC0415  costs 50 ms that other commands need not pay
    from rich.table import Table  # noqa: PLC0415  as above

    drawn = Table(title=title or None, title_justify="left")
    for name in columns:
        drawn.add_column(name, justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*row)
    Console(highlight=False, markup=False).print(drawn)
