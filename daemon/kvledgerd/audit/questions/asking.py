"""Where answers come from: a database with or without the rest of the log, or the log alone."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Final, NamedTuple

from sqlalchemy import Connection

from kvledger.errors import NotFoundError
from kvledger_storage.audit_sql.database import AuditDatabase, answering, audit_url
from kvledger_storage.audit_sql.statements import newest_mark
from kvledger_storage.log import LogRotError, Problem
from kvledgerd.audit.projection import Projection

__all__ = ["DATABASE_NAME", "Asked", "asking", "named_database"]

DATABASE_NAME: Final = "audit.db"
"""File in the data directory that is used if no database is named."""


class Asked(NamedTuple):
    """An open source of answers.

    Attributes:
        connection: Where to ask.
        seq: Event behind which the answers are.
        problem: Where the log is damaged, as far as it was read for this.
    """

    connection: Connection
    seq: int
    problem: Problem | None = None


def named_database(data: Path, named: str) -> AuditDatabase:
    """Return the database that was named, or the one in the data directory."""
    return AuditDatabase(audit_url(named or str(data / DATABASE_NAME)))


@contextmanager
def asking(data: Path, named: str = "", *, consistent: bool = False, log_only: bool = False) -> Iterator[Asked]:
    """Open a source of answers for a `with` block.

    Args:
        data: The data directory.
        named: URL or file of a database; empty for the one in the data directory, and without one for the log.
        consistent: Read the rest of the log behind the watermark as well; the database stays as it is.
        log_only: Ask the log even if there is a database.

    Raises:
        NotFoundError: There is no log, or no such database.
        ServiceError: The database does not answer, or tells about another log.
    """
    database = named_database(data, named)
    try:
        there = not log_only and database.exists()
        if named and not there and not log_only:
            remedy = "make it with `kvledger audit project`, or leave --db out to ask the log"
            raise NotFoundError(f"there is no audit database {named}", field="db", remedy=remedy)
        with _of_database(database, data, consistent=consistent) if there else _of_log(data) as asked:
            yield asked
    finally:
        database.close()


@contextmanager
def _of_database(database: AuditDatabase, data: Path, *, consistent: bool) -> Iterator[Asked]:
    if consistent:
        with _undone(database) as connection:
            yield _told(Projection(data, lambda: nullcontext(connection)), connection)
        return
    with database.reading() as connection:
        mark = newest_mark(connection)
        yield Asked(connection, mark.seq if mark is not None else 0)


@contextmanager
def _of_log(data: Path) -> Iterator[Asked]:
    database = AuditDatabase(None)
    try:
        database.create()
        try:
            projection = Projection(data, database.writing)
        except LogRotError as error:
            with database.reading() as connection:
                yield Asked(connection, 0, error.problem)
            return
        with database.reading() as connection:
            yield _told(projection, connection)
    finally:
        database.close()


def _told(projection: Projection, connection: Connection) -> Asked:
    projection.to_end()
    projection.look_for_damage()
    return Asked(connection, projection.seq, projection.problem)


@contextmanager
def _undone(database: AuditDatabase) -> Iterator[Connection]:
    """Give a connection whose changes are its own and are gone at the end."""
    with answering(database), database.connect_for_writing() as connection, connection.begin() as transaction:
        try:
            yield connection
        finally:
            transaction.rollback()
