"""One audit database: opened by URL, made if it is new, written in transactions that carry their watermark.

SQLite is a file, PostgreSQL a schema of its own (`kvledger_audit`) in a database that exists. Whoever writes holds a
lock, so there is one follower at a time; readers need none and see whole transactions only. A server frees the lock of
a session that is lost, as with its restart, and tells nobody: so who holds the lock writes in its session alone.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import URL, Connection, Engine, create_engine, event, func, inspect, make_url, select
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.pool import StaticPool
from sqlalchemy.schema import CreateSchema

from kvledger.errors import CallerError, ServiceError
from kvledger_storage.audit_sql.schema import METADATA, REVISION, VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["SCHEMA", "AuditDatabase", "answering", "audit_url"]

SCHEMA: Final = "kvledger_audit"
"""Schema of the tables on PostgreSQL."""
BUSY_SECONDS: Final = 60
"""How long one waits for another's transaction on SQLite."""
_STEPS: Final = 20_000
"""Steps of SQLite's machine, less than a millisecond, between two looks at the clock."""


def audit_url(text_or_path: str) -> URL:
    """Return the URL of a database; a path is that of a SQLite file.

    Raises:
        CallerError: It is neither SQLite nor PostgreSQL, or a driver is missing.
    """
    try:
        url = make_url(text_or_path) if "://" in text_or_path else URL.create("sqlite", database=text_or_path)
    except (ArgumentError, ValueError) as error:  # the latter for a port that is no number
        raise _refused(text_or_path, str(error)) from error
    if url.get_backend_name() == "postgresql" and url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    if url.get_backend_name() not in {"sqlite", "postgresql"}:
        raise _refused(url.render_as_string(), "it is neither SQLite nor PostgreSQL")
    return url


def _refused(url: str, why: str) -> CallerError:
    remedy = "name a file, or postgresql://USER@HOST/DATABASE"
    return CallerError(f"{url} names no audit database: {why}", field="db", remedy=remedy)


