"""Rows on their way to the database, by table."""

from collections.abc import Iterable

from kvledger_storage.audit_sql.rows import AnyRow

__all__ = ["Sheet"]


class Sheet:
    """Rows of a stretch of the log.

    Attributes:
        rows: Class of rows to rows, in the order of the log.
    """

    def __init__(self) -> None:
        self.rows: dict[type[AnyRow], list[AnyRow]] = {}

    def add(self, *rows: AnyRow) -> None:
        """Add rows."""
        for row in rows:
            self.rows.setdefault(type(row), []).append(row)

    def extend(self, rows: Iterable[AnyRow]) -> None:
        """Add rows as they come."""
        self.add(*rows)

    def through(self, seq: int) -> "Sheet":
        """Return the rows of events up to `seq`."""
        kept = Sheet()
        for form, rows in self.rows.items():
            kept.rows[form] = [row for row in rows if row.seq <= seq]
        return kept
