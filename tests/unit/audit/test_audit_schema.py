"""The tables: the same from the program and from the migrations, on SQLite and on PostgreSQL, and on their page."""

import argparse
import io
from pathlib import Path

import pytest
from sqlalchemy import inspect

from docs.pages import table as page_table
from kvledger.errors import CallerError, ServiceError
from kvledger_storage.audit_sql.database import AuditDatabase, audit_url
from kvledger_storage.audit_sql.rows import TABLES
from kvledger_storage.audit_sql.schema import METADATA, REVISION, VERSION

ROOT = Path(__file__).parents[3]


def alembic(url: str, command: str, *words: str) -> str:
    """Run a command of Alembic's and return what it prints; `check` raises where the tables differ."""
    pytest.importorskip("alembic", reason="the extra [audit] is not installed")
    from alembic import command as commands
    from alembic.config import Config

    said = io.StringIO()
    named = argparse.Namespace(x=[f"db={url}"])
    config = Config(str(ROOT / "migrations" / "alembic.ini"), stdout=said, cmd_opts=named)
    getattr(commands, command)(config, *words)
    return said.getvalue()


def tables(database: AuditDatabase) -> set[str]:
    """Return the names of the tables that are there."""
    with database.reading() as connection:
        return set(inspect(connection).get_table_names())


def test_migrations_lead_to_the_tables_of_the_program_and_back(url):
    """Up to the head the tables are those that the program makes, by Alembic's own word; down again none is left."""
    alembic(url, "upgrade", "head")
    assert "No new upgrade operations" in alembic(url, "check")
    database = AuditDatabase(audit_url(url))
    assert database.exists()
    assert tables(database) == {*METADATA.tables, VERSION.name}
    database.close()
    alembic(url, "downgrade", "base")
    assert tables(database) == {VERSION.name}
    database.close()


def test_a_fresh_database_stands_at_the_head(tmp_path):
    """What the program makes is at the newest revision, so that Alembic has nothing to do."""
    url = str(tmp_path / "audit.db")
    database = AuditDatabase(audit_url(url))
    assert not database.exists()
    database.create()
    assert database.exists()
    assert alembic(url, "current").split()[0] == REVISION
    assert "No new upgrade operations" in alembic(url, "check")


def test_tables_of_another_revision_are_refused(tmp_path):
    """A database of another version is not written to, and the refusal names both ways out."""
    database = AuditDatabase(audit_url(str(tmp_path / "audit.db")))
    database.create()
    with database.writing() as connection:
        connection.execute(VERSION.update().values(version_num="0000"))
    with pytest.raises(ServiceError, match=r"revision 0000, not 0002 .*alembic upgrade head.*--rebuild"):
        database.exists()


@pytest.mark.parametrize("named", ["mysql://host/db", "oracle://x", "://", "postgresql://host:port/x"])
def test_other_databases_are_refused(named):
    """A URL of neither SQLite nor PostgreSQL is refused with what to write instead."""
    with pytest.raises(CallerError, match=r"names no audit database.*postgresql://"):
        audit_url(named)


def test_a_server_that_does_not_answer_is_one_error(tmp_path):
    """Whatever the driver says, the command gets one error that names the database and hides its password."""
    pytest.importorskip("psycopg", reason="the extra [audit] is not installed")
    database = AuditDatabase(audit_url(f"postgresql://me:geheim@/postgres?host={tmp_path}"))
    with pytest.raises(ServiceError, match="the audit database postgresql") as failed:
        database.exists()
    assert "geheim" not in str(failed.value)


@pytest.mark.parametrize("form", TABLES, ids=lambda form: form.name)
def test_the_page_tells_every_column(form):
    """The page has a table for each table, with every column in order and the words of its row class."""
    told = [(row[0].strip("`"), row[1]) for row in page_table("docs/audit.md", f"### {form.name}")]
    lines = (form.row.__doc__ or "").split("Attributes:")[1].strip().splitlines()
    words = " ".join(line.strip() for line in lines).replace("``", "`")
    assert [name for name, _ in told] == list(form.row._fields)
    assert words == " ".join(f"{name}: {says}" for name, says in told)
