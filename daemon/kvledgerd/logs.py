"""How the daemon's log lines look: coloured text on a terminal, one JSON object a line everywhere else, on stderr.

A line carries the incarnation whatever thread it comes from, so it is added here and not bound to a context.
"""

import contextlib
import logging
import sys
from typing import Any, TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

__all__ = ["configure"]


def configure(*, json: bool, incarnation: int | None = None, level: int = logging.INFO) -> None:
    """Set up structlog for this process; may be called again when the incarnation is known.

    Args:
        json: Write JSON also to a terminal.
        incarnation: Run of the daemon, bound to every line.
        level: Lines below it are dropped.
    """

    def add_incarnation(_logger: WrappedLogger, _name: str, line: EventDict) -> EventDict:
        if incarnation is not None:
            line["incarnation"] = incarnation
        return line

    for_people = sys.stderr.isatty() and not json
    final: list[Processor]
    if for_people:
        # The pretty formatter shows locals, which takes seconds for deep objects, on the loop.
        final = [structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)]
    else:
        final = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=_shown)]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            add_incarnation,
            *final,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast("TextIO", _StandardError())),
        # Lines are rare, and a cached logger would go on without the incarnation.
        cache_logger_on_first_use=False,
    )


class _StandardError:
    """What is stderr now, which drops what can not be written: a full disk under it must not stop the cache."""

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()


def _shown(value: Any) -> str:
    return value.hex() if isinstance(value, bytes) else repr(value)
