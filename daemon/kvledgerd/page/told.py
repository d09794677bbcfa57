"""The audit database as the page reads it: a few readers at a time, and none for longer than a browser waits.

Every answer is of one moment of the database and says of which. A question that would take long, such as who read an
object that everybody reads, is given up; the command for it has all the time it needs.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Connection

from kvledger.errors import ServiceError
from kvledger_storage.audit_sql.statements import newest_mark
from kvledgerd.audit.questions.asking import Asked, named_database

__all__ = ["Told"]

_READERS: Final = 4
_SECONDS: Final = 5.0


class Told:
    """Where the page reads what the log was told into.

    Args:
        data: The data directory.
        named: URL or file of a database; empty for the one in the data directory.
    """

    def __init__(self, data: Path, named: str = "") -> None:
        self._data: Final = data
        self._named: Final = named
        self._free: Final = threading.BoundedSemaphore(_READERS)

    @contextmanager
    def reading(self) -> Iterator[Asked]:
        """Give a connection for a `with` block, and the event as of which it answers.

        Raises:
            ServiceError: There is no database, it does not answer, or this takes too long.
        """
        if not self._free.acquire(timeout=_SECONDS):
            raise ServiceError("other questions take all readers", field="page", remedy="try again in a moment")
        try:
            yield from self._read()
        finally:
            self._free.release()

    def _read(self) -> Iterator[Asked]:
        # Opened each time: a rebuild puts another file in the place of this one
        database = named_database(self._data, self._named)
        try:
            if not database.exists():
                remedy = "the follower makes it: set audit_follow, or run `kvledger audit follow`"
                raise ServiceError("there is no audit database yet", field="data", remedy=remedy)
            with database.reading(_SECONDS) as connection:
                yield Asked(connection, _seq(connection))
        finally:
            database.close()


def _seq(connection: Connection) -> int:
    mark = newest_mark(connection)
    return mark.seq if mark is not None else 0
