"""A connection to the daemon that is asked again and again, and made anew when it is gone."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeVar

from kvledger import Cache
from kvledger.errors import KVLedgerError
from kvledger.wire.replies import StatusReport

__all__ = ["Source"]

T = TypeVar("T")


class Source:
    """Asks a daemon again and again, over one connection as long as that holds; safe in any thread.

    Args:
        listening: Its socket.
        name: What the daemon is told about who asks.
        tenant: Whose numbers to ask for; empty for what the caller is told of itself.
    """

    def __init__(self, listening: Path, name: str, tenant: str = "") -> None:
        self._listening: Final = listening
        self._tenant: Final = tenant
        self._name: Final = name
        self._guard: Final = threading.Lock()
        self._cache: Cache | None = None

    def ask(self, question: Callable[[Cache], T]) -> T:
        """Put a question to it.

        Raises:
            KVLedgerError: It does not answer, or refuses.
            OSError: There is no such socket.
        """
        with self._guard:
            try:
                if self._cache is None:
                    self._cache = Cache.open(self._listening, name=self._name, tenant=self._tenant)
                return question(self._cache)
            except (KVLedgerError, OSError):
                self.close()
                raise

    def report(self) -> StatusReport | None:
        """Return its status, None if it does not answer."""
        try:
            return self.ask(Cache.status)
        except (KVLedgerError, OSError):
            return None

    def close(self) -> None:
        """Let the connection go."""
        cache, self._cache = self._cache, None
        if cache is not None:
            cache.close()
