"""The tables of the audit database, made from the classes of their rows."""

import types
from typing import Any, Final, get_type_hints

from sqlalchemy import BigInteger, Boolean, Column, Index, MetaData, String, Table, Text
from sqlalchemy.types import TypeEngine

from kvledger_storage.audit_sql.rows import TABLES, AnyRow, TableForm

__all__ = ["METADATA", "REVISION", "TABLE_OF", "VERSION", "table"]

REVISION: Final = "0002"
"""Revision of the migrations that makes these tables; a fresh database is made at it."""
METADATA: Final = MetaData()

_TYPES: Final[dict[type, type[TypeEngine[Any]]]] = {int: BigInteger, str: Text, bool: Boolean}


def _table(form: TableForm) -> Table:
    columns = []
    for name, hint in get_type_hints(form.row).items():
        optional = isinstance(hint, types.UnionType)
        plain = next(part for part in hint.__args__ if part is not types.NoneType) if optional else hint
        key = name in form.key
        columns.append(Column(name, _TYPES[plain](), primary_key=key, nullable=optional, autoincrement=False))
    indexes = [Index(f"{form.name}_{'_'.join(names)}", *names) for names in form.indexes]
    return Table(form.name, METADATA, *columns, *indexes)


VERSION: Final = Table("alembic_version", MetaData(), Column("version_num", String(32), primary_key=True))
"""The table in which the migrations keep their revision; it is theirs, so it is no part of the metadata."""

TABLE_OF: Final[dict[type[AnyRow], Table]] = {form.row: _table(form) for form in TABLES}
"""Class of rows to their table."""


def table(row: type[AnyRow]) -> Table:
    """Return the table of a class of rows."""
    return TABLE_OF[row]
