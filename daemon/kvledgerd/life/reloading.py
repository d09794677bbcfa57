"""SIGHUP: the rules of access are read again, while everything else stays as it was at the start.

Rules are what has to change while engines run: a tenant moves in, somebody leaves. All other settings are sizes that
memory, log or disk were laid out by. A file that is wrong changes nothing, and says so in the daemon's log.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from kvledger.errors import KVLedgerError
from kvledgerd.access import AccessRules
from kvledgerd.config_checks import ConfigError
from kvledgerd.settings import SETTINGS, Config

__all__ = ["Reloading"]

_log = structlog.get_logger(__name__)


class Reloading:
    """Reads the settings anew each time it is woken.

    Args:
        config: The settings of the start.
        reread: Returns them as they are by then; may block.
        change: Takes the rules; returns how many connections end by them.
    """

    def __init__(self, config: Config, reread: Callable[[], Config], change: Callable[[AccessRules], int]) -> None:
        self._config: Final = config
        self._reread: Final = reread
        self._change: Final = change
        self._woken: Final = asyncio.Event()

    def wake(self) -> None:
        """Read them soon."""
        self._woken.set()

    async def run(self) -> None:
        """Wait to be woken, again and again."""
        while True:
            await self._woken.wait()
            self._woken.clear()
            try:
                found = await asyncio.to_thread(self._reread)
                self._require_room(found.access)
            except KVLedgerError as error:
                _log.error("settings were not read again, nothing changed", why=str(error))
            else:
                self._take(found)

    def _require_room(self, rules: AccessRules) -> None:
        """Refuse more tenants than memory was set aside for: the last one would find none."""
        most = max(self._config.tenants, len(self._config.access.tenants))
        if len(rules.tenants) > most:
            raise ConfigError(
                f"rules name {len(rules.tenants)} tenants, memory was set aside for {most} at the start",
                field="access",
                remedy="start the daemon again; with `tenants` above what rules name one can be added at any time",
            )

    def _take(self, found: Config) -> None:
        ended = self._change(found.access)
        late = [name for name in SETTINGS if name != "access" and getattr(found, name) != getattr(self._config, name)]
        _log.info(
            "rules of access were read again", rules=len(found.access), connections_ended=ended, need_restart=late
        )
