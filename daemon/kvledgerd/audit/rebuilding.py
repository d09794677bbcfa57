"""Making the audit database anew beside the one that is there, and putting it into its place at once.

Readers see the old one whole until they see the new one whole. On SQLite the new file takes the old one's name, in an
exclusive transaction on the old one, so that nobody is in the middle of it; on PostgreSQL two schemas change names in
one transaction.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sqlalchemy import text
from sqlalchemy.schema import DropSchema

from kvledger_storage.audit_sql.database import AuditDatabase, answering
from kvledgerd.audit.projection import Projection

__all__ = ["rebuild"]

_DRAFT = "_draft"


def rebuild(data: Path, database: AuditDatabase, progress: Callable[[int], object]) -> Projection:
    """Project a log into a new database and swap it with the old one, whose lock the caller holds.

    A log that is damaged is told up to the damage, as by a projection.

    Raises:
        LogError: The log can not be read where it begins; the old database stays.
        ServiceError: A database failed; the old one stays.
    """
    return _by_file(data, database, progress) if database.is_sqlite else _by_schema(data, database, progress)


def _told(data: Path, draft: AuditDatabase, progress: Callable[[int], object]) -> Projection:
    draft.create()
    projection = Projection(data, draft.writing)
    projection.to_end(progress)
    projection.look_for_damage()
    return projection


def _by_file(data: Path, database: AuditDatabase, progress: Callable[[int], object]) -> Projection:
    assert database.url is not None
    path = Path(str(database.url.database))
    new = path.with_name(path.name + _DRAFT)
    new.unlink(missing_ok=True)
    draft = AuditDatabase(database.url.set(database=str(new)))
    try:
        projection = _told(data, draft, progress)
        draft.close()
        if not path.exists():
            new.replace(path)
            return projection
        with database.excluding():
            new.replace(path)
    finally:
        draft.close()
        with suppress(FileNotFoundError):
            new.unlink()
    database.close()
    return projection


def _by_schema(data: Path, database: AuditDatabase, progress: Callable[[int], object]) -> Projection:
    draft = AuditDatabase(database.url, database.schema + _DRAFT)
    try:
        with answering(draft), draft.engine.begin() as connection:
            connection.execute(DropSchema(draft.schema, cascade=True, if_exists=True))
        projection = _told(data, draft, progress)
    finally:
        draft.close()
    with database.writing() as connection:
        connection.execute(DropSchema(database.schema, cascade=True, if_exists=True))
        connection.execute(text(f'ALTER SCHEMA "{draft.schema}" RENAME TO "{database.schema}"'))
    return projection
