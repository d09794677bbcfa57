"""Alembic's environment: which audit database to migrate, and how to reach it.

Migrations are about the audit database alone. It is derived, so ``kvledger audit project --rebuild`` does as well; a
migration keeps what the log has retired meanwhile.
"""

from alembic import context
from sqlalchemy.schema import CreateSchema

from kvledger_storage.audit_sql.database import AuditDatabase, audit_url
from kvledger_storage.audit_sql.schema import METADATA

HELP = "name the database: alembic -c migrations/alembic.ini -x db=FILE_OR_URL upgrade head"


def run() -> None:
    """Migrate the database that ``-x db=...`` names, in one transaction."""
    named = context.get_x_argument(as_dictionary=True).get("db")
    if not named:
        raise SystemExit(HELP)
    database = AuditDatabase(audit_url(named))
    try:
        with database.connect_for_writing() as connection:
            if not database.is_sqlite:
                connection.execute(CreateSchema(database.schema, if_not_exists=True))
                connection.commit()
            context.configure(connection=connection, target_metadata=METADATA)
            with context.begin_transaction():
                context.run_migrations()
            connection.commit()
    finally:
        database.close()


if context.is_offline_mode():
    raise SystemExit("migrations need the database; " + HELP)
run()
