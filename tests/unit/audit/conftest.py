"""One PostgreSQL server for all tests of the audit database."""

import pytest
from sqlalchemy.schema import DropSchema

from kvledger_storage.audit_sql.database import AuditDatabase, audit_url
from support.postgres import postgres_url


@pytest.fixture(scope="session")
def postgres():
    """The URL of an own server; the test is skipped where there is none."""
    with postgres_url() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request, tmp_path) -> str:
    """Where an empty database of each kind is."""
    if request.param == "sqlite":
        return str(tmp_path / "audit.db")
    server = request.getfixturevalue("postgres")
    database = AuditDatabase(audit_url(server))
    with database.engine.begin() as connection:
        connection.execute(DropSchema(database.schema, cascade=True, if_exists=True))
    database.close()
    return server
