"""Log lines about who is refused: a few for each uid, and then how many were left out.

Being refused costs a client nothing, so one that tries again at once writes as many lines as it likes, and the log of
the daemon is on somebody's disk. What is worth knowing stands in the first lines; of the others the number is.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

import structlog

__all__ = ["RefusalLog"]

_LINES: Final = 10
_SECONDS: Final = 60.0
# A user namespace has as many uids as it likes: those that come later share their lines.
_UIDS: Final = 64
_OTHERS: Final = -1

_log = structlog.get_logger(__name__)


class RefusalLog:
    """Writes lines of a uid until it has had as many as it may in a stretch of time; used on the loop.

    Args:
        lines: Lines of one uid in one stretch.
        seconds: How long a stretch is; the first refusal begins it, and its end tells what was left out.
    """

    def __init__(self, lines: int = _LINES, seconds: float = _SECONDS) -> None:
        self._lines: Final = lines
        self._seconds: Final = seconds
        self._refused: Final[Counter[int]] = Counter()

    def tell(self, write: Callable[..., None], uid: int, event: str, /, **fields: Any) -> None:
        """Count a refusal, and write its line with ``write`` if there is one left."""
        if not self._refused:
            asyncio.get_running_loop().call_later(self._seconds, self._end)
        counted = uid if uid in self._refused or len(self._refused) < _UIDS else _OTHERS
        self._refused[counted] += 1
        if self._refused[counted] <= self._lines:
            write(event, **fields)

    def _end(self) -> None:
        for uid, refused in self._refused.items():
            if refused > self._lines:
                who = "others" if uid == _OTHERS else uid
                _log.warning("refusals left out", uid=who, lines=refused - self._lines, seconds=self._seconds)
        self._refused.clear()
