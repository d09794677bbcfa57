"""Write the tables of docs/audit.md anew from the classes of the rows, which are their only source.

Usage: .venv/bin/python scripts/audit_tables.py
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from kvledger_storage.audit_sql.rows import TABLES, TableForm

PAGE = Path(__file__).resolve().parent.parent / "docs" / "audit.md"
HEADING = "## Tables\n"
TAIL = "## CSV\n"


def main() -> None:
    """Replace what stands between the two headings."""
    text = PAGE.read_text(encoding="utf-8")
    head, rest = text.split(HEADING, 1)
    tail = rest.split(TAIL, 1)[1]
    intro = rest.split("### ", 1)[0].rstrip("\n")
    tables = "\n".join(map(table, TABLES))
    PAGE.write_text(f"{head}{HEADING}{intro}\n\n{tables}\n{TAIL}{tail}", encoding="utf-8")


def described(docstring: str, names: Collection[str]) -> tuple[str, list[tuple[str, str]]]:
    """Return what a docstring says of a class, and of each of its attributes, in its order."""
    what, _, attributes = docstring.replace("``", "`").partition("Attributes:")
    fields: list[list[str]] = []
    for line in map(str.strip, attributes.strip().splitlines()):
        name, colon, says = line.partition(": ")
        if colon and name in names:
            fields.append([name, says])
        elif fields:
            fields[-1][1] += f" {line}"
    return " ".join(what.split()), [(name, says) for name, says in fields]


def table(form: TableForm) -> str:
    """Return heading, description and columns of one table."""
    told, columns = described(form.row.__doc__ or "", form.row._fields)
    rows = "".join(f"| `{name}` | {says} |\n" for name, says in columns)
    key = ", ".join(f"`{name}`" for name in form.key)
    return f"### {form.name}\n\n{told} Key: {key}.\n\n| column | holds |\n|---|---|\n{rows}"


if __name__ == "__main__":
    main()
