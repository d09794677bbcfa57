"""What a daemon over a damaged log says to whoever opens a cache."""

from __future__ import annotations

import time

from kvledger import Cache
from kvledger.errors import DamagedError, DeadlineError, DisconnectedError

__all__ = ["refusal"]


def refusal(daemon) -> DamagedError:
    """Return the error with which a daemon refuses, once it has made up its mind."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            Cache.open(daemon.socket, timeout=5.0).close()
        except (DisconnectedError, DeadlineError):
            time.sleep(0.02)
        except DamagedError as error:
            return error
    raise AssertionError("nobody was refused")