class AuditDatabase:
    """An audit database.

    Args:
        url: Where it is; None makes one for this process alone, which nobody else sees.
        schema: Schema on PostgreSQL.

    Raises:
        CallerError: The driver is not installed.
    """

    def __init__(self, url: URL | None, schema: str = SCHEMA) -> None:
        self.url, self.schema = url, schema
        self._locking: Connection | None = None
        try:
            self.engine = _engine(url, schema)
        except (ModuleNotFoundError, NoSuchModuleError) as error:
            remedy = "pip install 'kvledger[audit]'"
            raise CallerError(f"PostgreSQL needs a driver: {error}", field="db", remedy=remedy) from error

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a SQLite file."""
        return self.engine.dialect.name == "sqlite"

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    def exists(self) -> bool:
        """Tell whether the tables are there; makes nothing.

        Raises:
            ServiceError: The database does not answer, or has tables of another version.
        """
        if self.is_sqlite and self.url is not None and self.url.database and not Path(self.url.database).exists():
            return False
        with answering(self), self.engine.connect() as connection:
            if not inspect(connection).has_table(VERSION.name):
                return False
            found = connection.execute(select(VERSION.c.version_num)).scalar()
        if found != REVISION:
            remedy = "run `alembic upgrade head` in migrations/, or `kvledger audit project --rebuild`"
            raise ServiceError(f"the tables are of revision {found}, not {REVISION}", field="db", remedy=remedy)
        return True

    def create(self) -> None:
        """Make the tables, and note the revision of the migrations that makes the same."""
        with self.writing() as connection:
            if not self.is_sqlite:
                connection.execute(CreateSchema(self.schema, if_not_exists=True))
            METADATA.create_all(connection)
            VERSION.create(connection, checkfirst=True)
            connection.execute(VERSION.insert().values(version_num=REVISION))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only writer for a `with` block.

        Raises:
            ServiceError: There is another one.
        """
        with self._file_lock() if self.is_sqlite else self._server_lock():
            yield

    @contextmanager
    def _file_lock(self) -> Iterator[None]:
        if self.url is None or not self.url.database:
            yield
            return
        path = f"{self.url.database}.lock"
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise _taken(path) from error
            yield
        finally:
            os.close(fd)

    @contextmanager
    def _server_lock(self) -> Iterator[None]:
        with answering(self), self.engine.connect() as connection:
            key = func.hashtextextended(SCHEMA, 0)
            if not connection.execute(select(func.pg_try_advisory_lock(key))).scalar():
                raise _taken(SCHEMA)
            connection.commit()
            self._locking = connection
            try:
                yield
            finally:
                self._locking = None
                with suppress(SQLAlchemyError):  # a session that is gone holds no lock any more
                    connection.execute(select(func.pg_advisory_unlock(key)))
                connection.invalidate()

    @contextmanager
    def reading(self, seconds: float | None = None) -> Iterator[Connection]:
        """Give a connection that sees one moment of the database.

        Args:
            seconds: How long the queries of the `with` block may take; None for any time.

        Raises:
            ServiceError: The database does not answer, or not in time.
        """
        with answering(self), self.engine.connect() as connection:
            if seconds is not None:
                self._limit(connection, seconds)
            yield connection

    def _limit(self, connection: Connection, seconds: float) -> None:
        """Have the database give up a query that is not done in time; the connection is not for use afterwards."""
        if not self.is_sqlite:
            connection.exec_driver_sql(f"SET LOCAL statement_timeout = {int(seconds * 1000)}")
            return
        end = time.monotonic() + seconds
        raw: Any = connection.connection.driver_connection
        raw.set_progress_handler(lambda: time.monotonic() > end, _STEPS)

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Give a connection whose changes become visible together at the end, or not at all if that raises.

        Raises:
            ServiceError: The database does not answer, or the session is lost that had the lock.
        """
        locking = self._locking
        if locking is None:
            with answering(self), self.connect_for_writing() as connection, connection.begin():
                yield connection
            return
        if locking.invalidated:  # it would begin another session, which has no lock
            raise ServiceError("the lock went with its session", field="db", remedy="run the command again")
        with answering(self), locking.begin():
            yield locking

    def connect_for_writing(self) -> Connection:
        """Return a connection that is to change something in its transactions."""
        # Who reads first and then writes could wait for a writer that waits for him
        return self.engine.connect().execution_options(begin="IMMEDIATE")

    @contextmanager
    def excluding(self) -> Iterator[None]:
        """Keep everybody else out of a SQLite file for a `with` block."""
        with answering(self), self.engine.connect().execution_options(begin="EXCLUSIVE") as alone, alone.begin():
            yield


@contextmanager
def answering(database: AuditDatabase) -> Iterator[None]:
    """Turn what a database server says into one error.

    Raises:
        ServiceError: The database does not answer as it should.
    """
    try:
        yield
    except SQLAlchemyError as error:
        where = database.url.render_as_string() if database.url is not None else "memory"
        first = str(error).splitlines()[0]
        raise ServiceError(
            f"the audit database {where} failed: {first}", field="db", remedy="see to it, then run the command again"
        ) from error


def _taken(what: str) -> ServiceError:
    remedy = "stop the other one: a `kvledger audit follow`, or a daemon with audit_follow or http, which runs one"
    return ServiceError(f"another process writes the audit database ({what})", field="db", remedy=remedy)


def _engine(url: URL | None, schema: str) -> Engine:
    if url is not None and url.get_backend_name() == "postgresql":
        engine = create_engine(url, isolation_level="REPEATABLE READ")

        @event.listens_for(engine, "connect")
        def _in_schema(connection: Any, _: object) -> None:
            with connection.cursor() as cursor:
                cursor.execute(f'SET search_path TO "{schema}"')
            connection.commit()

        return engine
    if url is None:
        # SQLite keeps a database without a name in its cache, and on disk what does not fit there
        engine = create_engine("sqlite://", creator=lambda: sqlite3.connect(""), poolclass=StaticPool)
    else:
        engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS})

    # The driver would begin a transaction at the first change only, and an answer of several queries is of one moment
    @event.listens_for(engine, "connect")
    def _no_own_transactions(connection: Any, _: object) -> None:
        connection.isolation_level = None

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.exec_driver_sql(f"BEGIN {connection.get_execution_options().get('begin', '')}")

    return engine
