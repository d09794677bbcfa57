"""One PostgreSQL server for all tests of the audit database."""

import pytest

from support.postgres import postgres_url


@pytest.fixture(scope="session")
def postgres():
    """The URL of an own server; the test is skipped where there is none."""
    with postgres_url() as url:
        yield url
