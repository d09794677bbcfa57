"""Tables of the audit database as CSV, for spreadsheets and notebooks."""

import csv
from collections.abc import Sequence
from pathlib import Path

from sqlalchemy import Connection, select

from kvledger.errors import CallerError
from kvledger_storage.audit_sql.rows import TABLES
from kvledger_storage.audit_sql.schema import table

__all__ = ["export_tables"]


def export_tables(connection: Connection, directory: Path, names: Sequence[str] | None = None) -> dict[str, int]:
    """Write tables, one file each with a head line, rows in the order of their keys.

    Args:
        connection: Where they are; all are of one moment.
        directory: Where the files go; made if it is not there.
        names: Which tables; None for all.

    Returns:
        Name of each table to the number of its rows.

    Raises:
        CallerError: there is no such table.
    """
    forms = {form.name: form for form in TABLES}
    unknown = [name for name in names or () if name not in forms]
    if unknown:
        remedy = f"name some of {', '.join(forms)}"
        raise CallerError(f"there is no table {unknown[0]}", field="table", remedy=remedy)
    directory.mkdir(parents=True, exist_ok=True)
    counts = {}
    for name in names or forms:
        columns = table(forms[name].row)
        rows = connection.execute(select(columns).order_by(*(columns.c[key] for key in forms[name].key)))
        with (directory / f"{name}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(rows.keys())
            counts[name] = 0
            for row in rows:
                writer.writerow(row)
                counts[name] += 1
    return counts
