"""SIGHUP: the settings are read again, and those that may change while the daemon runs are taken.

Rules of access are what has to change while engines run: a tenant moves in, somebody leaves; rates and intervals are
what one wants to try. A file that is wrong changes nothing, and says so in the daemon's log.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

import structlog

from kvledger.counts import counted
from kvledger.errors import KVLedgerError
from kvledgerd.access import AccessRules
from kvledgerd.life.live_settings import LIVE, with_live
from kvledgerd.settings.checks import ConfigError
from kvledgerd.settings.table import SETTINGS, Config

__all__ = ["Reloading"]

_log = structlog.get_logger(__name__)


class Reloading:
    """Reads the settings anew each time it is woken.

    Args:
        config: The settings of the start.
        reread: Returns them as they are by then; may block.
        change: Takes what is new of them; returns how many connections end by it.
        holding: Returns the tenants that have memory.
    """

    def __init__(
        self,
        config: Config,
        reread: Callable[[], Config],
        change: Callable[[Config], int],
        holding: Callable[[], Collection[str]],
    ) -> None:
        self._config: Final = config
        self._current = config
        self._reread: Final = reread
        self._change: Final = change
        self._holding: Final = holding
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
        """Refuse more tenants than memory was set aside for, those that hold some included: one would find none."""
        most = max(self._config.tenants, len(self._config.access.tenants))
        leaving = [tenant for tenant in self._holding() if tenant not in rules.tenants]
        coming = [tenant for tenant in rules.tenants if tenant not in self._current.access.tenants]
        if len(rules.tenants) > most or (coming and len(rules.tenants) + len(leaving) > most):
            held = f"; until the next start some of it is held by {', '.join(leaving)}" * bool(leaving)
            raise ConfigError(
                f"rules name {counted(len(rules.tenants), 'tenant')}, memory was set aside for {most} at the start"
                f"{held}",
                field="access",
                remedy="start the daemon again; with `tenants` above what rules name one can be added at any time",
            )

    def _take(self, found: Config) -> None:
        differing = [name for name in SETTINGS if getattr(found, name) != getattr(self._current, name)]
        self._current = with_live(self._config, found)
        ended = self._change(self._current)
        taken = [name for name in differing if name in LIVE]
        late = [name for name in differing if name not in LIVE]
        _log.info("settings were read again", changed=taken, connections_ended=ended, need_restart=late)
