"""What the daemon says of itself now, asked at most twice a second however many browsers look.

While none answers it is asked less often: to find that out takes the client a second, for which a page would wait.
"""

import threading
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from kvledger import Cache
from kvledger.errors import KVLedgerError
from kvledger.wire.tenants import TenantInfo
from kvledgerd.operators import require_whole
from kvledgerd.top.overview import Look, Overview, overview
from kvledgerd.web.source import Source

__all__ = ["LiveDaemon", "Now"]

_SECONDS: Final = 0.5
_GONE_SECONDS: Final = 3.0


class Now(NamedTuple):
    """A daemon as it is now, or why it does not say.

    Attributes:
        overview: What its counters tell, None if it does not answer.
        look: The counters themselves, None if it does not answer.
        why_not: Why it does not answer, empty if it does.
        tenants: What each tenant has.
    """

    overview: Overview | None
    look: Look | None
    why_not: str = ""
    tenants: Sequence[TenantInfo] = ()


class LiveDaemon:
    """Keeps the latest look at a daemon; safe in any thread.

    Args:
        source: Whom to ask.
    """

    def __init__(self, source: Source) -> None:
        self._source: Final = source
        self._guard: Final = threading.Lock()
        self._before: Look | None = None
        self._ask_at = 0.0
        self._now = Now(None, None)

    def now(self) -> Now:
        """Return how it is, as of half a second ago at most; that it is gone, as of three seconds ago."""
        with self._guard:
            if time.monotonic() >= self._ask_at:
                self._now = self._asked()
                self._ask_at = time.monotonic() + (_GONE_SECONDS if self._now.look is None else _SECONDS)
            return self._now

    def _asked(self) -> Now:
        try:
            look, tenants = self._source.ask(_look)
        except (KVLedgerError, OSError) as error:
            return Now(None, None, str(error))
        before, self._before = self._before, look
        return Now(overview(before, look), look, tenants=tenants)


def _look(cache: Cache) -> tuple[Look, Sequence[TenantInfo]]:
    return Look(time.monotonic(), require_whole(cache.status()), cache.quotas()), cache.tenants()
