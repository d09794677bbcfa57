"""The settings that change while the daemon runs: SIGHUP reads them again, and whoever goes by one is told.

All others are sizes that memory, log or disk were laid out by at the start, or places that others know by now.
"""

import dataclasses
from typing import TYPE_CHECKING, Final

from kvledgerd.access import Sockets
from kvledgerd.settings.table import Config

if TYPE_CHECKING:
    from kvledgerd.life.assembly import Assembly

__all__ = ["LIVE", "tell", "with_live"]

LIVE: Final = (
    "access",
    "archive_bytes",
    "degrade_failures",
    "degrade_seconds",
    "drill_seconds",
    "probe_seconds",
    "scrub_bytes_per_second",
    "scrub_seconds",
    "silence_seconds",
    "snapshot_events",
    "stop_seconds",
    "stop_write_seconds",
    "warm_bytes_per_second",
)
"""Their names."""


def with_live(config: Config, found: Config) -> Config:
    """Return settings with those that may change as they were found now.

    Of the sockets those stay that are still named: none is opened while the daemon runs, but rules count beside their
    sockets.
    """
    names = {row.name for row in found.sockets}
    sockets = Sockets(row for row in config.sockets if row.name in names)
    return dataclasses.replace(config, sockets=sockets, **{name: getattr(found, name) for name in LIVE})


def tell(parts: "Assembly", config: Config) -> int:
    """Tell the parts of a daemon what they go by from now on; return how many connections end by new rules."""
    parts.retention.archive_bytes = config.archive_bytes
    parts.retention.wake()
    parts.scrubber.rate, parts.scrubber.seconds = config.scrub_bytes_per_second, config.scrub_seconds
    parts.warmer.rate = config.warm_bytes_per_second
    parts.breaker.failures, parts.breaker.window = config.degrade_failures, config.degrade_seconds
    parts.breaker.pause = config.probe_seconds
    parts.drill.every(config.drill_seconds)
    return parts.server.change(config.access, [where.name for where in config.listening])
